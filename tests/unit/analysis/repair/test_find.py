"""Repairs of typical queries: which come first, what they change, and what they do to the answer."""

from __future__ import annotations

import pytest

import millpond
from millpond.analysis.decide import decide as decide_query
from millpond.analysis.repair.changes import apply_edits
from millpond.analysis.repair.find import find_repairs
from millpond.analysis.repair.model import Meaning, Repair, RepairKind
from millpond.analysis.verdict import BOUNDED, Verdict
from millpond.errors import MillpondError, UsageError
from millpond.frontend.parse import parse, parse_query, read_declarations
from millpond.query.model import Table
from tests.support.parts import list_lesser

SHOP = """\
CREATE STREAMING TABLE orders (id BIGINT, customer STRING, total INT, ordered_at TIMESTAMP);
CREATE STREAMING TABLE payments (order_id BIGINT, amount INT, paid_at TIMESTAMP);
CREATE STREAMING TABLE clicks (page STRING CHECK (page IN ('home', 'cart')), visitor STRING, price INT);
CREATE STREAMING TABLE offers (item TINYINT, price INT);
CREATE STREAMING TABLE bids (item BIGINT, price INT, made_at TIMESTAMP);
CREATE STREAMING TABLE visits (visitor STRING, came_at TIMESTAMP, left_at TIMESTAMP)
  TBLPROPERTIES ('time' = 'came_at');
"""


def repair(query: str, catalog: str = SHOP) -> list[Repair]:
    return check(query, catalog).repairs()


def check(query: str, catalog: str = SHOP) -> Verdict:
    verdict = millpond.check(catalog + query)
    assert isinstance(verdict, Verdict)
    return verdict


def decide(text: str) -> str:
    """The outcome of a text; "unreadable" if it has none."""
    try:
        return decide_query(parse(text)[0], prove=False).outcome
    except MillpondError:
        return "unreadable"


JOIN = "SELECT o.id, o.customer, p.amount FROM orders o JOIN payments p ON p.order_id = o.id"
GROUPS = "SELECT customer, COUNT(*) FROM orders GROUP BY customer"
FIRST = {
    JOIN: (
        RepairKind.WINDOW,
        Meaning.FEWER,
        "p.order_id = o.id AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL 1 HOUR",
    ),
    "SELECT o.id, p.amount FROM orders o, payments p WHERE p.order_id = o.id AND p.paid_at >= o.ordered_at": (
        RepairKind.WINDOW,
        Meaning.FEWER,
        "p.paid_at >= o.ordered_at AND p.paid_at <= o.ordered_at + INTERVAL 1 HOUR",
    ),
    "SELECT o.id FROM orders o, payments p WHERE p.order_id = o.id AND (o.total > 5 OR amount > 5)": (
        RepairKind.WINDOW,
        Meaning.FEWER,
        "AND (o.total > 5 OR amount > 5) AND p.paid_at BETWEEN o.ordered_at AND",
    ),
    "SELECT o.id FROM orders o, payments p WHERE p.order_id = o.id AND o.total > 5 OR o.id = p.order_id": (
        RepairKind.WINDOW,
        Meaning.FEWER,
        "WHERE (p.order_id = o.id AND o.total > 5 OR o.id = p.order_id) AND p.paid_at BETWEEN",
    ),
    GROUPS: (
        RepairKind.CARDINALITY,
        Meaning.SAME,
        "ordered_at TIMESTAMP) TBLPROPERTIES ('cardinality.customer' = '1000000');",
    ),
    "SELECT visitor, COUNT(*) FROM visits GROUP BY visitor": (
        RepairKind.CARDINALITY,
        Meaning.SAME,
        "('time' = 'came_at', 'cardinality.visitor' = '1000000')",
    ),
    "SELECT COUNT(DISTINCT customer) FROM orders": (
        RepairKind.APPROXIMATE,
        Meaning.APPROXIMATE,
        "SELECT approx_count_distinct(customer) FROM orders",
    ),
    "SELECT DISTINCT customer FROM orders": (
        RepairKind.WINDOW,
        Meaning.CHANGED,
        "SELECT DISTINCT customer, window(orders.ordered_at, '1 hour') FROM orders",
    ),
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY ordered_at) AS n "
    "FROM orders) WHERE n = 1": (
        RepairKind.CARDINALITY,
        Meaning.SAME,
        "ordered_at TIMESTAMP) TBLPROPERTIES ('cardinality.customer' = '1000000');",
    ),
    "SELECT c.customer, top.id FROM (SELECT DISTINCT customer FROM orders) c JOIN LATERAL "
    "(SELECT o.id FROM orders o WHERE o.customer = c.customer ORDER BY o.total DESC LIMIT 3) AS top": (
        RepairKind.CARDINALITY,
        Meaning.SAME,
        "ordered_at TIMESTAMP) TBLPROPERTIES ('cardinality.customer' = '1000000');",
    ),
    "SELECT o.id FROM orders o LEFT JOIN payments p ON p.order_id = o.id": (
        RepairKind.WINDOW,
        Meaning.CHANGED,
        "ON p.order_id = o.id AND p.paid_at ",
    ),
    "SELECT o.id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id)": (
        RepairKind.WINDOW,
        Meaning.CHANGED,
        "WHERE p.order_id = o.id AND p.paid_at ",
    ),
}


