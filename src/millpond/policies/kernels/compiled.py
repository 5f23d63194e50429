"""Loops that run as machine code.  The only module that names the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function compiled by Numba on its first call, and read from Numba's cache after that."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))
