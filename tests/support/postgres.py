"""A PostgreSQL server for tests and measurements, where the machine has the programs for it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")


class Server:
    """A server that listens on a Unix socket in its own folder, and on a port if one is given."""

    def __init__(self, programs: Path, folder: Path, user: list[str], port: int | None) -> None:
        self._programs, self._folder, self._user = programs, folder, user
        self._options = f"-c unix_socket_directories={folder} -c fsync=off -c listen_addresses="
        self._options += f"127.0.0.1 -c port={port}" if port else ""
        self.url = f"postgresql+psycopg://tester@/postgres?host={folder}"
        self.url += f"&port={port}" if port else ""

    def make(self) -> None:
        self._run("initdb", "--auth=trust", "--username=tester", "--no-sync", "--encoding=UTF8", "--locale=C")

    def start(self) -> None:
        self._run("pg_ctl", "start", "--wait", f"--options={self._options}", f"--log={self._folder}/log")

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "--mode=immediate", "--wait")

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._user, str(self._programs / program), f"--pgdata={self._folder}/data", *arguments]
        # The server inherits the output, so a pipe would never close.
        with open(self._folder / "output", "ab") as output:
            subprocess.run(
                command, check=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=120
            )


@contextmanager
def server(port: int | None = None) -> Iterator[Server]:
    """A running server; skips the test where PostgreSQL cannot run."""
    found = shutil.which("initdb")
    beside = [path for place in _PLACES for path in sorted(Path("/").glob(place[1:]))]
    programs = Path(found).resolve().parent if found else beside[-1] if beside else None
    if programs is None or not (programs / "pg_ctl").exists():
        pytest.skip("PostgreSQL is not installed (initdb and pg_ctl were not found)")
    folder = Path(tempfile.mkdtemp(prefix="millpond-pg-"))
    user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        name = next((n for n in ("postgres", "nobody") if n in {p.pw_name for p in pwd.getpwall()}), None)
        if name is None or shutil.which("runuser") is None:
            pytest.skip("PostgreSQL does not run as root, and there is no other user to run it")
        user = ["runuser", "-u", name, "--"]
        shutil.chown(folder, name)
    made = Server(programs, folder, user, port)
    try:
        made.make()
        made.start()
        yield made
    finally:
        try:
            made.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
