"""Renders a verdict as text for a streaming engineer: a headline, then indented lines."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from decimal import Decimal

from millpond.analysis.reasons import join_words
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, Reason, Verdict
from millpond.plan.state import Kept, KeptColumn
from millpond.query.aggregate_functions import APPROXIMATE
from millpond.query.model import Query, Table
from millpond.query.trace import list_selects
from millpond.query.trees import find_aggregates

_WIDTH = 78
# The most reasons and the most lines about what is kept that are shown; the JSON output has them all.
_MAX_LINES = 12
_KEEPS = {
    "count": "number of rows",
    "matches": "number of matches",
    "presence": "whether there was a row",
    "rows already emitted": "rows already written",
}


def explain(verdict: Verdict) -> str:
    """The verdict as text: a headline, then indented lines.

    >>> from millpond import check
    >>> streams = "CREATE STREAMING TABLE S (A INT, B INT); CREATE STREAMING TABLE T (D INT);"
    >>> print(check(streams + "SELECT DISTINCT A FROM S, T WHERE B < D AND A = 10").explain())
    bounded: at most 3 entries, 32 bytes
      S       1 entry  row with the smallest B, where A = 10
      T       1 entry  row with the largest D
      answer  1 entry  rows already written, where A = 10
    >>> print(check(streams + "SELECT A FROM S, T WHERE B < D AND A = 10").explain())
    unbounded: memory must grow with the streams, whatever the program
      B < D: S.B and T.D can take infinitely many values, and every match counts:
        the number of rows of S that a future row of T matches depends on every
        value seen so far.
    """
    published = _wrap("  ", f"{verdict.published}.", "  ") if verdict.published else []
    if verdict.outcome == BOUNDED:
        kept = [*_render_kept_lines(verdict), *_rate_lines(verdict), *_approximation_lines(verdict)]
        return "\n".join([_bounded_headline(verdict), *kept, *published, *_block_lines(verdict)])
    if verdict.outcome == UNBOUNDED:
        headline = "unbounded: memory must grow with the streams, whatever the program"
    else:
        headline = "undetermined: neither a bound nor a proof of growth was found"
    assumed = [line for each in verdict.assumptions for line in _wrap("  ", f"assumed: {each}.", "    ")]
    blocks = _block_lines(verdict)
    return "\n".join([headline, *_reason_lines(verdict.reasons), *assumed, *published, *blocks])


def _block_lines(verdict: Verdict) -> list[str]:
    """The tree of blocks: the outcome of each, below the block that reads it."""
    lines: list[str] = []
    for name, block in verdict.blocks.items():
        lines += _wrap("  ", f"block {name}: {explain(block).splitlines()[0]}", "    ")
        lines += [f"  {line}" for line in _block_lines(block)]
    return lines


def _reason_lines(reasons: Sequence[Reason]) -> list[str]:
    lines = []
    for reason in reasons[:_MAX_LINES]:
        text = f"{reason.predicate}: {reason.message}." if reason.predicate else f"{reason.message}."
        lines += _wrap("  ", text, "    ")
    if len(reasons) > _MAX_LINES:
        lines.append(f"  … and {len(reasons) - _MAX_LINES} more")
    return lines


def _bounded_headline(verdict: Verdict) -> str:
    state = verdict.state
    if state.entries is None and any(kept.closes for kept in state.streams):
        return "bounded by time: the size of the state depends on the rates of the streams"
    if state.entries is None:
        return "bounded: the state is finite; its size depends on the data (see state_entries in the metrics)"
    if not state.entries:
        return "bounded: nothing has to be kept"
    size = f"{_plural(state.entries, 'entry', 'entries')}, {_plural(state.bytes or 0, 'byte', 'bytes')}"
    return f"bounded: at most {size}"


def _render_kept_lines(verdict: Verdict) -> list[str]:
    if verdict.state.entries == 0:
        if _is_never_true(verdict):
            return ["  The condition can never be true, so there is never a result."]
        return ["  Each row is answered by itself and forgotten."]
    aliases: dict[str | None, set[str | None]] = {}
    for kept in verdict.state.streams:
        aliases.setdefault(kept.stream, set()).add(kept.alias)
    sizes: dict[tuple[str, str], int | None] = {}
    for kept in verdict.state.streams:
        line = (_render_kept_name(kept, aliases), _render_kept_text(kept))
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
        lines += _wrap(start, text, " " * len(start))
    if len(rows) > _MAX_LINES:
        lines.append(f"  … and {len(rows) - _MAX_LINES} more")
    return lines


def _approximation_lines(verdict: Verdict) -> list[str]:
    """The aggregates whose results are approximate."""
    found = [a for select in verdict.query.selects for a in find_aggregates(select)]
    names = dict.fromkeys(a.text for a in found if a.function in APPROXIMATE)
    return [line for name in names for line in _wrap("  ", f"{name} is approximate.", "    ")]


def _rate_lines(verdict: Verdict) -> list[str]:
    """How to get the size as a number, if only the rates of streams are missing."""
    unknown = [kept for kept in verdict.state.streams if kept.entries is None]
    if not unknown or not all(kept.closes for kept in unknown):
        return []
    declared = _list_declared(verdict.query)
    tables = [t for t in declared.values() if t.time is not None and "rate" not in t.properties]
    names = {kept.stream for kept in unknown}
    missing = sorted(t.name for t in tables if names - set(declared) or t.name in names)
    if not missing:
        return []
    remedy = f"For a number, declare the rate of {join_words(missing)}, for example:"
    return [*_wrap("  ", remedy, "  "), "    TBLPROPERTIES ('rate' = '1000 per second')"]


def _list_declared(query: Query) -> dict[str, Table]:
    """The declared tables that a query reads, also in its blocks."""
    every = (o.table.declared for select in list_selects(query) for o in select.every_occurrence)
    return {table.name: table for table in every if table.block is None}


def _is_never_true(verdict: Verdict) -> bool:
    """Whether the condition contradicts itself."""
    return verdict.plan is not None and not any(select.needs for select in verdict.plan.selects)


def _wrap(start: str, text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        max(_WIDTH, len(start) + 40),
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _render_kept_name(kept: Kept, aliases: Mapping[str | None, set[str | None]]) -> str:
    """The stream's name, with the alias if the stream occurs more than once."""
    if kept.stream is None:
        return "answer"
    return kept.stream if len(aliases[kept.stream]) == 1 else f"{kept.stream} as {kept.alias}"


def _render_kept_text(kept: Kept) -> str:
    what = [_KEEPS.get(each, each) for each in kept.keeps]
    if len(what) > 1 and kept.keeps[0] == "presence":
        what[0] = "a row"
    several = [f"{c.name} ({c.description})" for c in kept.columns if c.classes > 1]
    per = f" for each {join_words(several)}" if several else ""
    single = [_pinned_text(c) for c in kept.columns if c.classes == 1]
    where = f", where {join_words(single)}" if single else ""
    return join_words(what) + per + where


def _pinned_text(column: KeptColumn) -> str:
    return f"{column.name} {'is' if column.description == 'NULL' else '='} {column.description}"


def _plural(n: int, one: str, many: str) -> str:
    """
    >>> _plural(1, "entry", "entries"), _plural(1234, "entry", "entries"), _plural(10**20, "byte", "bytes")
    ('1 entry', '1,234 entries', '1.0e+20 bytes')
    """
    return f"{n:,} {one if n == 1 else many}" if n < 10**15 else f"{Decimal(n):.1e} {many}"
