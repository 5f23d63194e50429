"""Verdicts in words that a streaming engineer understands without the papers."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from millpond.analysis.verdict import BOUNDED, UNBOUNDED, Reason, Verdict
from millpond.plan.state import Kept, KeptColumn
from millpond.query.model import Comparison, Op, Ref, Select
from millpond.query.parts import Part
from millpond.query.time_order import TimeOrder

if TYPE_CHECKING:
    from millpond.analysis.needs import Failure

_WIDTH = 78
# Lines about what is kept, and reasons, that a person is shown; JSON holds them all.
_MAX_LINES = 12
_UNDETERMINED = {
    "too-many-alternatives": (
        "the condition has too many alternatives across streams to look at one by one; "
        "fewer ORs between columns of different streams make it decidable"
    ),
    "no-synopsis": "nothing speaks against a bound, but no way is known to keep its state in a fixed size",
    "unconfirmed": "memory may have to grow, though no input that proves it was found",
    "too-many-orders": "its columns can be ordered in too many ways to look at them one by one",
    "window": (
        "it compares moments at a distance in time, and how many rows come within that is not known "
        "beforehand; with a budget (--memory) it runs, and forgets what has left the window first"
    ),
    "no-stream": "it reads no stream",
    "time-in-result": "the result holds a timestamp, which this analysis does not cover",
    "second-timestamp": (
        "it compares a TIMESTAMP column that is not the stream's application time, "
        "which this analysis does not cover"
    ),
}
_KEEPS = {
    "count": "number of rows",
    "matches": "number of matches",
    "presence": "whether there was a row",
    "rows already emitted": "rows already written",
}
# Reasons that say again of a join's columns what its equality has said.
_IMPLIED_BY_EQUALITY = ("counted-inequality-join", "counted-disequality-join", "conflicting-references")


# --- reasons ---------------------------------------------------------------------------------------


def undetermined_reason(code: str, detail: str | None = None, cause: Reason | None = None) -> Reason:
    """Why there is no verdict; ``cause`` is the condition that failed, if one did."""
    if cause is not None:
        message = f"{_UNDETERMINED[code]}; what speaks for growth: {cause.message}"
        return Reason(code, cause.columns, cause.predicate, message)
    return Reason(code, (), None, _UNDETERMINED[code] + (f": {detail}" if detail else ""))


def violation_reason(select: Select, failure: Failure) -> Reason:
    """The condition that fails, in the user's own words, and why memory must grow."""
    violation, part = failure.violation, failure.part
    columns = tuple(str(ref) for ref in violation.columns if ref.occurrence != "?")
    texts = {text for low, high in violation.joins for text in because(part, low, high) if text}
    as_written = sorted(texts, key=lambda text: (select.text.find(text), text))
    return Reason(
        violation.code, columns, " AND ".join(as_written) or None, _message(select, failure, columns)
    )


def _message(select: Select, failure: Failure, columns: tuple[str, ...]) -> str:
    violation = failure.violation
    aggregate = failure.aggregate.text if failure.aggregate else None
    keeper = _stream(select, violation.keeper)
    coming = _coming_rows(select, failure)
    match violation.code:
        case "unbounded-projection" if len(select.occurrences) == 1 or _comes_last(failure):
            return (
                f"{columns[0]} is in a result without duplicates and can take any number of values: "
                f"each one must be remembered, to recognise it when it comes again"
            )
        case "unbounded-projection":
            return (
                f"{columns[0]} is in the result and can take any number of values: "
                f"each one must be kept for partners of its row that are still to come"
            )
        case "unbounded-group":
            return (
                f"{columns[0]} is grouped by and can take any number of values: each one is a group to keep"
            )
        case "holistic-aggregate":
            seen = f"{aggregate} depends on every one seen so far"
            return f"{columns[0]} can take any number of values, and {seen}"
        case "unbounded-equality-join":
            return (
                f"{columns[0]} and {columns[1]} can take any number of values: "
                f"each one seen on one side must be kept for its partner on the other, which may still come"
            )
        case "counted-inequality-join":
            return (
                f"{columns[0]} and {columns[1]} can take any number of values, and every match counts: "
                f"how many rows of {keeper} {coming} matches depends on every value seen so far"
            )
        case "conflicting-times":
            early, late = (_stream(select, a) for a in _holders(failure))
            return (
                f"a coming row asks for both a row of {early} and a later one of {late}, and the one that "
                f"serves it best may have come before the other: no pair is the best for all, so none may be "
                f"forgotten"
            )
        case "counted-disequality-join":
            return (
                f"{columns[0]} and {columns[1]} can take any number of values, and every match counts: "
                f"how many rows of {keeper} {coming} matches depends on how often each value was seen"
            )
    own = sorted({str(ref) for ref in violation.columns if ref.occurrence == violation.keeper})
    if any("?" in (a.occurrence, b.occurrence) for a, b in violation.joins):
        wanted = "smallest" if failure.aggregate and failure.aggregate.function == "MIN" else "largest"
        return (
            f"{aggregate} is taken over the rows that find a partner, and for {coming} any row of {keeper} "
            f"can turn out to be the {wanted} that does: none of them may be forgotten"
        )
    if len(own) == 1:
        return (
            f"some coming rows need a large {own[0]} and others a small one: "
            f"no row of {keeper} is the best for all of them, so none may be forgotten"
        )
    return (
        f"which rows of {keeper} {coming} matches depends on {_listed(own)} at once: "
        f"no row of {keeper} is the best for all, so none may be forgotten"
    )


