"""PySpark logs nothing while a run has a session, also if there are two runs."""

from __future__ import annotations

import logging

from millpond.spark.session import _mute_logs

LOGGER = logging.getLogger("py4j.clientserver")


def passes(path: str) -> bool:
    record = logging.LogRecord(LOGGER.name, logging.ERROR, path, 1, "failed", None, None)
    return bool(LOGGER.filter(record))


def from_spark() -> bool:
    return passes("/lib/py4j/clientserver.py")


def test_logs_stay_muted_until_the_last_use_ends() -> None:
    before = list(LOGGER.filters)
    assert from_spark()
    with _mute_logs():
        with _mute_logs():
            assert not from_spark()
        assert not from_spark()
        assert passes("/home/me/job.py")
    assert from_spark()
    assert LOGGER.filters == before


def test_uses_may_overlap() -> None:
    first, second = _mute_logs(), _mute_logs()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not from_spark()
    second.__exit__(None, None, None)
    assert from_spark()