@pytest.mark.parametrize("query", FIRST)
def test_the_first_repair(query: str) -> None:
    kind, meaning, text = FIRST[query]
    first = repair(query + ";")[0]
    assert (first.kind, first.meaning) == (kind, meaning)
    assert text in first.sql
    assert first.verdict is not None and first.verdict.outcome == BOUNDED


# A query and, for kinds of repairs that it has, a piece of the changed text.
OFFERED = {
    "SELECT o.item FROM clicks c, offers o WHERE o.price < c.price": {
        RepairKind.DISTINCT: "SELECT DISTINCT o.item FROM",
        RepairKind.CHECK: "price INT CHECK (price BETWEEN 0 /* least_price */ AND 999 /* greatest_price */))",
        RepairKind.BOUND: "o.price < c.price AND ",
        RepairKind.RELATION: "CREATE TABLE ",
    },
    "SELECT o.id FROM orders o JOIN bids b ON b.made_at <= o.ordered_at AND b.price < o.total": {
        RepairKind.EXISTS: "FROM orders o WHERE EXISTS (SELECT 1 FROM bids b WHERE b.made_at <= o.ordered_at",
    },
    "SELECT b.price, COUNT(*) FROM bids b GROUP BY b.price": {
        RepairKind.DROP_COLUMN: "SELECT COUNT(*) FROM bids b;",
        RepairKind.WINDOW: "GROUP BY b.price, window(b.made_at, '1 hour')",
    },
    "SELECT visitor, COUNT(*) FROM clicks GROUP BY visitor": {
        RepairKind.WATERMARK: "price INT, event_time TIMESTAMP)",
        RepairKind.CHECK: "visitor STRING CHECK (visitor IN ('visitor_1', 'visitor_2'))",
    },
    "SELECT v.visitor, o.id FROM visits v, orders o WHERE o.customer = v.visitor "
    "AND o.ordered_at >= v.came_at AND o.ordered_at <= v.left_at": {
        RepairKind.WINDOW: "o.ordered_at <= v.came_at + INTERVAL 1 HOUR",
    },
    JOIN: {RepairKind.RELATION: "CREATE TABLE orders (", RepairKind.BUDGET: "JOIN payments p ON"},
}


@pytest.mark.parametrize("query", OFFERED)
def test_repairs_of_other_kinds(query: str) -> None:
    found = repair(query + ";")
    for kind, text in OFFERED[query].items():
        assert any(each.kind is kind and text in each.sql for each in found), (kind, [r.title for r in found])


@pytest.mark.parametrize("query", [*FIRST, *OFFERED])
def test_every_repair_is_bounded_and_minimal(query: str) -> None:
    """Without some of its parts the query is not bounded, or cannot even be read."""
    text = f"{SHOP}{query};"
    for each in repair(query + ";"):
        assert each.sql == apply_edits(text, each.edits)
        if each.kind is RepairKind.BUDGET:
            assert each.sql == text and each.verdict is None
            continue
        assert decide(each.sql) == BOUNDED
        for lesser, left_out in list_lesser(text, each.edits):
            assert decide(lesser) != BOUNDED, left_out


def test_only_repairs_with_the_same_answer_have_an_assumption() -> None:
    found = repair(GROUPS)
    assert {each.assumption is not None for each in found if each.meaning is Meaning.SAME} == {True}
    assert {each.assumption is not None for each in found if each.meaning is not Meaning.SAME} == {False}
    assert found[0].assumption == "there are at most 1,000,000 different values of orders.customer"


def test_several_columns_of_one_kind_share_a_title() -> None:
    found = repair("SELECT customer, total, COUNT(*) FROM orders GROUP BY customer, total")
    (numbers,) = (each for each in found if each.kind is RepairKind.CARDINALITY)
    assert (
        numbers.title
        == "Declare the number of values of orders.customer and orders.total (1,000 is a placeholder)"
    )
    assert (
        numbers.assumption
        == "there are at most 1,000 different values of orders.customer and of orders.total"
    )
    (checks,) = (each for each in found if each.kind is RepairKind.CHECK)
    conditions = "customer IN ('customer_1', 'customer_2') and total BETWEEN 0 AND 999"
    assert checks.assumption == f"every row of orders has {conditions}, or NULL"


