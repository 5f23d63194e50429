"""Witnesses of whole queries: sums of integers are one entry, however many digits they have."""

from __future__ import annotations

import pytest

from millpond.analysis.witness.templates import find_template
from millpond.analysis.witness.whole_queries import _list_halves
from millpond.frontend.parse import parse


@pytest.mark.parametrize("n", [9, 16, 40])
def test_halves_differ_and_have_equal_sums_and_squares(n: int) -> None:
    for pair in _list_halves(n):
        one, other = ([k for k in range(n) if subset >> k & 1] for subset in pair)
        assert one != other
        assert len(one) == len(other)
        assert sum(one) == sum(other)
    largest = _list_halves(n)[0]
    squares = [sum(k * k for k in range(n) if subset >> k & 1) for subset in largest]
    assert squares[0] == squares[1]


def test_running_sums_and_short_frames_together_are_no_proof_of_growth() -> None:
    """A variance that is rounded to one digit differs by the order of additions, in some worlds."""
    query = parse("""
        CREATE STREAMING TABLE sensors (id INT, room BOOLEAN, heat INT, ts TIMESTAMP);
        SELECT id, ROUND(VAR_POP(heat) OVER (ORDER BY ts ROWS UNBOUNDED PRECEDING), 1),
          FIRST_VALUE(heat) OVER (PARTITION BY room ORDER BY ts ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)
        FROM sensors WHERE heat > 1
    """)[0]
    assert find_template(query) is None
