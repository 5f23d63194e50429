"""Witnesses of whole queries: sums of integers are one entry, however many digits they have."""

from __future__ import annotations

import pytest

from millpond import Verdict, check
from millpond.analysis.decide import decide
from millpond.analysis.witness.find_whole import find_whole_template
from millpond.analysis.witness.templates import find_template
from millpond.analysis.witness.whole_queries import _list_halves, keeps_declarations
from millpond.frontend.parse import parse
from tests.support.oracle import confirm_witness


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


# Without the declared number of shops, each of these is unbounded: every shop has an entry of its own.
_BY_SHOP = [
    "SELECT item, place FROM (SELECT item, ROW_NUMBER() OVER (PARTITION BY shop ORDER BY price) AS place"
    " FROM sales) JOIN wanted ON wanted.article = item WHERE place <= 2",
    "SELECT s.shop, top.item FROM (SELECT DISTINCT shop FROM sales WHERE price > 0) s JOIN LATERAL"
    " (SELECT item FROM sales x WHERE x.shop = s.shop ORDER BY price LIMIT 2) AS top",
    "SELECT b.shop, b.best FROM (SELECT shop, MAX(price) AS best FROM sales GROUP BY shop) b"
    " JOIN sales s ON s.shop = b.shop WHERE s.price = b.best",
]


@pytest.mark.parametrize("text", _BY_SHOP)
def test_a_witness_does_not_have_more_values_than_are_declared(text: str) -> None:
    """A query with finitely many shops is not called unbounded because of their number."""
    declared = (
        "CREATE STREAMING TABLE wanted (article INT); CREATE STREAMING TABLE sales (shop INT, item INT,"
    )
    declared += " price INT CHECK (price BETWEEN 0 AND 9)){};"
    template = find_whole_template(parse(declared.format("") + text)[0])
    assert template is not None
    assert keeps_declarations(template)
    limits = " TBLPROPERTIES ('cardinality.shop' = '500', 'cardinality.item' = '500')"
    limited = parse(declared.format(limits) + text)[0]
    assert find_whole_template(limited) is None
    assert decide(limited).outcome != "unbounded"


def test_a_probe_of_several_rows_is_observed_at_its_end() -> None:
    """On the way to a count of 2, the one of 1 is emitted; the order of 2 adds nothing to that."""
    streams = """
        CREATE STREAMING TABLE clicks (ms INT, user INT, page INT CHECK (page BETWEEN 0 AND 2), at TIMESTAMP);
        CREATE STREAMING TABLE orders (number INT, user INT, shop INT CHECK (shop IN (1, 2)), at TIMESTAMP);
    """
    query = """
        SELECT DISTINCT orders.shop FROM orders JOIN (
          SELECT page, MAX(n) AS most
          FROM (SELECT page, COUNT(*) AS n FROM clicks WHERE ms BETWEEN 0 AND 3 GROUP BY page) AS counted
          WHERE page = 1 GROUP BY page
        ) AS best ON orders.number = best.most
    """
    verdict = check(streams + query)
    assert isinstance(verdict, Verdict)
    witness = verdict.witness(3)
    assert max(map(len, witness["probes"])) > 1 and witness["compare"] == "answer"
    catalog = {
        name: [(column.name, column.type.name) for column in table.columns]
        for name, table in verdict.query.declared_tables.items()
    }
    assert confirm_witness(streams + query, catalog, witness) is None
