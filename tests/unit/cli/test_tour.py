"""The tour of ``millpond demo``: its proof, its streams, and that its wording follows what was measured."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from millpond.analysis.repair.find import find_repairs
from millpond.analysis.repair.sample import read_sources
from millpond.cli import main as cli
from millpond.cli.tour.claims import Measured, compare_answers, compare_speed, compare_state, format_ratio
from millpond.cli.tour.curves import Curve, PlotRange, draw_curves
from millpond.cli.tour.pages import closing_page, list_next_steps, proof_page, question_page, repair_page
from millpond.cli.tour.proof import ProbeResult, Proof, try_witness
from millpond.cli.tour.race_page import RaceView, race_claims, race_introduction, race_line, race_plot
from millpond.cli.tour.script import CLICKS, FULL, GOAL, OVERDUE, PAID, QUICK, Size, check_query
from millpond.cli.tour.shop_pages import (
    BudgetView,
    OverdueView,
    budget_introduction,
    budget_page,
    overdue_introduction,
    overdue_page,
)
from millpond.cli.tour.stage import Stage
from millpond.cli.tour.streams import make_clicks, make_shop, write_sample, write_shop

Captured = pytest.CaptureFixture[str]
WIDTHS = (60, 80, 100)
SIZES = pytest.mark.parametrize("size", [FULL, QUICK], ids=["full", "quick"])


def render(page: RenderableType, width: int = 80) -> list[str]:
    """The lines of a page on a terminal of that width, without colours."""
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(page)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def read(page: RenderableType) -> str:
    """The text of a page on one line."""
    return " ".join(" ".join(render(page)).split())


# --- the proof -------------------------------------------------------------------------------------


def test_three_rows_prove_that_the_query_is_unbounded() -> None:
    verdict = check_query(CLICKS)
    assert verdict.outcome == "unbounded"
    proof = try_witness(verdict, 3)
    assert len(set(proof.rows)) == 3 and proof.evaluated == 3 * 2**3
    assert proof.holds
    assert [(set(probe.found), set(probe.missing)) for probe in proof.probes] == [({1}, {0})] * 3


def test_a_proof_counts_all_rows_that_a_probe_adds() -> None:
    """Here, the rows before and after the tested one match the same probe."""
    text = """
    CREATE STREAMING TABLE bids (price INT);
    CREATE STREAMING TABLE asks (price INT);
    SELECT 1 FROM bids b, asks a WHERE b.price > a.price;
    """
    proof = try_witness(check_query(text), 3)
    assert any(len(probe.found) > 1 for probe in proof.probes)
    counts = [count for probe in proof.probes for count in probe.found | probe.missing]
    assert 0 <= min(counts) < max(counts) <= 4


def test_a_proof_counts_only_rows_that_a_probe_adds() -> None:
    """Here, the rows themselves are in the answer: a probe adds one only if its row has not arrived."""
    text = "CREATE STREAMING TABLE clicks (ad INT); SELECT DISTINCT ad FROM clicks;"
    proof = try_witness(check_query(text), 3)
    assert [(set(probe.found), set(probe.missing)) for probe in proof.probes] == [({0}, {1})] * 3


def test_a_page_says_if_the_proof_fails() -> None:
    same = ProbeResult(("clicks (ad 1)",), frozenset({1}), frozenset({0, 1}))
    text = read(proof_page(Proof(("impressions (ad 1)",), (same,), 2)))
    assert "this is no proof" in text and "nothing or 1 row" in text
    assert "this is no proof" not in read(proof_page(try_witness(check_query(CLICKS), 3)))


# --- the repair ------------------------------------------------------------------------------------


@SIZES
def test_the_first_repair_admits_every_row_of_the_race(size: Size, tmp_path: Path) -> None:
    write_sample(tmp_path, size.ads, size.impressions)
    verdict = check_query(CLICKS)
    first = find_repairs(verdict, 1, read_sources(verdict.query, tmp_path))[0]
    assert first.verdict is not None and first.verdict.outcome == "bounded"
    assert f"CHECK (ad BETWEEN 1 AND {size.ads})" in first.sql
    # Spark keeps every row: the batches must be enough for a thousand times the bound on both streams.
    batches = list(islice(make_clicks(size.ads, size.impressions), size.batches))
    ads = [batch["clicks"]["ad"].to_pylist() for batch in batches]
    entries = size.ads + len({ad for each in ads for ad in each}) + len(batches)
    assert sum(table.num_rows for batch in batches for table in batch.values()) > GOAL * entries


# --- the streams -----------------------------------------------------------------------------------


def test_the_streams_are_the_same_in_every_run(tmp_path: Path) -> None:
    first, second = (list(islice(make_clicks(9, 8_000), 3)) for _ in range(2))
    assert first == second
    assert [batch["impressions"].num_rows for batch in first] == [1_000, 8_000, 8_000]
    write_sample(tmp_path, 9, 8_000)
    assert pq.read_table(tmp_path / "impressions") == first[0]["impressions"]


@pytest.mark.parametrize(("orders", "unpaid"), [(FULL.orders, FULL.unpaid), (300, 9)])
def test_overdue_orders_have_no_payment_within_an_hour(orders: int, unpaid: int) -> None:
    shop = make_shop(orders, unpaid)
    paid = {row["order_id"]: datetime.fromisoformat(row["at"]) for row in shop.payments}
    late = {
        row["id"]
        for row in shop.orders
        if row["id"] not in paid or paid[row["id"]] > datetime.fromisoformat(row["at"]) + timedelta(hours=1)
    }
    assert late == shop.overdue and len(late) == unpaid
    assert shop.paid == len(paid) and shop.rows == orders + len(paid)


def test_the_files_of_a_shop_cover_the_same_time(tmp_path: Path) -> None:
    shop = make_shop(500, 5)
    write_shop(shop, tmp_path, 4)
    ends = {}
    for name, rows in (("orders", shop.orders), ("payments", shop.payments)):
        files = [path.read_text().splitlines() for path in sorted((tmp_path / name).iterdir())]
        assert len(files) == 4 and [json.loads(line) for file in files for line in file] == rows
        ends[name] = [[json.loads(line)["at"] for line in (file[0], file[-1])] for file in files]
    for before, after in zip(ends["orders"], ends["payments"][1:], strict=False):
        assert before[1] < after[0]


# --- the claims ------------------------------------------------------------------------------------

KEPT = st.integers(1, 10**7)
SECONDS = st.floats(0.01, 1000)


@given(KEPT, KEPT)
def test_the_claim_about_state_follows_the_numbers(ours: int, theirs: int) -> None:
    text = compare_state(Measured(0, ours, 1.0), Measured(0, theirs, 1.0))
    if ours == theirs:
        assert text == "both keep the same"
        return
    more, ratio, less = re.fullmatch(r"(\w+) keeps ([\d,.]+) times as much as (\w+)", text).groups()  # type: ignore[union-attr]
    assert (more, less) == (("Spark", "Millpond") if theirs > ours else ("Millpond", "Spark"))
    assert 1 <= float(ratio.replace(",", "")) <= max(ours, theirs) / min(ours, theirs)


@given(SECONDS, SECONDS)
def test_the_claim_about_speed_follows_the_numbers(ours: float, theirs: float) -> None:
    text = compare_speed(Measured(0, 1, ours), Measured(0, 1, theirs))
    if text == "both took about the same time":
        assert max(ours, theirs) < 1.06 * min(ours, theirs)
    else:
        faster, ratio = re.match(r"(\w+) was ([\d,.]+) times as fast", text).groups()  # type: ignore[union-attr]
        assert faster == ("Millpond" if ours < theirs else "Spark")
        assert float(ratio.replace(",", "")) <= max(ours, theirs) / min(ours, theirs)


def test_claims_about_nothing() -> None:
    nothing, some = Measured(10, 0, 0.0), Measured(10, 5, 0.0)
    assert compare_state(nothing, some) == "Millpond keeps nothing"
    assert compare_speed(nothing, some) == "both took about the same time"
    assert compare_speed(nothing, replace(some, seconds=1.0)) == "Millpond was faster"
    assert format_ratio(999.99) == "999"


def test_different_answers_are_not_called_the_same() -> None:
    assert compare_answers([(1,), (2,)], [(2,)], "ad") == "The answers differ: Millpond found 2 ads, Spark 1."
    assert compare_answers([(1,)], [(2,)], "ad").startswith("The answers differ")
    assert compare_answers([(2,)], [(2,)], "ad") == "Both found the same 1 ad."


# --- the pages of the runs -------------------------------------------------------------------------


def make_view(turns: int, ratio: int, speed: float = 3.0) -> RaceView:
    """A race in which Spark keeps each row, and in the end ``ratio`` times as much as Millpond."""
    rows = [80_000 * (turn + 1) for turn in range(turns)]
    ours = [Measured(row, rows[-1] // ratio, 0.5) for row in rows]
    return RaceView(ours, [Measured(row, row, 0.5 * speed) for row in rows], 12 * 80_000)


def test_the_race_page_states_what_was_measured() -> None:
    text = read(race_claims(make_view(11, 1_100), [(7,)], [(7,)], 1_200))
    assert "Spark's join keeps 880,000 rows and Millpond 800 entries (proven: at most 1,200)" in text
    assert "Spark keeps 1,100 times as much as Millpond." in text and "no time" not in text
    assert "Millpond took 5.0 s for them and Spark 15.0 s: Millpond was 3.0 times as fast." in text


def test_the_race_page_is_honest_about_another_result() -> None:
    text = read(race_claims(make_view(3, 200, speed=0.5), [(7,)], [(8,)], 1_200))
    assert "200 times as much" in text and "had no time to let it grow to 1,000 times" in text
    assert "Spark was 2.0 times as fast on this machine" in text and "The answers differ" in text


def test_the_shop_pages_state_what_was_measured() -> None:
    rows = [{"id": 7, "amount": 30, "at": "2026-03-02T10:00:00.000Z"}]
    view = OverdueView(4_000, 120, rows, frozenset({7}), "Not allowed.")
    text = read(overdue_page(view))
    assert "7 30 2026-03-02 10:00:00" in text and "exactly the 1 order without" in text
    assert "Of 4,000 rows, at most 120" in text and "“Not allowed.”" in text
    text = read(overdue_page(replace(view, expected=frozenset({7, 8}), refusal=None)))
    assert "This is wrong: 2 orders" in text and "refuses" not in text
    text = read(budget_page(BudgetView(40_000, 100, 19_660, 19_996, 375, 272, 478)))
    assert "98.3 % of the results: 19,660 of 19,996" in text
    assert "missed 375 (95 % interval: 272 to 478). The truth is 336." in text


# --- layout ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_the_terminal(width: int, tmp_path: Path) -> None:
    verdict = check_query(CLICKS)
    repairs = find_repairs(verdict)
    row = {"id": 19_999, "amount": 199, "at": "2026-03-02T10:00:00.000Z"}
    pages: list[RenderableType] = [
        question_page(verdict, width),
        proof_page(try_witness(verdict, 3)),
        repair_page(CLICKS, repairs, width),
        race_introduction(),
        *(race_plot(make_view(turns, 1_100), width) for turns in (0, 1, 12)),
        race_line(make_view(12, 1_100)),
        race_claims(make_view(12, 1_100), [], [], 1_200),
        overdue_introduction(check_query(OVERDUE), width),
        overdue_page(OverdueView(40_000, 1_600, [row], frozenset({19_999}), "Invalid subquery: no.")),
        budget_introduction(100),
        budget_page(BudgetView(40_000, 100, 19_660, 19_996, 375, 272, 478)),
        closing_page(6, "millpond", Path("millpond-demo"), tmp_path / "report.html", 80.0),
    ]
    for page in pages:
        lines = render(page, width)
        assert max(map(len, lines)) <= width, lines
        assert "…" not in "".join(lines).replace("warm up …", ""), lines


def test_curves_rise_and_carry_their_last_values() -> None:
    frame = PlotRange(1_000, 10, 1_000)
    rising = Curve("Spark", [(100 * n, 100 * n) for n in range(1, 11)], "red", "*")
    level = Curve("Millpond", [(100 * n, 20) for n in range(1, 11)], "green", "o")
    lines = draw_curves([rising, level], frame, 60, 9, ascii_only=True).plain.splitlines()
    assert all(line.isascii() for line in lines) and len(lines) == 10
    tops = [min(row for row, line in enumerate(lines[:9]) if line[7 + at] == "*") for at in range(30)]
    assert tops == sorted(tops, reverse=True) and tops[0] > tops[-1]
    assert {row for row, line in enumerate(lines) if "o" in line[7:37]} == {row_of("Millpond 20", lines)}
    assert row_of("Spark 1,000", lines) == 0
    assert [line[:5].strip() for line in lines if line[:5].strip()] == ["1,000", "100", "10"]
    drawn = draw_curves([rising, level], frame, 60, 9)
    assert {str(span.style) for span in drawn.spans} >= {"red", "green"}


def row_of(text: str, lines: list[str]) -> int:
    return next(row for row, line in enumerate(lines) if text in line)


def test_plain_output_shows_the_last_drawing_only(capsys: Captured) -> None:
    stage = Stage(Console(width=80))
    with stage.wait("starting"), stage.redraw() as draw:
        draw("first")
        draw("second")
    assert not stage.is_live and capsys.readouterr().out == "starting …\nsecond\n"


def test_a_terminal_shows_each_drawing_and_gets_its_cursor_back() -> None:
    file = io.StringIO()
    stage = Stage(Console(file=file, force_terminal=True, width=200, _environ={"TERM": "xterm"}))
    assert stage.is_live and stage.width == 100
    with stage.redraw() as draw:
        draw("first")
        draw("second")
    text = file.getvalue()
    assert text.index("first") < text.index("second") and text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


# --- the command without Spark ---------------------------------------------------------------------


def test_demo_without_spark_shows_the_proof_and_leaves_the_queries(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["demo", "--no-spark", "--output", str(tmp_path / "demo")]) == 0
    out, err = capsys.readouterr()
    assert not err and "\x1b" not in out
    assert "unbounded: memory must grow" in out and "All 24 cases" in out and "bounded: at most" in out
    assert (tmp_path / "demo" / "clicks.sql").read_text() == CLICKS
    assert check_query((tmp_path / "demo" / "repaired.sql").read_text()).outcome == "bounded"
    report = re.sub(r"<[^>]*>", "", (tmp_path / "demo" / "report.html").read_text())
    assert f"CHECK (ad BETWEEN 1 AND {FULL.ads})" in report
    assert str(tmp_path / "demo" / "report.html") in "".join(out.split())
    for name, text in (("overdue.sql", OVERDUE), ("paid.sql", PAID)):
        assert (tmp_path / "demo" / name).read_text() == text


def test_the_next_steps_are_right_calls() -> None:
    for call, _ in list_next_steps("millpond", Path("millpond-demo")):
        cli.make_parser().parse_args(call.split()[1:])


def test_a_folder_that_cannot_be_written_is_reported(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert cli.main(["demo", "--no-spark", "--output", str(tmp_path / "file")]) == 2
    out, err = capsys.readouterr()
    assert not out and "give another folder with --output" in err and err.count("\n") == 1
