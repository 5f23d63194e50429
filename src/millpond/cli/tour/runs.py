"""What the tour runs on Spark: the race, a window query and a join on a budget."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from millpond.analysis.verdict import Verdict
from millpond.cli.tour import race_page, shop_pages
from millpond.cli.tour.claims import Measured
from millpond.cli.tour.script import GOAL, OVERDUE, PAID, SPARK_JOIN, Size, check_query
from millpond.cli.tour.stage import Stage, Tour
from millpond.cli.tour.streams import Shop, make_clicks, make_shop, write_shop
from millpond.spark.options import RunOptions
from millpond.spark.own_sql import find_refusal
from millpond.spark.race import Race, RaceStep, run_race
from millpond.spark.run import run
from millpond.spark.session import open_session
from millpond.spark.stop import run_interruptibly

T = TypeVar("T")


def play_on_spark(tour: Tour, play_first_pages: Callable[[], Verdict]) -> None:
    """Show the first pages while Spark starts, then the race of the repaired query and the day of a shop.

    Temporary files are removed, also after Ctrl-C.
    """
    with tempfile.TemporaryDirectory(prefix="millpond-demo-", ignore_cleanup_errors=True) as folder:
        try:
            run_interruptibly(lambda _: _play(tour, Path(folder), play_first_pages))
        except KeyboardInterrupt:
            tour.stage.reset()
            raise


def _play(tour: Tour, folder: Path, play_first_pages: Callable[[], Verdict]) -> None:
    stage = tour.stage
    with ExitStack() as stack:  # keeps Spark running from one part to the next
        opening = _begin(lambda: stack.enter_context(open_session()))
        repaired = play_first_pages()
        stage.show(race_page.race_introduction())
        with stage.wait("starting Spark"):
            opening.result()
        _race(stage, tour.size, folder, repaired)
        if tour.size.orders:
            shop = make_shop(tour.size.orders, tour.size.unpaid)
            write_shop(shop, tour.folder, tour.size.files)
            _find_overdue(tour, folder, shop)
            _join_on_budget(tour, folder, shop)


def _begin(action: Callable[[], T]) -> Future[T]:
    """Do it in the background."""
    result: Future[T] = Future()

    def attempt() -> None:
        try:
            result.set_result(action())
        except BaseException as error:
            result.set_exception(error)

    Thread(target=attempt, name="millpond-start", daemon=True).start()
    return result


def _race(stage: Stage, size: Size, folder: Path, verdict: Verdict) -> None:
    """Both sides take turns until the race is decided, or has taken long enough."""
    batches = islice(make_clicks(size.ads, size.impressions), size.batches)
    with stage.wait("planning both queries"):
        turns = run_race(verdict, SPARK_JOIN, folder, batches)
        race = next(turns)
    end = float("inf")
    with stage.redraw() as draw:
        draw(race_page.race_plot(_view(race, size), stage.width, stage.ascii_only))
        for race in turns:
            view = _view(race, size)
            draw(race_page.race_plot(view, stage.width, stage.ascii_only))
            if len(race.ours) > len(race.theirs):
                continue
            if not stage.is_live:
                stage.show(race_page.race_line(view))
            if view.ratio >= GOAL or time.monotonic() > end:
                break
            if len(race.theirs) == 1:  # the warm-up
                end = time.monotonic() + size.seconds
        turns.close()
    stage.show(race_page.race_claims(view, race.our_answer, race.their_answer, verdict.state.entries))


def _view(race: Race, size: Size) -> race_page.RaceView:
    rows = size.batches * size.impressions
    return race_page.RaceView(_measure(race.ours), _measure(race.theirs), rows)


def _measure(steps: Sequence[RaceStep]) -> list[Measured]:
    return [Measured(step.rows, step.kept, step.seconds) for step in steps]


def _find_overdue(tour: Tour, folder: Path, shop: Shop) -> None:
    verdict = check_query(OVERDUE)
    tour.stage.show(shop_pages.overdue_introduction(verdict, tour.stage.width))
    refusal = find_refusal(verdict.query, tour.folder)
    output, metrics = folder / "overdue", folder / "overdue.jsonl"
    with tour.stage.wait("running it"):
        ended = run(verdict, tour.folder, RunOptions(str(output), once=True, metrics=str(metrics)))
    kept = max(batch["state_entries"] for batch in _read_rows([metrics]))
    rows = sorted(_read_rows(output.glob("part-*")), key=lambda row: int(row["id"]))
    tour.stage.show(
        shop_pages.overdue_page(shop_pages.OverdueView(ended.input_rows, kept, rows, shop.overdue, refusal))
    )


def _join_on_budget(tour: Tour, folder: Path, shop: Shop) -> None:
    verdict, memory = check_query(PAID), tour.size.memory
    tour.stage.show(shop_pages.budget_introduction(memory))
    with tour.stage.wait("running it"):
        ended = run(verdict, tour.folder, RunOptions(str(folder / "paid"), once=True, memory=memory))
    missed = ended.missed
    view = shop_pages.BudgetView(
        ended.input_rows, memory, ended.output_rows, shop.paid, missed.missed, missed.low, missed.high
    )
    tour.stage.show(shop_pages.budget_page(view))


def _read_rows(files: Iterable[Path]) -> list[dict[str, Any]]:
    """The rows of files with a JSON object in each line."""
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
