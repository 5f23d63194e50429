"""Renders a verdict as text for a streaming engineer: a headline, then indented lines."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from millpond.analysis.reasons import join_words
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, Reason, Verdict
from millpond.plan.state import Kept
from millpond.query.aggregate_functions import APPROXIMATE
from millpond.query.model import Query, Table
from millpond.query.trace import list_selects
from millpond.query.trees import find_aggregates

_LEAST_WIDTH = 24  # of the text behind the columns of a table
# The most reasons and the most lines about what is kept that are shown; the JSON output has them all.
_MAX_LINES = 12
_MAX_VALUES = 5  # the most values of a column that are listed, unless there is only one more
_KEEPS = {
    "count": "number of rows",
    "matches": "number of matches",
    "presence": "whether there was a row",
    "rows already emitted": "rows already written",
}


class _Line(NamedTuple):
    """A text that is wrapped; its first line begins with ``start``, the others with ``indent``."""

    start: str
    text: str
    indent: str

    def wrap(self, width: int) -> list[str]:
        return textwrap.wrap(
            self.text,
            max(width, len(self.start) + _LEAST_WIDTH),
            initial_indent=self.start,
            subsequent_indent=self.indent,
            break_long_words=False,
            break_on_hyphens=False,
        )


def explain(verdict: Verdict, width: int = 78) -> str:
    """The verdict as text of lines up to ``width``: a headline, then indented lines.

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
    lines = [_Line("", headline(verdict), "  "), *_detail_lines(verdict), *_spark_lines(verdict)]
    return "\n".join(row for line in lines for row in line.wrap(width))


def headline(verdict: Verdict) -> str:
    """The outcome in one sentence, with the size of what is kept."""
    if verdict.outcome == BOUNDED:
        return _bounded_headline(verdict)
    if verdict.outcome == UNBOUNDED:
        return "unbounded: memory must grow with the streams, whatever the program"
    return "undetermined: neither a bound nor a proof of growth was found"


def describe_bound(verdict: Verdict) -> str:
    """What a bounded query keeps, in a few words."""
    state = verdict.state
    if state.entries is not None:
        return f"at most {_plural(state.entries, 'entry', 'entries')}" if state.entries else "nothing"
    if state.windows:
        spans: dict[float, list[str]] = {}
        declared = verdict.query.declared_tables
        for window in state.windows:  # also of rows below window functions, which have no name
            names = spans.setdefault(window["seconds"], [])
            names += [window["stream"]] if window["stream"] in declared else []
        parts = [
            f"{_render_seconds(s)} of {join_words(names)}" if names else _render_seconds(s)
            for s, names in spans.items()
        ]
        return f"the rows of the last {', '.join(parts)}"
    if any(kept.closes for kept in state.streams):
        return "groups until their time window has passed"
    return "a finite state whose size depends on the data"


def _render_seconds(seconds: float) -> str:
    """
    >>> _render_seconds(3600), _render_seconds(90)
    ('hour', '90 seconds')
    """
    for name, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds and seconds % length == 0:
            return name if seconds == length else f"{seconds / length:g} {name}s"
    return f"{seconds:g} seconds"


def list_notes(verdict: Verdict) -> list[str]:
    """Sentences about the verdict: what it assumes, what has no number, what Spark itself keeps."""
    published = [f"{verdict.published}."] if verdict.published else []
    published += [line.text for line in _spark_lines(verdict)]
    if verdict.outcome != BOUNDED:
        return [*(f"assumed: {each}." for each in verdict.assumptions), *published]
    alone = "" if verdict.state.entries != 0 else "Each row is answered by itself and forgotten."
    if alone and is_never_true(verdict):
        alone = "The condition can never be true, so there is never a result."
    rates = " ".join(line.text for line in _rate_lines(verdict))
    approximate = [line.text for line in _approximation_lines(verdict)]
    return [note for note in (alone, rates, *approximate, *published) if note]


