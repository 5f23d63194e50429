"""Ctrl-C and SIGTERM: the first asks a running query to stop after its batch, the second ends it now.

A signal that raised in the middle of a call to Spark would leave the connection in disorder.  So the work is
done in a thread of its own, and the main thread does nothing but wait for it and for signals.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self, TypeVar

from millpond.spark.session import abandon

T = TypeVar("T")
_POLL = 0.1  # seconds
_PATIENCE = 2.0  # seconds for the work to end when it is to end now


class Stop:
    """What the user has asked for; ``patient`` is set by the work when there is a query that can be asked."""

    def __init__(self) -> None:
        self.requested = self.urgent = False
        self.patient = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.urgent = self.requested or not self.patient
        self.requested = True


def interruptible(work: Callable[[Stop], T]) -> T:
    """The result of the work, or what it raised; KeyboardInterrupt if the user does not wait for its end."""
    results: list[T] = []
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            results.append(work(stop))
        except BaseException as error:
            errors.append(error)

    with Stop() as stop:
        thread = threading.Thread(target=attempt, name="millpond-run", daemon=True)
        thread.start()
        while thread.is_alive() and not stop.urgent:
            thread.join(_POLL)
        if stop.urgent:
            abandon()
            thread.join(_PATIENCE)
            raise KeyboardInterrupt
    if errors:
        raise errors[0]
    return results[0]
