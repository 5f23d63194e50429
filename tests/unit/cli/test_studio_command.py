"""``millpond studio`` as a process: it starts fast, says where it is, and ends cleanly."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.request import Request, urlopen

import pytest

from millpond.cli.main import main

STUDIO = (sys.executable, "-m", "millpond.cli.main", "studio", "--port", "0", "--no-browser")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        STUDIO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as started:
        yield started
        started.kill()


def read_address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
    assert found is not None
    return found[0]


def list_children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(each) for each in file.read().split()]


def wait_for_workers(pid: int) -> list[int]:
    """The workers of a studio, as soon as there are some."""
    deadline = time.monotonic() + 30
    while not (workers := list_children(pid)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return workers


def test_the_page_is_there_soon_and_a_query_gets_its_verdict(process: subprocess.Popen[str]) -> None:
    start = time.monotonic()
    address = read_address(process)
    with urlopen(address) as response:
        assert b"Millpond" in response.read()
    # Under 2 s on a quiet machine; tests run beside others.
    assert time.monotonic() - start < 6
    text = "CREATE STREAMING TABLE clicks (ad INT); SELECT DISTINCT ad FROM clicks"
    body = json.dumps({"text": text}).encode()
    with urlopen(Request(f"{address}api/check", body, {"Content-Type": "application/json"})) as response:
        assert json.load(response)["verdicts"][0]["outcome"] == "unbounded"


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_and_its_workers(process: subprocess.Popen[str], how: signal.Signals) -> None:
    read_address(process)
    workers = wait_for_workers(process.pid)
    process.send_signal(how)
    out, err = process.communicate(timeout=20)
    assert (out.strip(), err) == ("", "")
    if how is signal.SIGINT:
        assert process.returncode == 0
    assert not any(os.path.exists(f"/proc/{worker}") for worker in workers)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_workers_end_when_the_studio_is_killed(process: subprocess.Popen[str]) -> None:
    read_address(process)
    workers = wait_for_workers(process.pid)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{worker}") for worker in workers):
        assert time.monotonic() < deadline, "a worker lives on"
        time.sleep(0.05)


def test_a_port_in_use_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["studio", "--port", str(port), "--no-browser"]) == 2
    remedy = "give another --port, or --port 0 for a free one"
    assert capsys.readouterr() == ("", f"millpond: port {port} is in use; {remedy}\n")


@pytest.mark.parametrize("port", ["x", "-1", "65536", "1e3", "²"])
def test_what_is_not_a_port_is_reported_in_one_line(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["studio", "--port", port]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("millpond: --port: ") and err.count("\n") == 1