def _detail_lines(verdict: Verdict) -> list[_Line]:
    published = [_Line("  ", f"{verdict.published}.", "  ")] if verdict.published else []
    if verdict.outcome == BOUNDED:
        kept = [*_render_kept_lines(verdict), *_rate_lines(verdict), *_approximation_lines(verdict)]
        return [*kept, *published, *_block_lines(verdict)]
    assumed = [_Line("  ", f"assumed: {each}.", "    ") for each in verdict.assumptions]
    return [*_reason_lines(verdict.reasons), *assumed, *published, *_block_lines(verdict)]


def _spark_lines(verdict: Verdict) -> list[_Line]:
    """What Spark itself keeps for a DataFrame."""
    if verdict.spark_state is None:
        return []
    summary = {"flat": "Spark's own state stays flat", "grows": "Spark's own state grows for ever"}
    lines = [_Line("  ", summary[verdict.spark_state] + (":" if verdict.spark_reasons else ""), "  ")]
    lines += [_Line("    ", f"{reason}.", "      ") for reason in verdict.spark_reasons]
    if verdict.outcome == BOUNDED and verdict.spark_state == "grows":
        lines.append(_Line("    ", "What is kept above would do: run the query with millpond.sql.", "      "))
    return lines


def _block_lines(verdict: Verdict) -> list[_Line]:
    """The tree of blocks: the outcome of each, below the block that reads it."""
    lines: list[_Line] = []
    for name, block in verdict.blocks.items():
        lines.append(_Line("  ", f"block {name}: {headline(block)}", "    "))
        lines += [_Line(f"  {each.start}", each.text, f"  {each.indent}") for each in _block_lines(block)]
    return lines


def _reason_lines(reasons: Sequence[Reason]) -> list[_Line]:
    lines = []
    for reason in reasons[:_MAX_LINES]:
        text = f"{reason.predicate}: {reason.message}." if reason.predicate else f"{reason.message}."
        lines.append(_Line("  ", text, "    "))
    if len(reasons) > _MAX_LINES:
        lines.append(_Line("  ", f"… and {len(reasons) - _MAX_LINES} more", "  "))
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


def list_kept(verdict: Verdict) -> list[tuple[str, str, str]]:
    """What is kept: for each table the stream, the size and a description."""
    aliases: dict[str | None, set[str | None]] = {}
    for kept in verdict.state.streams:
        aliases.setdefault(kept.stream, set()).add(kept.alias)
    sizes: dict[_KeptLine, int | None] = {}
    for kept in verdict.state.streams:
        line = _describe_kept(kept, _render_kept_name(kept, aliases))
        sizes[line] = _add_sizes([sizes.get(line, 0), kept.entries])
    return [
        (line.name, "finite" if n is None else _plural(n, "entry", "entries"), line.text)
        for line, n in _merge_constants(sizes).items()
    ]


class _KeptLine(NamedTuple):
    """What is kept of the stream ``name``: for each value of some columns, where others have one value."""

    name: str
    what: str
    several: tuple[tuple[str, str], ...]  # columns and their values
    single: tuple[tuple[str, str], ...]  # columns and their value

    @property
    def text(self) -> str:
        several = [f"{column} ({values})" for column, values in self.several]
        per = f" for each {join_words(several)}" if several else ""
        single = [f"{column} {'is' if value == 'NULL' else '='} {value}" for column, value in self.single]
        where = f", where {join_words(single)}" if single else ""
        return self.what + per + where


def _describe_kept(kept: Kept, name: str) -> _KeptLine:
    what = [_KEEPS.get(each, each) for each in kept.keeps]
    if len(what) > 1 and kept.keeps[0] == "presence":
        what[0] = "a row"
    several = tuple((c.name, c.description) for c in kept.columns if c.classes > 1)
    single = tuple((c.name, c.description) for c in kept.columns if c.classes == 1)
    return _KeptLine(name, join_words(what), several, single)


