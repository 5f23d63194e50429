"""Turns violations into reasons: one plain sentence each, with the columns and the user's own predicates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from millpond.analysis.partner_tests import NeverFinalError
from millpond.analysis.verdict import Reason, UndeterminedCode
from millpond.analysis.violations import Failure, ViolationCode
from millpond.query.aggregate_functions import Memory, find_memory
from millpond.query.buckets import find_bucket
from millpond.query.derived_names import strip_mark
from millpond.query.expressions import Comparison, Op, Ref
from millpond.query.model import Query, Select
from millpond.query.parts import Part, is_threshold
from millpond.query.time_order import TimeOrder, find_result_keys
from millpond.query.variants import NoVariantsError, VariantGap

_UNDETERMINED = {
    UndeterminedCode.TOO_MANY_ALTERNATIVES: (
        "the condition has too many combinations of ORs between columns of different streams "
        "to check them all; use fewer of them"
    ),
    UndeterminedCode.NO_SYNOPSIS: (
        "no criterion fails, but Millpond knows no way to keep only a bounded part of the streams"
    ),
    UndeterminedCode.UNCONFIRMED: "memory may have to grow, but no input was found that proves it",
    UndeterminedCode.TOO_MANY_ORDERS: "its columns can be ordered in too many ways to check them all",
    UndeterminedCode.NO_STREAM: (
        "it reads no stream; declare a table whose rows keep arriving with CREATE STREAMING TABLE"
    ),
    UndeterminedCode.SECOND_TIMESTAMP: (
        "it compares a TIMESTAMP column that is not the stream's time column, "
        "which the analysis does not support"
    ),
    UndeterminedCode.NEVER_FINAL: "some rows never get to be final",
    UndeterminedCode.SEVERAL_OUTER_STREAMS: (
        "whether there is a partner depends on rows of several streams, which the analysis does not support"
    ),
    UndeterminedCode.NESTED_OUTER_JOINS: (
        "RIGHT or FULL JOIN after another outer join is only supported if it ignores rows without partner"
    ),
    UndeterminedCode.SESSION_OF_PARTNERS: (
        "the analysis does not support session_window with an outer join or EXISTS"
    ),
    UndeterminedCode.BLOCK: "a subquery is not bounded, and no proof was found that the whole query is not",
    UndeterminedCode.CURRENT_TIME: (
        "its answer changes as time passes, and only conditions that keep rows for a fixed time, "
        "such as ts > now() - INTERVAL 1 HOUR, are known to bound it"
    ),
    UndeterminedCode.REVISED: "a subquery revises its rows, and it is not known how to follow the revisions",
}
# Violations that an unbounded equality join of the same columns implies.
_IMPLIED_BY_EQUALITY = (
    ViolationCode.COUNTED_INEQUALITY_JOIN,
    ViolationCode.COUNTED_DISEQUALITY_JOIN,
    ViolationCode.CONFLICTING_REFERENCES,
)


def describe_undetermined(
    code: UndeterminedCode, detail: str | None = None, cause: Reason | None = None
) -> Reason:
    """The reason why there is no verdict; ``cause`` is the criterion that failed, if one did."""
    if cause is not None:
        message = f"{_UNDETERMINED[code]}; the criterion that fails: {cause.message}"
        return Reason(code.value, cause.columns, cause.predicate, message, cause)
    return Reason(code.value, (), None, _UNDETERMINED[code] + (f": {detail}" if detail else ""))


def describe_partner_gap(query: Query, gap: NoVariantsError | NeverFinalError) -> Reason:
    """The reason why it is not known how to find rows with or without partner."""
    if isinstance(gap, NeverFinalError):
        names = {o.alias: o.table for select in query.selects for o in select.every_occurrence}
        row, partner = names[gap.alias], names[gap.partner]
        code = UndeterminedCode.NEVER_FINAL
        message = f"a partner in {partner.name} can come any time after a row of {row.name}, so it is "
        message += "never final that the row has none"
        if not row.streaming:
            message = f"rows of the relation {row.name} without partner never get to be final"
        elif row.time and partner.time:
            wanted = f"{gap.partner}.{partner.time} <= {gap.alias}.{row.time} + INTERVAL 1 HOUR"
            message += f"; a condition such as {wanted} bounds the time in which it can come"
        return Reason(code.value, (), None, message)
    code = {
        VariantGap.SEVERAL_STREAMS: UndeterminedCode.SEVERAL_OUTER_STREAMS,
        VariantGap.NESTED: UndeterminedCode.NESTED_OUTER_JOINS,
        VariantGap.SESSION: UndeterminedCode.SESSION_OF_PARTNERS,
    }[gap.gap]
    detail = f": {join_words(gap.aliases)}" if gap.aliases else ""
    return Reason(code.value, gap.aliases, gap.predicate or None, _UNDETERMINED[code] + detail)


def describe_violation(select: Select, failure: Failure) -> Reason:
    """The reason for a violation: the predicates as the user wrote them, and why memory must grow."""
    violation, part = failure.violation, failure.part
    shown = (ref for ref in violation.columns if not is_threshold(ref.occurrence))
    columns = tuple(name_column(select, ref) for ref in shown)
    texts = {text for low, high in violation.joins for text in find_predicates(part, low, high) if text}
    as_written = sorted(texts, key=lambda text: (select.text.find(text), text))
    predicate = " AND ".join(as_written) or None
    return Reason(violation.code.value, columns, predicate, _message(select, failure, columns))


def _message(select: Select, failure: Failure, columns: tuple[str, ...]) -> str:
    violation = failure.violation
    kept = _stream_name(select, violation.kept_alias)
    coming = _coming_row(select, failure)
    match violation.code:
        case ViolationCode.UNBOUNDED_PROJECTION | ViolationCode.UNBOUNDED_GROUP:
            return _unbounded_column_message(select, failure, columns[0])
        case ViolationCode.HOLISTIC_AGGREGATE:
            aggregate = failure.aggregate.text if failure.aggregate else None
            if select.session is not None:
                return (
                    f"a session can stay open for ever, {columns[0]} can take infinitely many values in it, "
                    f"and {aggregate} depends on all of them"
                )
            if failure.aggregate is not None and find_memory(failure.aggregate) is Memory.LIST:
                return f"{aggregate} contains every value of {columns[0]}, and its group never closes"
            return f"{columns[0]} can take infinitely many values, and {aggregate} depends on all of them"
        case ViolationCode.UNBOUNDED_EQUALITY_JOIN:
            return (
                f"{columns[0]} and {columns[1]} can take infinitely many values: "
                f"every value seen on one side must be kept, because a match may still come on the other"
            )
        case ViolationCode.COUNTED_INEQUALITY_JOIN:
            return (
                f"{columns[0]} and {columns[1]} can take infinitely many values, and every match counts: "
                f"the number of rows of {kept} that {coming} matches depends on every value seen so far"
            )
        case ViolationCode.COUNTED_DISEQUALITY_JOIN:
            return (
                f"{columns[0]} and {columns[1]} can take infinitely many values, and every match counts: "
                f"the number of rows of {kept} that {coming} matches depends on how often each value was seen"
            )
        case ViolationCode.CONFLICTING_TIMES:
            early, late = (_stream_name(select, a) for a in _conflicting_aliases(failure))
            return (
                f"a future row needs both a row of {early} and a later row of {late}, but the best row of "
                f"{early} may be later than the best row of {late}: no pair is the best for all future rows, "
                f"so none can be dropped"
            )
        case ViolationCode.CONFLICTING_REFERENCES:
            return _conflict_message(select, failure, kept, coming)


def _unbounded_column_message(select: Select, failure: Failure, column: str) -> str:
    """Why every value of a column of the result, or of GROUP BY, must be kept."""
    violation, order = failure.violation, TimeOrder(failure.part)
    grouped = violation.code is ViolationCode.UNBOUNDED_GROUP
    role = "a group column" if grouped else "in the result"
    ref = violation.columns[0]
    if find_bucket(select, ref.occurrence, [ref]) is not None:
        stream = _stream_name(select, violation.kept_alias)
        closing = "no group ever closes, so all must be kept" if grouped else "every one must be kept"
        return (
            f"{column} is {role}, but rows that match a row of {stream} can come at any later time: {closing}"
        )
    if order.find_closing_columns(find_result_keys(select, distinct=True)) or not (
        grouped or len(select.occurrences) == 1 or _comes_last(failure)
    ):
        return (
            f"{column} is {role} and can take infinitely many values: "
            f"every value must be kept for matching rows that are still to come"
        )
    if grouped:
        return (
            f"{column} is a group column and can take infinitely many values: "
            f"every value is a group that must be kept"
        )
    return (
        f"{column} is in a result without duplicates and can take infinitely many values: "
        f"every value must be kept to recognise duplicates"
    )


def _conflict_message(select: Select, failure: Failure, kept: str, coming: str) -> str:
    violation = failure.violation
    if any(is_threshold(each.occurrence) for pair in violation.joins for each in pair):
        aggregate = failure.aggregate.text if failure.aggregate else None
        is_least = failure.aggregate is not None and failure.aggregate.function.startswith("MIN")
        wanted = "smallest" if is_least else "largest"
        return (
            f"{aggregate} is taken over the rows that have a match, and any row of {kept} can turn out to be "
            f"the {wanted} one that {coming} matches: no row can be dropped"
        )
    own = sorted(
        {name_column(select, ref) for ref in violation.columns if ref.occurrence == violation.kept_alias}
    )
    if len(own) == 1:
        return (
            f"some future rows need a large {own[0]} and others a small one: "
            f"no row of {kept} is the best for all of them, so none can be dropped"
        )
    return (
        f"whether {coming} matches a row of {kept} depends on both {join_words(own)}: "
        f"no row of {kept} is the best for all future rows, so none can be dropped"
    )


def _comes_last(failure: Failure) -> bool:
    """No other stream has rows after those that must be kept."""
    last = TimeOrder(failure.part).last_group
    return last is not None and failure.violation.kept_alias in last


def _conflicting_aliases(failure: Failure) -> tuple[str, str]:
    """The two occurrences whose rows must be kept: the earlier one, then the later one."""
    violation = failure.violation
    order = TimeOrder(failure.part)
    before = order.groups_up_to(order.group_of(violation.kept_alias))
    first = [ref.occurrence for ref in violation.joins[0]]
    early = next(a for a in first if a != violation.kept_alias and order.group_of(a) in before)
    return early, violation.kept_alias


def name_column(select: Select, ref: Ref) -> str:
    """The column, or the function of a column that it is, as a user would write it.

    A function of a column ``ts`` is named ``date_trunc('hour', ts)``; here its argument is qualified.
    """
    if ref not in (Ref(ref.occurrence, c.name) for c in select.occurrence(ref.occurrence).table.derived):
        return str(ref)
    called, opened, arguments = strip_mark(ref.column).removesuffix(".start").partition("(")
    declared = (c.name for c in select.occurrence(ref.occurrence).table.columns)
    for name in sorted(declared, key=len, reverse=True):
        column = re.compile(rf"(?<!['\w]){re.escape(name)}(?!['\w])")
        qualified, count = column.subn(f"{ref.occurrence}.{name}", arguments, count=1)
        if count:
            return called + opened + qualified
    return strip_mark(str(ref))


def _stream_name(select: Select, alias: str) -> str:
    """The stream's name, or the alias if the stream occurs more than once."""
    name = next((o.table.name for o in select.occurrences if o.alias == alias), alias)
    alone = sum(o.table.name == name for o in select.occurrences) == 1
    return name if alone else alias


