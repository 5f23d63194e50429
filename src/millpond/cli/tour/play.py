"""Plays the tour: the verdict, its proof and the repairs while Spark starts, then the runs on Spark."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from millpond.analysis.repair.model import Repair
from millpond.analysis.verdict import Verdict
from millpond.cli.command import find_repairs_of
from millpond.cli.tour import pages
from millpond.cli.tour.proof import try_witness
from millpond.cli.tour.script import CLICKS, OVERDUE, PAID, check_query
from millpond.cli.tour.stage import Tour
from millpond.cli.tour.streams import write_sample
from millpond.errors import MillpondError, describe_os_error
from millpond.report.page import render_page

_PROOF_ROWS = 3
_REPAIRS = 5  # in the report


def play_tour(tour: Tour, on_spark: bool) -> None:
    """Show the whole tour; ``on_spark``: also what runs on Spark."""
    began = time.monotonic()
    verdict = check_query(CLICKS)
    repairs: list[Repair] = []
    _write_files(tour)

    def play_first_pages() -> Verdict:
        repairs[:] = _play_first_pages(tour, verdict)
        assert repairs[0].verdict is not None, "the first repair is not a budget"
        return repairs[0].verdict

    if on_spark:
        from millpond.cli.tour.runs import play_on_spark

        play_on_spark(tour, play_first_pages)
    else:
        play_first_pages()
    number = 3 if not on_spark else 6 if tour.size.orders else 4
    report = _write_report(tour, verdict, repairs)
    tour.stage.show(
        pages.closing_page(number, _find_program(), tour.folder, report, time.monotonic() - began)
    )


def _write_files(tour: Tour) -> None:
    """Write the queries, and the first rows of both streams."""
    texts = {"clicks.sql": CLICKS} | ({"overdue.sql": OVERDUE, "paid.sql": PAID} if tour.size.orders else {})
    try:
        tour.folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (tour.folder / name).write_text(text, encoding="utf-8")
        write_sample(tour.folder, tour.size.ads, tour.size.impressions)
    except OSError as error:
        message = f"cannot write to {tour.folder}: {describe_os_error(error)}"
        raise MillpondError(message, remedy="give another folder with --output") from None


def _play_first_pages(tour: Tour, verdict: Verdict) -> list[Repair]:
    """Show the verdict on the query, its proof and its repairs, and return these."""
    stage = tour.stage
    stage.show(pages.question_page(verdict, stage.width))
    stage.pause(tour.size.reading)
    stage.show(pages.proof_page(try_witness(verdict, _PROOF_ROWS)))
    stage.pause(tour.size.reading)
    repairs = find_repairs_of(verdict, str(tour.folder / "clicks.sql"))
    (tour.folder / "repaired.sql").write_text(repairs[0].sql, encoding="utf-8")
    stage.show(pages.repair_page(CLICKS, repairs, stage.width))
    stage.pause(tour.size.reading)
    return repairs


def _find_program() -> str:
    """How the reader calls Millpond: by its name or, in a clone, by the script that installs it."""
    return "./run" if shutil.which("millpond") is None and Path("run").is_file() else "millpond"


def _write_report(tour: Tour, verdict: Verdict, repairs: Sequence[Repair]) -> Path:
    report = tour.folder / "report.html"
    report.write_text(render_page([verdict], "clicks.sql", repairs=[repairs[:_REPAIRS]]), encoding="utf-8")
    return report
