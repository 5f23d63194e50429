"""The server of the studio: who may ask, how much, and for how long."""

from __future__ import annotations

import http.client
import json
import logging
import queue
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millpond.studio import app
from millpond.studio.workers import WorkerPool
from tests.support.studio import run_studio

# A worker that says what it was asked, unless the text tells it to do something else.
FAKE_WORKER = """
import json, os, sys, time
def write(message):
    sys.stdout.buffer.write(len(message).to_bytes(8, "big") + message)
    sys.stdout.buffer.flush()
write(b"")
for line in sys.stdin.buffer:
    question = json.loads(line)
    if question["text"] == "sleep": time.sleep(60)
    while question["text"].startswith("/") and not os.path.exists(question["text"]): time.sleep(0.02)
    if question["text"] == "die": os._exit(1)
    write(json.dumps({"question": question, "worker": os.getpid()}).encode())
"""


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Sends requests as they are given, also those that no browser would send."""

    def __init__(self, address: str) -> None:
        self.origin = address
        self.host = address.removeprefix("http://")

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection(self.host, timeout=20)
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers.items()), response.read())
        finally:
            connection.close()

    def ask(self, text: str, task: str = "check", **headers: str) -> Answer:
        headers = {"Content_Type": "application/json", "Origin": self.origin} | headers
        return self.send("POST", f"/api/{task}", json.dumps({"text": text}).encode(), **headers)


@pytest.fixture(scope="module")
def server() -> Iterator[Client]:
    """A studio with two workers that are not real, and room for two more questions."""
    with run_studio(WorkerPool(2, 2, (sys.executable, "-c", FAKE_WORKER))) as address:
        yield Client(address)


class Recorder(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(self.format(record))


@pytest.fixture
def studio(server: Client) -> Iterator[Client]:
    """The studio; whatever a test asks, it logs no error."""
    log, recorder = logging.getLogger("uvicorn.error"), Recorder()
    log.addHandler(recorder)
    yield server
    log.removeHandler(recorder)
    assert recorder.records == []


def test_a_question_reaches_a_worker_and_its_answer_comes_back(studio: Client) -> None:
    answer = studio.ask("SELECT '🎉'", task="repairs")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["question"] == {"task": "repairs", "text": "SELECT '🎉'", "query": 0}


# --- who may ask ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7654", "127.0.0.1.evil.example", "0.0.0.0", ""]
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/"), ("GET", "/static/app.js"), ("POST", "/api/check")]
)
def test_other_host_names_are_refused(studio: Client, host: str, method: str, path: str) -> None:
    """A page whose name was made to lead to this machine gets nothing."""
    assert studio.send(method, path, Host=host).status == 400


def test_localhost_is_this_machine(studio: Client) -> None:
    host = studio.host.replace("127.0.0.1", "localhost")
    assert studio.send("GET", "/", Host=host).status == 200
    assert studio.ask("x", Host=host, Origin=f"http://{host}").status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://{host}"])
def test_pages_of_other_origins_may_not_ask(studio: Client, origin: str) -> None:
    assert studio.ask("x", Origin=origin.format(host=studio.host)).status == 403


def test_forms_may_not_ask(studio: Client) -> None:
    """A form of another page needs no permission to send text, but cannot send JSON."""
    assert studio.ask("x", Content_Type="text/plain").status == 415


def test_every_response_keeps_the_page_to_itself(studio: Client) -> None:
    for answer in (
        studio.send("GET", "/"),
        studio.send("GET", "/static/style.css"),
        studio.send("GET", "/nowhere"),
        studio.send("GET", "/", Host="evil.example"),
        studio.ask("x"),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert rules.get("script-src", "'self'") == rules.get("connect-src", "'self'") == "'self'"
        assert "http" not in policy and "*" not in policy and "unsafe-eval" not in policy
        assert "access-control-allow-origin" not in answer.headers


def test_the_page_has_no_inline_script_and_a_new_nonce_each_time(studio: Client) -> None:
    pages = [studio.send("GET", "/") for _ in range(2)]
    nonces = [re.search(r"'nonce-(.*?)'", page.headers["content-security-policy"]) for page in pages]
    first, second = (found[1] for found in nonces if found)
    assert first != second
    for page, nonce in zip(pages, (first, second), strict=True):
        text = page.body.decode()
        assert f'content="{nonce}"' in text and "{{" not in text
        assert re.findall(r"<script(.*?)>(.*?)</script>", text)
        assert all(
            "src=" in tag and not body for tag, body in re.findall(r"<script(.*?)>(.*?)</script>", text)
        )
        assert not re.search(r"<style|\sstyle=|\son\w+=|https?://", text)


# --- what may be asked -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"7",
        b'"text"',
        b'{"text": 7}',
        b'{"text": null}',
        b'{"txt": "x"}',
        b'{"text": "x", "query": "1"}',
        b'{"text": "x", "query": true}',
        b'{"text": "\\ud800"}',
        b"\xff\xfe",
        b"[" * 60_000,
    ],
)
def test_what_is_not_a_question_is_refused_in_one_line(studio: Client, body: bytes) -> None:
    answer = studio.send("POST", "/api/check", body, Content_Type="application/json")
    assert answer.status == 400
    assert list(answer.json) == ["error"] and "\n" not in answer.json["error"]["message"]


def test_a_text_that_is_too_large_is_refused(studio: Client) -> None:
    assert studio.ask("x" * (app.MAX_BODY_BYTES - 12)).status == 200
    answer = studio.ask("x" * app.MAX_BODY_BYTES)
    assert answer.status == 413
    assert answer.json["error"]["message"] == "the text is larger than 64 kB; use millpond check"


def test_a_request_without_end_is_cut_off(studio: Client) -> None:
    """The body is counted as it comes, whatever its header says."""
    connection = http.client.HTTPConnection(studio.host, timeout=20)
    connection.putrequest("POST", "/api/check")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    for _ in range(70):
        connection.send(b"400\r\n" + b" " * 1024 + b"\r\n")
    assert connection.getresponse().status == 413
    connection.close()


def test_a_request_that_does_not_arrive_is_given_up(studio: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_BODY_SECONDS", 0.2)
    connection = http.client.HTTPConnection(studio.host, timeout=20)
    connection.putrequest("POST", "/api/check")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", "100")
    connection.endheaders(b"{")
    assert connection.getresponse().status == 408
    connection.close()


@pytest.mark.parametrize(
    "path", ["/api/run", "/api/check/", "/static/", "/static/../app.py", "/static/%2e%2e/app.py", "/docs"]
)
def test_there_is_nothing_else(studio: Client, path: str) -> None:
    assert studio.send("POST", path, b"{}", Content_Type="application/json").status in (404, 405, 307)
    assert studio.send("GET", path).status in (404, 405, 307)


# --- for how long ----------------------------------------------------------------------------------------


def test_a_question_that_takes_too_long_is_given_up_and_its_worker_replaced(
    studio: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(app.TIME_LIMITS, "check", 0.3)
    for _ in range(3):  # more often than there are workers
        answer = studio.ask("sleep")
        assert answer.status == 504
        assert answer.json["error"]["message"] == (
            "it takes longer than 0.3 s to decide this text; use millpond check"
        )
    monkeypatch.setitem(app.TIME_LIMITS, "check", 20.0)
    assert studio.ask("x").status == 200


def test_a_worker_that_dies_is_replaced(studio: Client) -> None:
    for _ in range(3):
        assert studio.ask("die").status == 500
    assert studio.ask("x").status == 200


def test_a_question_is_given_up_when_nobody_waits_for_the_answer(studio: Client) -> None:
    """Both workers are busy for a minute, unless those who asked have gone."""
    for _ in range(2):
        connection = http.client.HTTPConnection(studio.host, timeout=20)
        connection.request("POST", "/api/check", b'{"text": "sleep"}', {"Content-Type": "application/json"})
        time.sleep(0.1)
        connection.close()
    start = time.monotonic()
    assert studio.ask("x").status == 200
    assert time.monotonic() - start < 4


def test_too_many_questions_at_once_are_refused(studio: Client, tmp_path: Path) -> None:
    """Two workers wait for a file, and two questions for the workers; others are refused, none is lost."""
    seen: set[int] = set()
    while len(seen) < 2:  # until the workers that other tests have ended are replaced
        seen.add(studio.ask("x").json["worker"])
    file = tmp_path / "go on"
    answers: queue.Queue[Answer] = queue.Queue()
    threads = [
        threading.Thread(target=lambda: answers.put(studio.ask(str(file), task="repairs"))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    assert [answers.get(timeout=15).status for _ in range(2)] == [503] * 2
    file.touch()
    for thread in threads:
        thread.join()
    assert [answers.get_nowait().status for _ in range(4)] == [200] * 4
    assert studio.ask("x").status == 200