def _merge_constants(sizes: Mapping[_KeptLine, int | None]) -> dict[_KeptLine, int | None]:
    """Make one line of those that differ only in the value of one column: a line for each of its values."""
    for column in dict.fromkeys(column for line in sizes for column, _ in line.single):
        alike: dict[tuple[_KeptLine, bool], dict[str, _KeptLine]] = {}  # by the rest of a line: by value
        for line in sizes:
            value = dict(line.single).get(column)
            rest = line._replace(single=tuple(pair for pair in line.single if pair[0] != column))
            alike.setdefault((rest, value is None), {})[value or ""] = line
        merged: dict[_KeptLine, int | None] = {}
        for (rest, _), lines in alike.items():
            several = (*rest.several, (column, _list_values(list(lines))))
            whole = rest._replace(several=several) if len(lines) > 1 else next(iter(lines.values()))
            merged[whole] = _add_sizes([sizes[line] for line in lines.values()])
        sizes = merged
    return dict(sizes)


def _add_sizes(sizes: Sequence[int | None]) -> int | None:
    """The sum; None if one of the sizes depends on the data."""
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _list_values(values: Sequence[str]) -> str:
    """
    >>> _list_values(["'OR'", "'ID'"]), _list_values(list("12345678"))
    ("'OR' and 'ID'", '1, 2, 3, 4, 5 and 3 others')
    """
    others = len(values) - _MAX_VALUES
    return join_words(values if others <= 1 else [*values[:_MAX_VALUES], f"{others} others"])


def _render_kept_lines(verdict: Verdict) -> list[_Line]:
    if verdict.state.entries == 0:
        if is_never_true(verdict):
            return [_Line("  ", "The condition can never be true, so there is never a result.", "  ")]
        return [_Line("  ", "Each row is answered by itself and forgotten.", "  ")]
    rows = list_kept(verdict)
    shown = rows[:_MAX_LINES]
    name_width = max(len(name) for name, _, _ in shown)
    size_width = max(len(size) for _, size, _ in shown)
    lines = []
    for name, size, text in shown:
        start = f"  {name:<{name_width}}  {size:>{size_width}}  "
        lines.append(_Line(start, text, " " * len(start)))
    if len(rows) > _MAX_LINES:
        lines.append(_Line("  ", f"… and {len(rows) - _MAX_LINES} more", "  "))
    return lines


def _approximation_lines(verdict: Verdict) -> list[_Line]:
    """The aggregates whose results are approximate."""
    found = [a for select in verdict.query.selects for a in find_aggregates(select)]
    names = dict.fromkeys(a.text for a in found if a.function in APPROXIMATE)
    return [_Line("  ", f"{name} is approximate.", "    ") for name in names]


def _rate_lines(verdict: Verdict) -> list[_Line]:
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
    return [_Line("  ", remedy, "  "), _Line("    ", "TBLPROPERTIES ('rate' = '1000 per second')", "    ")]


def _list_declared(query: Query) -> dict[str, Table]:
    """The declared tables that a query reads, also in its blocks."""
    every = (o.table.declared for select in list_selects(query) for o in select.every_occurrence)
    return {table.name: table for table in every if table.block is None}


def is_never_true(verdict: Verdict) -> bool:
    """Whether the condition contradicts itself."""
    return verdict.plan is not None and not any(select.needs for select in verdict.plan.selects)


def _render_kept_name(kept: Kept, aliases: Mapping[str | None, set[str | None]]) -> str:
    """The stream's name, with the alias if the stream occurs more than once."""
    if kept.stream is None:
        return "answer"
    return kept.stream if len(aliases[kept.stream]) == 1 else f"{kept.stream} as {kept.alias}"


def _plural(n: int, one: str, many: str) -> str:
    """
    >>> _plural(1, "entry", "entries"), _plural(1234, "entry", "entries"), _plural(10**20, "byte", "bytes")
    ('1 entry', '1,234 entries', '1.0e+20 bytes')
    """
    return f"{n:,} {one if n == 1 else many}" if n < 10**15 else f"{Decimal(n):.1e} {many}"