def _coming_row(select: Select, failure: Failure) -> str:
    """The rows for which others are kept."""
    mentioned = [ref.occurrence for pair in failure.violation.joins for ref in pair]
    partners = [alias for alias in dict.fromkeys(mentioned) if not is_threshold(alias)]
    others = [alias for alias in partners if alias != failure.violation.kept_alias]
    return f"a future row of {_stream_name(select, others[0])}" if len(others) == 1 else "a future row"


def join_words(words: Sequence[str]) -> str:
    """
    >>> join_words(["A", "B", "C"])
    'A, B and C'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# --- predicates --------------------------------------------------------------------------------------


def find_predicates(part: Part, low: Ref, high: Ref) -> list[str]:
    """The user's predicates that imply the order of two columns."""
    if is_threshold(low.occurrence) or is_threshold(high.occurrence):
        return []
    for d in part.apart:
        if {d.left, d.right} == {low, high}:
            return [_find_stated_disequality(part, low, high) or f"{d.left} <> {d.right}"]
    return _find_shortest_path(part, low, high)


def _find_stated_disequality(part: Part, low: Ref, high: Ref) -> str | None:
    """``low <> high`` as the user wrote it."""
    for literal in part.literals:
        match literal:
            case Comparison(left=Ref() as left, operator=Op.NE, right=Ref() as right, text=text):
                if {left, right} == {low, high} and text:
                    return text
    return None


