"""Ctrl-C and SIGTERM: the first one stops a running query after its current batch, the second one at once.

An exception in the middle of a call to Spark would break the connection to the JVM.  So the work runs in its
own thread, and the main thread only waits for it and for signals.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self, TypeVar

from millpond.spark.jvm import kill_spark

T = TypeVar("T")
_POLL = 0.1  # seconds
_PATIENCE = 2.0  # seconds to wait for the work when it must end at once


class Stop:
    """Whether the user has asked to stop; the work sets ``patient`` once it can stop between two batches."""

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


def run_interruptibly(work: Callable[[Stop], T]) -> T:
    """Return the result of the work, or raise what it raised.

    Raises KeyboardInterrupt if the user does not wait for the end of the current batch.
    """
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
            kill_spark()
            thread.join(_PATIENCE)
            raise KeyboardInterrupt
    if errors:
        raise errors[0]
    return results[0]
