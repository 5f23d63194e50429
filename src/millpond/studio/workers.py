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
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

LENGTH_BYTES = 8
_WAIT_SECONDS = 60.0  # for a free worker
COMMAND = (sys.executable, "-m", "millpond.studio.worker")


class BusyError(Exception):
    """Too many questions wait already, or no worker is free for long."""


class TooSlowError(Exception):
    """The answer was not there in time."""


class WorkerFailedError(Exception):
    """The worker process ended without an answer."""


class Worker:
    """A process that answers one question at a time; ``kill`` ends it, whatever it does."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, command: Sequence[str]) -> Worker:
        """Start a process, which then imports what it needs."""
        # In a session of its own, the worker does not see the Ctrl-C that ends the server.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        return cls(process)

    async def wait_until_ready(self) -> None:
        """Wait until the process has imported what it needs, or has ended."""
        with contextlib.suppress(asyncio.IncompleteReadError):
            await self._read_message()

    async def ask(self, question: Mapping[str, Any], seconds: float) -> bytes:
        """The answer of a process that is ready, as JSON text."""
        assert self._process.stdin is not None
        try:
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
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to start the workers, one after the other, so that the first is ready soon."""
        self._run_in_background(self._add_workers())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
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
            worker = await asyncio.wait_for(self._idle.get(), _WAIT_SECONDS)
        except TimeoutError:
            raise BusyError from None
        finally:
            self._waiting -= 1
        try:
            answer = await worker.ask(question, seconds)
        except BaseException:
            self._run_in_background(self._replace(worker))
            raise
        self._idle.put_nowait(worker)
        return answer

    async def _add_workers(self) -> None:
        for _ in range(self._size):
            await self._add_worker()

    async def _add_worker(self) -> None:
        worker = await Worker.start(self._command)
        self._workers.add(worker)
        await worker.wait_until_ready()
        self._idle.put_nowait(worker)

    async def _replace(self, worker: Worker) -> None:
        await worker.kill()
        self._workers.discard(worker)
        await self._add_worker()

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
