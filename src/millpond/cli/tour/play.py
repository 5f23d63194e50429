"""Plays the tour: the verdict, its proof and the repairs while Spark starts, then the runs on Spark."""

from __future__ import annotations

import time

from millpond.analysis.repair.find import find_repairs
from millpond.analysis.repair.sample import read_sources
from millpond.analysis.verdict import Verdict
from millpond.cli.tour import pages
from millpond.cli.tour.proof import try_witness
from millpond.cli.tour.script import CLICKS, OVERDUE, PAID, check_query
from millpond.cli.tour.stage import Tour
from millpond.cli.tour.streams import write_sample
from millpond.errors import MillpondError

_PROOF_ROWS = 3


def play_tour(tour: Tour, on_spark: bool) -> None:
    """Show the whole tour; ``on_spark``: also what runs on Spark."""
    began = time.monotonic()
    _write_files(tour)
    if on_spark:
        from millpond.cli.tour.runs import play_on_spark

        play_on_spark(tour, lambda: _play_first_pages(tour))
    else:
        _play_first_pages(tour)
    number = 3 if not on_spark else 6 if tour.size.orders else 4
    tour.stage.show(pages.closing_page(number, tour.folder, None, time.monotonic() - began))


def _write_files(tour: Tour) -> None:
    texts = {"clicks.sql": CLICKS} | ({"overdue.sql": OVERDUE, "paid.sql": PAID} if tour.size.orders else {})
    try:
        tour.folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (tour.folder / name).write_text(text, encoding="utf-8")
        write_sample(tour.folder, tour.size.ads, tour.size.impressions)
    except OSError as error:
        message = f"cannot write to {tour.folder}: {error.strerror}"
        raise MillpondError(message, remedy="give another folder with --output") from None


def _play_first_pages(tour: Tour) -> Verdict:
    """The verdict on the query, its proof and its repairs; return the verdict on the first repair."""
    stage = tour.stage
    verdict = check_query(CLICKS)
    stage.show(pages.question_page(verdict, stage.width))
    stage.pause(tour.size.reading)
    stage.show(pages.proof_page(try_witness(verdict, _PROOF_ROWS)))
    stage.pause(tour.size.reading)
    repairs = find_repairs(verdict, sample=read_sources(verdict.query, tour.folder))
    repaired = repairs[0].verdict
    assert repaired is not None, "the first repair is not a budget"
    (tour.folder / "repaired.sql").write_text(repairs[0].sql, encoding="utf-8")
    stage.show(pages.repair_page(CLICKS, repairs, repaired, stage.width))
    stage.pause(tour.size.reading)
    return repaired