def _find_shortest_path(part: Part, low: Ref, high: Ref) -> list[str]:
    """The predicates along a shortest chain of stated comparisons from ``low`` to ``high``."""
    stated: dict[Ref | None, list[tuple[Ref | None, str]]] = {}
    for edge in part.edges:
        d = edge.difference
        stated.setdefault(d.left, []).append((d.right, edge.text))
    reached: dict[Ref | None, list[str]] = {low: []}
    queue: list[Ref | None] = [low]
    while queue:
        at = queue.pop(0)
        if at == high:
            return list(dict.fromkeys(reached[at]))
        for following, text in stated.get(at, ()):
            if following is not None and following not in reached:
                reached[following] = [*reached[at], text]
                queue.append(following)
    return []


# --- several reasons ---------------------------------------------------------------------------------


def remove_redundant(reasons: Iterable[Reason]) -> list[Reason]:
    """The reasons without repetitions, and without those that an unbounded equality join implies."""
    every = list({_identity(r): r for r in reversed(list(reasons))}.values())[::-1]
    equal = [set(r.columns) for r in every if r.code == ViolationCode.UNBOUNDED_EQUALITY_JOIN]
    return [
        r
        for r in every
        if r.code not in _IMPLIED_BY_EQUALITY or not any(set(r.columns) <= columns for columns in equal)
    ]


def _identity(reason: Reason) -> object:
    """Equal for reasons of which only the first is worth reading."""
    if reason.code in (UndeterminedCode.UNCONFIRMED, UndeterminedCode.TOO_MANY_ORDERS):
        return reason.predicate, frozenset(reason.columns)
    return reason.predicate, reason.message
