"""A studio that runs in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from millpond.studio.server import ADDRESS, bind, make_server
from millpond.studio.workers import WorkerPool


@contextmanager
def run_studio(pool: WorkerPool) -> Iterator[str]:
    """The address of a studio on a free port, without a slash at its end."""
    started = threading.Event()
    server = make_server(pool, started.set)
    with closing(bind(0)) as bound:
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        try:
            assert started.wait(30)
            yield f"http://{ADDRESS}:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