def _comes_last(failure: Failure) -> bool:
    """No other stream's rows come after those to be kept."""
    last = TimeOrder(failure.part).last_group
    return last is not None and failure.violation.keeper in last


def _holders(failure: Failure) -> tuple[str, str]:
    """The occurrences whose rows must be kept: an earlier one, and the one that comes after it."""
    violation = failure.violation
    order = TimeOrder(failure.part)
    down = order.groups_up_to(order.groups[order.group_numbers[violation.keeper]])
    first = [ref.occurrence for ref in violation.joins[0]]
    early = next(a for a in first if a != violation.keeper and order.groups[order.group_numbers[a]] in down)
    return early, violation.keeper


def _stream(select: Select, alias: str) -> str:
    """The stream's name; its alias where the stream occurs more than once."""
    name = next((o.table.name for o in select.occurrences if o.alias == alias), alias)
    alone = sum(o.table.name == name for o in select.occurrences) == 1
    return name if alone else alias


def _coming_rows(select: Select, failure: Failure) -> str:
    """The rows that the kept ones wait for."""
    mentioned = [ref.occurrence for pair in failure.violation.joins for ref in pair]
    others = [a for a in dict.fromkeys(mentioned) if a not in (failure.violation.keeper, "?")]
    return f"a coming row of {_stream(select, others[0])}" if len(others) == 1 else "a coming row"


def because(part: Part, low: Ref, high: Ref) -> list[str]:
    """The user's predicates from which the order of two columns follows."""
    if "?" in (low.occurrence, high.occurrence):
        return []
    for d in part.apart:
        if {d.left, d.right} == {low, high}:
            return [_stated_difference(part, low, high) or f"{d.left} <> {d.right}"]
    return _path(part, low, high)


def _stated_difference(part: Part, low: Ref, high: Ref) -> str | None:
    """The user's own spelling of ``low <> high``."""
    for literal in part.literals:
        match literal:
            case Comparison(left=Ref() as left, operator=Op.NE, right=Ref() as right, text=text):
                if {left, right} == {low, high} and text:
                    return text
    return None


def _path(part: Part, low: Ref, high: Ref) -> list[str]:
    """Predicates along a shortest chain of stated comparisons, fewest first."""
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


def essential(reasons: Iterable[Reason]) -> list[Reason]:
    """Reasons without those that say the same again: an equality join is not an inequality join as well."""
    every = list({_key(r): r for r in reversed(list(reasons))}.values())[::-1]
    equal = [set(r.columns) for r in every if r.code == "unbounded-equality-join"]
    return [
        r
        for r in every
        if r.code not in _IMPLIED_BY_EQUALITY or not any(set(r.columns) <= columns for columns in equal)
    ]


def _key(reason: Reason) -> object:
    """Equal for reasons of which a person needs only the first."""
    if reason.code in ("unconfirmed", "too-many-orders"):
        return reason.predicate, frozenset(reason.columns)
    return reason.predicate, reason.message


# --- verdicts --------------------------------------------------------------------------------------


