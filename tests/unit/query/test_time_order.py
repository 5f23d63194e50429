"""What conditions on timestamps say of the order in which rows arrive."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from millpond.frontend.parse import parse
from millpond.query.expressions import Ref
from millpond.query.parts import Part, split_into_parts
from millpond.query.time_order import TimeGroup, TimeOrder, find_time_column, find_time_columns, is_timed

STREAMS = (
    "CREATE STREAMING TABLE S (A INT, I TIMESTAMP); CREATE STREAMING TABLE T (B INT, J TIMESTAMP);"
    "CREATE STREAMING TABLE U (C INT, K TIMESTAMP); CREATE STREAMING TABLE V (E INT, L TIMESTAMP);"
    "CREATE STREAMING TABLE P (G INT); CREATE TABLE R (X INT, D TIMESTAMP);"
)
NOON = "TIMESTAMP '2024-03-01 12:00:00'"
EVENING = "TIMESTAMP '2024-03-01 18:00:00'"


def part_of(sources: str, where: str) -> Part:
    [query] = parse(f"{STREAMS} SELECT 1 FROM {sources} WHERE {where}")
    [part] = split_into_parts(query.selects[0], disjoint=False)
    return part


def order_of(sources: str, where: str) -> TimeOrder:
    return TimeOrder(part_of(sources, where))


def groups(text: str) -> tuple[TimeGroup, ...]:
    """``S+T U``: S and T come together, U comes by itself."""
    return tuple(tuple(group.split("+")) for group in text.split())


def written(group: TimeGroup | None) -> str:
    return "" if group is None else "+".join(group)


@dataclass(frozen=True)
class Example:
    title: str
    sources: str
    where: str
    groups: str
    before: str = ""  # "S<T U<=V": all that is known
    apart: str = ""  # groups that never come together, beyond those that are before each other
    ending: str = ""
    last: str = ""
    waiting: str = ""  # the sets that can wait, "S ST" being S alone, and S and T
    timed: bool = True


EXAMPLES = [
    Example("nothing is said", "S, T", "A = B", "S T", waiting="S T ST", timed=False),
    Example("one before the other", "S, T", "I < J", "S T", "S<T", last="T", waiting="S ST"),
    Example("the other way round", "S, T", "I > J", "S T", "T<S", last="S", waiting="T ST"),
    Example("not after", "S, T", "I <= J", "S T", "S<=T", last="T", waiting="S ST"),
    Example("equal", "S, T", "I = J", "S+T", last="S+T", waiting="ST"),
    Example("equal by two inequalities", "S, T", "I <= J AND I >= J", "S+T", last="S+T", waiting="ST"),
    Example(
        "equal in a ring", "S, T, U", "I <= J AND J <= K AND K <= I", "S+T+U", last="S+T+U", waiting="STU"
    ),
    Example("different", "S, T", "I <> J", "S T", apart="S|T", waiting="S T ST"),
    Example(
        "not after and different is before",
        "S, T",
        "I <= J AND I <> J",
        "S T",
        "S<T",
        last="T",
        waiting="S ST",
    ),
    Example(
        "a chain is transitive",
        "S, T, U",
        "K < J AND J <= I",
        "S T U",
        "U<T T<=S U<S",
        last="S",
        waiting="U TU STU",
    ),
    Example("two successors", "S, T, U", "K < I AND K < J", "S T U", "U<S U<T", waiting="U SU TU STU"),
    Example(
        "two predecessors", "S, T, U", "I > J AND I > K", "S T U", "T<S U<S", last="S", waiting="T U TU STU"
    ),
    Example(
        "a group is before a stream",
        "S, T, U",
        "I = J AND J < K",
        "S+T U",
        "S+T<U",
        last="U",
        waiting="ST STU",
    ),
    Example(
        "a group differs from a stream",
        "S, T, U",
        "I = J AND J <> K",
        "S+T U",
        apart="S+T|U",
        waiting="ST U STU",
    ),
    Example("a stream that ends", "S, T", f"I < {NOON}", "S T", ending="S", last="T", waiting="S T ST"),
    Example("a stream that begins late", "S, T", f"I > {NOON}", "S T", waiting="S T ST", timed=False),
    Example("a moment", "S, T", f"I = {NOON}", "S T", ending="S", last="T", waiting="S T ST"),
    Example(
        "an end that is passed on",
        "S, T",
        f"I < J AND J < {NOON}",
        "S T",
        "S<T",
        ending="S T",
        waiting="S ST",
    ),
    Example(
        "constants that order two streams",
        "S, T",
        f"I < {NOON} AND J > {EVENING}",
        "S T",
        "S<T",
        ending="S",
        last="T",
        waiting="S ST",
    ),
    Example(
        "constants that overlap",
        "S, T",
        f"I < {EVENING} AND J > {NOON}",
        "S T",
        ending="S",
        last="T",
        waiting="S T ST",
    ),
    Example("an excluded moment says nothing", "S, T", f"I <> {NOON}", "S T", waiting="S T ST", timed=False),
    Example("a stream with itself", "S x, S y", "x.I < y.I", "x y", "x<y", last="y", waiting="x xy"),
    Example(
        "a relation is there from the beginning",
        "S, R",
        "A = X",
        "R S",
        "R<S",
        ending="R",
        last="S",
        waiting="R RS",
    ),
    Example(
        "relations are one group",
        "S, R q, R r",
        "A = q.X AND q.X = r.X",
        "q+r S",
        "q+r<S",
        ending="q+r",
        last="S",
        waiting="qr qrS",
    ),
    Example(
        "relations beside two streams",
        "S, T, R",
        "A = X AND I < J",
        "R S T",
        "R<S R<T S<T",
        ending="R",
        last="T",
        waiting="R RS RST",
    ),
    Example("a stream without a time", "S, P", "A = G", "S P", waiting="S P SP", timed=False),
    Example(
        "a stream without a time beside ordered ones",
        "S, T, P",
        "I < J AND A = G",
        "S T P",
        "S<T",
        waiting="S P ST SP STP",
    ),
]


every = pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.title)


@every
def test_streams_with_equal_timestamps_form_a_group(example: Example) -> None:
    order = order_of(example.sources, example.where)
    assert order.groups == groups(example.groups)
    assert all(alias in order.groups[number] for alias, number in order.group_numbers.items())


@every
def test_order_of_groups(example: Example) -> None:
    order = order_of(example.sources, example.where)
    found = {
        f"{written(a)}{'<' if order.is_before(a, b) else '<='}{written(b)}"
        for a in order.groups
        for b in order.groups
        if order.is_not_after(a, b)
    }
    assert found == set(example.before.split())
    assert not any(
        order.is_before(a, b) and not order.is_not_after(a, b) for a in order.groups for b in order.groups
    )


@every
def test_groups_that_never_have_equal_timestamps(example: Example) -> None:
    order = order_of(example.sources, example.where)
    for a in order.groups:
        for b in order.groups:
            if a == b:
                continue
            known = {f"{written(a)}|{written(b)}", f"{written(b)}|{written(a)}"} & {example.apart}
            ordered = order.is_before(a, b) or order.is_before(b, a)
            assert order.is_never_together(a, b) == (ordered or bool(known))
            assert order.can_come_together([a, b]) == (not order.is_never_together(a, b))


@every
def test_finite_groups(example: Example) -> None:
    order = order_of(example.sources, example.where)
    assert " ".join(written(g) for g in order.groups if order.is_finite(g)) == example.ending
    assert set(order.endless) == {g for g in order.groups if not order.is_finite(g)}
    assert written(order.last_group) == example.last


@every
def test_sets_that_form_partial_matches(example: Example) -> None:
    order = order_of(example.sources, example.where)
    found = ["".join(alias for group in members for alias in group) for members in order.partial_sets()]
    assert found == example.waiting.split()
    assert all(order.can_be_partial(members) for members in order.partial_sets())


@every
def test_a_part_is_timed_if_it_compares_timestamps(example: Example) -> None:
    assert is_timed(part_of(example.sources, example.where)) == example.timed


def test_groups_up_to_a_group_must_have_come() -> None:
    order = order_of("S, T, U, V", "K < J AND J <= I")
    s, t, u, v = order.groups
    assert order.groups_up_to(s) == {s, t, u}
    assert order.groups_up_to(t) == {t, u}
    assert order.groups_up_to(u) == {u}
    assert order.groups_up_to(v) == {v}


def test_a_finite_group_is_only_up_to_itself() -> None:
    order = order_of("S, T, R", f"I < J AND I < {NOON} AND A = X")
    relation, s, t = order.groups
    assert order.groups_up_to(t) == {t}
    assert order.groups_up_to(s) == {s}
    assert order.groups_up_to(relation) == {relation}


def test_groups_that_can_come_after_others() -> None:
    order = order_of("S, T, U", "I < J AND J <= K")
    s, t, u = order.groups
    assert order.can_come_after([t], [s])
    assert order.can_come_after([t, u], [s])
    assert not order.can_come_after([s], [t])
    assert not order.can_come_after([t], [s, u])
    assert order.can_come_after([u], [s, t])
    assert not order.can_come_together([s, t, u])
    assert order.can_come_together([t, u])
    assert order.can_come_together([s])


def test_missing_groups_may_come_with_the_last_rows_of_a_partial_match() -> None:
    """T and U may share a timestamp, but not so that T is missing when U is there."""
    order = order_of("S, T, U", "I < J AND J <= K")
    s, t, u = order.groups
    assert order.can_be_partial([s]) and order.can_be_partial([s, t]) and order.can_be_partial([s, t, u])
    assert (
        not order.can_be_partial([t]) and not order.can_be_partial([u]) and not order.can_be_partial([s, u])
    )


def test_time_columns() -> None:
    select = parse(f"{STREAMS} SELECT 1 FROM S x, P, R WHERE x.A = G AND x.A = X")[0].selects[0]
    assert find_time_column(select, "x") == Ref("x", "I")
    assert find_time_column(select, "P") is None
    assert find_time_column(select, "R") is None
    assert find_time_columns(select) == {"x": Ref("x", "I")}


def test_occurrences_of_relations() -> None:
    assert order_of("S, R", "A = X").relations == ("R",)
    assert order_of("S, T", "A = B").relations == ()


# --- results that close --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sources", "where", "groups", "closing"),
    [
        ("S", "A > 0", "I", "S.I"),
        ("S", "A > 0", "A", ""),
        ("S", "A > 0", "A, window(I, '1 minute')", "S.I"),
        ("S", "A > 0", "date_trunc('month', I)", "S.I"),
        ("S", "A > 0", "year(I), month(I)", "S.I"),
        ("S", "A > 0", "month(I), hour(I)", ""),
        ("S", "A > 0", "date_format(I, 'HH:mm')", ""),
        ("S, T", "I < J", "J", "T.J"),
        ("S, T", "I < J", "I", ""),
        ("S, T", "I < J", "I, J", "T.J"),
        ("S, T", "I BETWEEN J AND J + INTERVAL 1 HOUR", "I, J", "S.I T.J"),
        ("S, T", "A = B", "I, J", ""),
        ("R, S", "X = A", "I", "S.I"),
    ],
)
def test_results_close_with_a_timestamp_or_bucket_of_the_last_group(
    sources: str, where: str, groups: str, closing: str
) -> None:
    [query] = parse(f"{STREAMS} SELECT COUNT(*) FROM {sources} WHERE {where} GROUP BY {groups}")
    [part] = split_into_parts(query.selects[0], disjoint=True)
    found = TimeOrder(part).find_closing_columns(query.selects[0].group_by or ())
    assert " ".join(map(str, found)) == closing


def test_columns_of_the_last_group_are_not_remembered_if_results_close() -> None:
    order = order_of("S, T", "I < J AND A < B")
    columns = (Ref("S", "A"), Ref("T", "B"), Ref("T", "J"))
    assert order.find_remembered_columns(columns, [Ref("T", "J")]) == (Ref("S", "A"),)
    assert order.find_remembered_columns(columns, [Ref("T", "B")]) == columns
