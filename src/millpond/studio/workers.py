"""Worker processes that answer questions within a time limit.

The decision is a computation of Python code, which cannot be interrupted from outside.  It runs in a process
of its own, which is killed and replaced if it takes too long or if nobody waits for the answer any more.

A question is a line of JSON; an answer is a message of ``LENGTH_BYTES`` bytes with its length, then JSON.  A
worker that has imported everything says so with an empty message.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from typing import Any

LENGTH_BYTES = 8
COMMAND = (sys.executable, "-m", "millpond.studio.worker")
_START_SECONDS = 60.0  # on a machine that is busy


class BusyError(Exception):
    """Too many questions wait already."""


class TooSlowError(Exception):
    """The answer was not there in time."""


class WorkerFailedError(Exception):
    """The worker process ended without an answer."""


class Worker:
    """A process that answers one question at a time; ``kill`` ends it, whatever it does."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._is_ready = False

    @classmethod
    async def start(cls, command: Sequence[str]) -> Worker:
        """Start a process; it imports what it needs while others go on."""
        # In a session of its own, the worker does not see the Ctrl-C that ends the server.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        return cls(process)

    async def ask(self, question: Mapping[str, Any], seconds: float) -> bytes:
        """The answer as JSON text.  The time limit does not include the start of the process."""
        assert self._process.stdin is not None
        try:
            if not self._is_ready:
                await asyncio.wait_for(self._read_message(), _START_SECONDS)
                self._is_ready = True
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            await self._process.stdin.drain()
            return await asyncio.wait_for(self._read_message(), seconds)
        except TimeoutError:
            raise TooSlowError from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerFailedError from None

    async def _read_message(self) -> bytes:
        assert self._process.stdout is not None
        length = int.from_bytes(await self._process.stdout.readexactly(LENGTH_BYTES), "big")
        return await self._process.stdout.readexactly(length)

    async def kill(self) -> None:
        """End the process and wait until it has gone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.communicate()


class WorkerPool:
    """A fixed number of workers; at most ``max_waiting`` questions wait for one of them."""

    def __init__(self, size: int = 3, max_waiting: int = 8, command: Sequence[str] = COMMAND) -> None:
        self._size = size
        self._max_waiting = max_waiting
        self._command = command
        self._waiting = 0
        self._idle: asyncio.Queue[Worker] = asyncio.Queue()
        self._workers: set[Worker] = set()
        self._replacing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        for _ in range(self._size):
            await self._add_worker()

    async def stop(self) -> None:
        for task in self._replacing:
            task.cancel()
        await asyncio.gather(*self._replacing, return_exceptions=True)
        for worker in self._workers:
            await worker.kill()

    async def ask(self, question: Mapping[str, Any], seconds: float) -> bytes:
        """The answer of a free worker as JSON text.

        Raises BusyError, TooSlowError or WorkerFailedError.  A worker that gave no answer, also because the
        caller was cancelled, is replaced.
        """
        if self._waiting >= self._max_waiting:
            raise BusyError
        self._waiting += 1
        try:
            worker = await self._idle.get()
        finally:
            self._waiting -= 1
        try:
            answer = await worker.ask(question, seconds)
        except BaseException:
            replacing = asyncio.create_task(self._replace(worker))
            self._replacing.add(replacing)
            replacing.add_done_callback(self._replacing.discard)
            raise
        self._idle.put_nowait(worker)
        return answer

    async def _add_worker(self) -> None:
        worker = await Worker.start(self._command)
        self._workers.add(worker)
        self._idle.put_nowait(worker)

    async def _replace(self, worker: Worker) -> None:
        await worker.kill()
        self._workers.discard(worker)
        await self._add_worker()
