"""The exit codes of the commands."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command returns to the shell."""

    OK = 0  # of `check`: bounded
    UNBOUNDED = 1
    BAD_INPUT = 2
    UNDETERMINED = 3
    RUN_FAILED = 4
    NOT_UNBOUNDED = 5  # there is no witness
    INTERRUPTED = 130
    BROKEN_PIPE = 141
