"""The program of a worker process: reads questions from standard input, writes answers to standard output."""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, BinaryIO

from millpond.studio.answers import answer_question
from millpond.studio.workers import LENGTH_BYTES


def main() -> None:
    """Answer questions until standard input ends, which it does when the server has gone."""
    # Nothing else may write between the answers: what is printed goes to standard error.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        _write_message(answers, b"")
        for line in sys.stdin.buffer:
            _write_message(answers, json.dumps(_answer(json.loads(line))).encode())


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    try:
        return answer_question(question)
    except Exception as error:  # a defect: the page says so, the terminal has the details
        traceback.print_exc()
        return {"error": {"message": f"Millpond failed on this text ({type(error).__name__}): a defect"}}


def _write_message(out: BinaryIO, message: bytes) -> None:
    out.write(len(message).to_bytes(LENGTH_BYTES, "big") + message)
    out.flush()


if __name__ == "__main__":
    main()
