"""Groups and sets that close: written once, forgotten when the watermark passes, closed at the end."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from millpond.analysis.decide import analyse
from millpond.engines.timed.reorder_buffer import list_late_rows
from millpond.frontend.parse import parse
from millpond.plan.needs import TimedPlan
from tests.support.timed_local import TimedLocal, micros
from tests.support.timed_scenario import at

STREAMS = (
    "CREATE STREAMING TABLE S (A INT, N STRING, I TIMESTAMP) TBLPROPERTIES ('watermark' = '2 seconds');"
    "CREATE STREAMING TABLE T (B INT, M STRING, J TIMESTAMP) TBLPROPERTIES ('watermark' = '2 seconds');"
)
COLUMNS = {"S": ("A", "N", "I"), "T": ("B", "M", "J")}


class Input:
    """A query whose rows are fed in any order; ``feed`` returns what it writes."""

    def __init__(self, query: str, updates: bool = False) -> None:
        [parsed] = parse(STREAMS + query)
        needs, failures = analyse(parsed)
        assert not failures
        self.local = TimedLocal(TimedPlan(parsed, tuple(needs)), updates=updates)
        self.late = 0

    def feed(self, *lines: tuple[str, int, str, int], ended: bool = False) -> Counter[tuple[Any, ...]]:
        """Rows as stream, number, name and second."""
        rows = [(s, dict(zip(COLUMNS[s], (a, n, at(t)), strict=True))) for s, a, n, t in lines]
        before = Counter(self.local.emitted)
        self.late += len(rows) - len(self.local.receive(rows, ended=ended))
        written = {tuple(map(_second, row)): n for row, n in (self.local.emitted - before).items()}
        return Counter(written)

    @property
    def results(self) -> int:
        """The number of results that are kept."""
        tables = [self.local.state.get(need.result) for need in self.local.program.needs]
        return sum(table.num_rows for table in tables if table is not None)

    @property
    def watermark(self) -> float:
        return (self.local.watermark - micros(at(0))) / 1_000_000


def _second(value: Any) -> Any:
    return (micros(value) - micros(at(0))) // 1_000_000 if isinstance(value, datetime) else value


def test_a_group_is_written_once_when_the_watermark_passes_it() -> None:
    run = Input("SELECT I, N, COUNT(*), SUM(A) FROM S GROUP BY I, N")
    assert run.feed(("S", 1, "x", 5), ("S", 2, "y", 4), ("S", 3, "x", 6)) == {}
    assert run.feed(("S", 4, "x", 5), ("S", 0, "x", 7)) == {(4, "y", 1, 2): 1}
    assert run.feed(("S", 9, "x", 8)) == {(5, "x", 2, 5): 1}
    assert run.feed(("S", 1, "x", 4), ended=True) == {(6, "x", 1, 3): 1, (7, "x", 1, 0): 1, (8, "x", 1, 9): 1}
    assert run.late == 1 and run.results == 0


def test_having_is_evaluated_when_the_group_closes() -> None:
    run = Input("SELECT I, COUNT(*) FROM S GROUP BY I HAVING COUNT(*) < 2")
    run.feed(("S", 1, "x", 1), ("S", 1, "x", 2))
    assert run.feed(("S", 1, "x", 2), ("S", 1, "x", 5)) == {(1, 1): 1}
    assert run.feed(ended=True) == {(5, 1): 1}


def test_the_watermark_alone_closes_groups() -> None:
    """No row is released, but groups wait for rows that can no longer come."""
    run = Input(
        "SELECT I, COUNT(*) FROM S, T WHERE J BETWEEN I AND I + INTERVAL 10 SECONDS AND A > 0 GROUP BY I"
    )
    assert run.feed(("S", 1, "x", 1), ("T", 1, "x", 1), ("S", 1, "x", 9), ("T", 1, "x", 9)) == {}
    assert run.results == 1
    assert run.feed(("S", -1, "x", 20), ("T", 1, "x", 20)) == {(1, 2): 1}
    assert run.results == 1, "the group at 9 seconds is open until 19 seconds"


def test_rows_of_a_set_are_written_at_once_and_forgotten_when_they_close() -> None:
    run = Input("SELECT DISTINCT N, I FROM S")
    assert run.feed(("S", 1, "x", 5), ("S", 1, "x", 5), ("S", 1, "y", 3), ("S", 1, "x", 9)) == {
        ("x", 5): 1,
        ("y", 3): 1,
    }
    assert run.results == 0
    assert run.feed(("S", 2, "x", 8), ("S", 2, "x", 9)) == {}
    assert run.feed(ended=True) == {("x", 8): 1, ("x", 9): 1}


def test_a_set_remembers_rows_while_equal_ones_can_come() -> None:
    run = Input("SELECT DISTINCT N, I FROM S, T WHERE J BETWEEN I AND I + INTERVAL 5 SECONDS")
    assert run.feed(("S", 1, "x", 1), ("T", 1, "a", 1), ("S", 1, "x", 5), ("T", 1, "b", 5)) == {("x", 1): 1}
    assert run.feed(("S", 1, "z", 20), ("T", 1, "b", 8)) == {("x", 5): 1}
    assert run.results == 2
    assert run.feed(("T", 1, "b", 20)) == {}
    assert run.results == 0


def test_sliding_windows_close_one_after_the_other() -> None:
    run = Input("SELECT window.start, COUNT(*) FROM S GROUP BY window(I, '10 seconds', '5 seconds')")
    assert run.feed(("S", 1, "x", 7), ("S", 1, "x", 3), ("S", 1, "x", 12)) == {
        (-5, 1): 1,
        (0, 2): 1,
    }
    assert run.feed(("S", 1, "x", 18)) == {(5, 2): 1}
    assert run.feed(ended=True) == {(10, 2): 1, (15, 1): 1} and run.watermark == 25


def test_a_late_row_of_several_windows_is_listed_once() -> None:
    run = Input("SELECT window.start, N, COUNT(*) FROM S GROUP BY window(I, '10 seconds', '5 seconds'), N")
    (each,) = run.local.program.inputs
    rows = run.local.collect(each, [{"A": 1, "N": "x", "I": at(7)}] * 2 + [{"A": 1, "N": "y", "I": at(7)}])
    assert rows.num_rows == 4
    late = [row.values for row in list_late_rows([each], {each.name: rows})]
    assert sorted(str(row["N"]) for row in late) == ["x", "x", "y"] and set(late[0]) == {"N"}


def test_updates_write_every_change() -> None:
    run = Input("SELECT I, COUNT(*) FROM S GROUP BY I", updates=True)
    assert run.local.program.aggregate
    run.feed(("S", 1, "x", 1), ("S", 1, "x", 4))
    run.feed(("S", 1, "x", 9), ("S", 1, "x", 4))
    assert {_second(i): n for i, n in run.local.groups.values()} == {1: 1, 4: 2}
    assert run.results == 0, "closed groups are forgotten"
    run.feed(ended=True)
    assert run.watermark == 9.000001, "no group waits for the end"
    assert {_second(i): n for i, n in run.local.groups.values()} == {1: 1, 4: 2, 9: 1}


def test_the_end_of_the_input_moves_the_watermark_past_the_last_group() -> None:
    run = Input("SELECT I, COUNT(*) FROM S, T WHERE J BETWEEN I AND I + INTERVAL 5 SECONDS GROUP BY I")
    assert run.feed(("S", 1, "x", 1), ("T", 1, "x", 2), ended=True) == {(1, 1): 1}
    assert run.watermark == 6.000001
    assert run.feed(("S", 1, "x", 5), ("S", 1, "x", 7), ("T", 1, "x", 6), ("T", 1, "x", 9)) == {}
    assert run.late == 2
    assert run.feed(ended=True) == {(7, 1): 1}


def test_a_group_waits_for_a_stream_that_ends() -> None:
    noon = "TIMESTAMP '2024-01-01 00:00:10'"
    run = Input(f"SELECT I, COUNT(*) FROM S, T WHERE J < {noon} GROUP BY I")
    assert run.feed(("S", 1, "x", 1), ("T", 1, "x", 1), ("S", 1, "x", 8), ("T", 1, "x", 8)) == {}
    assert run.feed(("S", 1, "x", 20), ("T", 1, "x", 9)) == {}
    assert run.feed(("T", 1, "x", 30)) == {(1, 3): 1, (8, 3): 1}


def test_a_union_closes_together() -> None:
    run = Input("SELECT I, COUNT(*) FROM S GROUP BY I UNION SELECT J, B FROM T")
    assert run.feed(("S", 1, "x", 1), ("T", 1, "x", 1), ("T", 2, "x", 3)) == {}
    assert run.feed(("S", 1, "x", 3), ("S", 1, "x", 9), ("T", 5, "x", 9)) == {
        (1, 1): 1,
        (3, 1): 1,
        (3, 2): 1,
    }
    assert run.feed(ended=True) == {(9, 1): 1, (9, 5): 1} and run.results == 0


def test_closed_groups_beside_rows() -> None:
    run = Input("SELECT I, COUNT(*) FROM S GROUP BY I UNION ALL SELECT J, B FROM T")
    assert not run.local.program.aggregate
    assert run.feed(("S", 1, "x", 1), ("T", 1, "x", 1), ("T", 1, "x", 1), ended=True) == {(1, 1): 3}
