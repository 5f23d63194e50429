"""Serves the studio on a port of this machine until it is interrupted."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from contextlib import closing

import uvicorn

from millpond.errors import MillpondError, describe_os_error
from millpond.studio.app import make_app
from millpond.studio.workers import WorkerPool

ADDRESS = "127.0.0.1"


def serve(port: int, on_start: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM; ``on_start`` gets the address of the page once it can be opened.

    Port 0 is any free one.  Raises MillpondError if the port cannot be used.
    """
    with closing(bind(port)) as bound:
        address = f"http://{ADDRESS}:{bound.getsockname()[1]}/"
        make_server(WorkerPool(), lambda: on_start(address)).run([bound])


def make_server(pool: WorkerPool, on_start: Callable[[], None]) -> uvicorn.Server:
    """A server of the studio whose questions the pool answers; it starts and stops the pool."""
    config = uvicorn.Config(
        make_app(pool),
        lifespan="on",
        ws="none",
        access_log=False,
        log_level="error",
        server_header=False,
        limit_concurrency=64,
        timeout_graceful_shutdown=1,
    )
    return _Server(config, on_start)


class _Server(uvicorn.Server):
    """Says when it has started."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()


def bind(port: int) -> socket.socket:
    """A socket on a port of this machine; MillpondError if the port cannot be used."""
    bound = socket.socket()
    if os.name == "posix":  # elsewhere it would let two servers share the port
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((ADDRESS, port))
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise MillpondError(
                f"port {port} is in use", remedy="give another --port, or --port 0 for a free one"
            ) from None
        raise MillpondError(
            f"port {port} cannot be used: {describe_os_error(error)}", remedy="give another --port"
        ) from None
    return bound