def test_a_placeholder_of_several_changes_is_explained_once() -> None:
    ranked = (
        "SELECT v.*, ROW_NUMBER() OVER (PARTITION BY v.visitor ORDER BY o.total) AS n FROM visits v, orders o"
    )
    ranked += " WHERE o.customer = v.visitor AND o.ordered_at BETWEEN v.came_at AND v.left_at"
    first = repair(f"SELECT visitor FROM ({ranked}) WHERE n = 1")[0]
    assert first.title.startswith("End the window a fixed time after v.came_at, not at left_at; start anew")
    assert first.title.count("(1 hour is a placeholder)") == 1


def test_placeholders_of_many_columns_are_small() -> None:
    """The state has an entry for each combination."""
    rows = "SELECT customer, total, COUNT(*) AS n FROM orders GROUP BY customer, total"
    found = repair(
        f"SELECT * FROM (SELECT t.*, RANK() OVER (ORDER BY n) AS place FROM ({rows}) t) WHERE place < 4"
    )
    (numbers,) = (each for each in found if each.kind is RepairKind.CARDINALITY)
    assert "'cardinality.customer' = '1000', 'cardinality.total' = '1000'" in numbers.sql
    assert numbers.verdict is not None and (numbers.verdict.state.entries or 0) < 3_000_000


def test_constants_lie_beyond_those_of_the_query() -> None:
    """A bound that contradicts the query would make it empty, and so bounded."""
    found = repair("SELECT total, COUNT(*) FROM orders WHERE total > 5000 GROUP BY total")
    (bound,) = (each for each in found if each.kind is RepairKind.BOUND)
    assert "orders.total <= 9999 /* greatest_total */" in bound.sql


def test_a_bounded_query_needs_no_repair() -> None:
    assert repair("SELECT id FROM orders WHERE total > 10") == []


def test_the_number_of_repairs_can_be_limited() -> None:
    assert len(check(JOIN).repairs(limit=2)) == 2
    with pytest.raises(UsageError, match="limit must be a whole number"):
        check(JOIN).repairs(limit="2")  # type: ignore[arg-type]


def test_a_query_of_several_is_changed_in_its_place() -> None:
    verdicts = millpond.check(f"{SHOP}SELECT id FROM orders; {GROUPS}; SELECT total FROM orders;")
    assert isinstance(verdicts, list)
    bound = next(each for each in verdicts[1].repairs() if each.kind is RepairKind.BOUND)
    assert "FROM orders WHERE orders.customer IN ('customer_1', 'customer_2') GROUP BY customer;" in bound.sql
    assert bound.sql.endswith("SELECT total FROM orders;")


def test_an_undetermined_query_is_repaired_if_a_change_makes_it_bounded() -> None:
    query = "SELECT DISTINCT 1 FROM bids x, bids y, bids z WHERE x.price < y.price AND y.price < z.price"
    catalog = "CREATE STREAMING TABLE bids (price INT);"
    assert check(query, catalog).outcome == "undetermined"
    assert decide(repair(query, catalog)[0].sql) == BOUNDED


def test_a_view_with_two_timestamps_gets_a_watermark() -> None:
    """Declarations elsewhere, as views of a session, are not changed, except that a timestamp counts."""
    names = read_declarations(SHOP)
    tables = {name: table for name, table in names.items() if isinstance(table, Table)}
    visits = tables["visits"]
    tables["visits"] = Table("visits", visits.columns, True)
    query = parse_query("SELECT visitor, COUNT(*) FROM visits GROUP BY visitor", tables)
    found = find_repairs(decide_query(query))
    kinds = (RepairKind.WATERMARK, RepairKind.BOUND, RepairKind.DROP_COLUMN, RepairKind.BUDGET)
    assert {each.kind for each in found} == set(kinds)
    (watermark,) = (each for each in found if each.kind is RepairKind.WATERMARK)
    assert watermark.title.startswith("Give visits a watermark on came_at and answer for each hour")
    assert watermark.sql == query.text + ", window(visits.came_at, '1 hour')"


def test_the_json_form() -> None:
    value = repair(GROUPS)[0].to_json()
    assert value.keys() == {
        *("kind", "title", "meaning", "assumption", "sql", "edits", "outcome", "state", "memory", "share")
    }
    assert (value["kind"], value["meaning"], value["outcome"]) == ("cardinality", "same answer", "bounded")
    assert value["state"]["entries"] == 1_000_001
    start = (SHOP + GROUPS).index(";")
    assert value["edits"] == [
        {"start": start, "end": start, "text": " TBLPROPERTIES ('cardinality.customer' = '1000000')"}
    ]