def explain(verdict: Verdict) -> str:
    """A verdict line, then a few indented lines.

    >>> from millpond import check
    >>> streams = "CREATE STREAMING TABLE S (A INT, B INT); CREATE STREAMING TABLE T (D INT);"
    >>> print(check(streams + "SELECT DISTINCT A FROM S, T WHERE B < D AND A = 10").explain())
    bounded: at most 3 entries, 32 bytes
      S       1 entry  row with the smallest B, where A = 10
      T       1 entry  row with the largest D
      answer  1 entry  rows already written, where A = 10
    >>> print(check(streams + "SELECT A FROM S, T WHERE B < D AND A = 10").explain())
    unbounded: memory must grow with the streams, whatever the program
      B < D: S.B and T.D can take any number of values, and every match counts:
        how many rows of S a coming row of T matches depends on every value seen
        so far.
    """
    told = _wrapped("  ", f"{verdict.published}.", "  ") if verdict.published else []
    if verdict.outcome == BOUNDED:
        return "\n".join([_bounded_headline(verdict), *_kept_lines(verdict), *told])
    if verdict.outcome == UNBOUNDED:
        headline = "unbounded: memory must grow with the streams, whatever the program"
    else:
        headline = "undetermined: neither a bound nor a proof of growth was found"
    return "\n".join([headline, *_reason_lines(verdict.reasons), *told])


def _reason_lines(reasons: Sequence[Reason]) -> list[str]:
    lines = []
    for reason in reasons[:_MAX_LINES]:
        text = f"{reason.predicate}: {reason.message}." if reason.predicate else f"{reason.message}."
        lines += _wrapped("  ", text, "    ")
    if len(reasons) > _MAX_LINES:
        lines.append(f"  … and {len(reasons) - _MAX_LINES} more of the kind")
    return lines


def _bounded_headline(verdict: Verdict) -> str:
    state = verdict.state
    if state.entries is None:
        return "bounded: finite in every run, by a number that only the data tell"
    if not state.entries:
        return "bounded: nothing has to be kept"
    size = f"{_plural(state.entries, 'entry', 'entries')}, {_plural(state.bytes or 0, 'byte', 'bytes')}"
    return f"bounded: at most {size}"


def _kept_lines(verdict: Verdict) -> list[str]:
    if verdict.state.entries == 0:
        if _never_true(verdict):
            return ["  The condition can never be true, so there is never a result."]
        return ["  Each row is answered by itself and forgotten."]
    aliases: dict[str | None, set[str | None]] = {}
    for kept in verdict.state.streams:
        aliases.setdefault(kept.stream, set()).add(kept.alias)
    sizes: dict[tuple[str, str], int | None] = {}
    for kept in verdict.state.streams:
        line = (_kept_name(kept, aliases), _kept_text(kept))
        known = sizes.get(line, 0)
        sizes[line] = None if kept.entries is None or known is None else known + kept.entries
    rows = [
        (name, "finite" if n is None else _plural(n, "entry", "entries"), text)
        for (name, text), n in sizes.items()
    ]
    shown = rows[:_MAX_LINES]
    name_width = max(len(name) for name, _, _ in shown)
    size_width = max(len(size) for _, size, _ in shown)
    lines = []
    for name, size, text in shown:
        start = f"  {name:<{name_width}}  {size:>{size_width}}  "
        lines += _wrapped(start, text, " " * len(start))
    if len(rows) > _MAX_LINES:
        lines.append(f"  … and {len(rows) - _MAX_LINES} more of the kind")
    return lines


def _never_true(verdict: Verdict) -> bool:
    return verdict.plan is not None and not any(select.needs for select in verdict.plan.selects)


def _wrapped(start: str, text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        max(_WIDTH, len(start) + 40),
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _kept_name(kept: Kept, aliases: Mapping[str | None, set[str | None]]) -> str:
    """The stream's name, with the alias where the stream occurs more than once."""
    if kept.stream is None:
        return "answer"
    return kept.stream if len(aliases[kept.stream]) == 1 else f"{kept.stream} as {kept.alias}"


def _kept_text(kept: Kept) -> str:
    what = [_KEEPS.get(each, each) for each in kept.keeps]
    if len(what) > 1 and kept.keeps[0] == "presence":
        what[0] = "a row"
    several = [f"{c.name} ({c.description})" for c in kept.columns if c.classes > 1]
    per = f" for each {_listed(several)}" if several else ""
    single = [_pinned(c) for c in kept.columns if c.classes == 1]
    where = f", where {_listed(single)}" if single else ""
    return _listed(what) + per + where


def _pinned(column: KeptColumn) -> str:
    return f"{column.name} {'is' if column.description == 'NULL' else '='} {column.description}"


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _plural(n: int, one: str, many: str) -> str:
    """
    >>> _plural(1, "entry", "entries"), _plural(1234, "entry", "entries"), _plural(10**20, "byte", "bytes")
    ('1 entry', '1,234 entries', '1.0e+20 bytes')
    """
    return f"{n:,} {one if n == 1 else many}" if n < 10**15 else f"{Decimal(n):.1e} {many}"
