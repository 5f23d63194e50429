"""The refusal of a query that is not bounded: why, how to repair it, and what a budget would find."""

from __future__ import annotations

from pathlib import Path

from millpond.analysis.repair.budget import preview_sample, runs_on_budget
from millpond.analysis.repair.constants import Sample
from millpond.analysis.repair.find import find_repairs
from millpond.analysis.repair.sample import read_sources
from millpond.analysis.repair.show import render_repair
from millpond.analysis.verdict import Verdict
from millpond.errors import NotBoundedError
from millpond.query.model import Query

# The number of repairs that are shown; ``millpond repair`` shows all.
_SHOWN = 3
_WIDTH = 78
_BUDGET = (
    "give it a memory budget (--memory N): it keeps the N tuples expected to give the most results, "
    "and estimates how many results it misses"
)


def refuse_unbounded(verdict: Verdict, folder: Path | None) -> NotBoundedError:
    """The error for a query that is not bounded and has no budget.

    With a ``folder``, the first rows of the streams are read: repairs take their constants from them.
    """
    sample = {} if folder is None else read_sources(verdict.query, folder)
    repairs = _render_repairs(verdict, sample)
    ways = ["change it as shown below"] if repairs else []
    if runs_on_budget(verdict.query):
        ways.append(_BUDGET)
    return NotBoundedError(
        f"the query is {verdict.outcome}, so it is not run",
        f"{verdict.explain()}{repairs}{_preview_budgets(verdict.query, sample)}",
        "; or ".join(ways) or "no change is known that makes it bounded",
    )


def _render_repairs(verdict: Verdict, sample: Sample) -> str:
    """The first repairs as text; empty if there are none."""
    repairs = find_repairs(verdict, sample=sample, budgets=False)
    if not repairs or verdict.query.script is None:
        return ""
    lines = ["", "", "It would be bounded with one of these changes:"]
    for number, repair in enumerate(repairs[:_SHOWN], start=1):
        lines += ["", *render_repair(number, repair, verdict.query.script.text, _WIDTH)]
    if len(repairs) > _SHOWN:
        lines += ["", f"millpond repair shows {len(repairs) - _SHOWN} more."]
    return "\n".join(lines)


def _preview_budgets(query: Query, sample: Sample) -> str:
    """A table of budgets and the share of results they find; empty if the streams cannot be read."""
    advice = preview_sample(query, sample)
    if advice is None:
        return ""
    rows = max(table.num_rows for table in sample.values())
    best = advice.suggested
    heading = f"With --memory, on the first {rows:,} rows of each stream ({best.results:,} results):"
    lines = [f"{each.memory:>9,} tuples find {each.part:>6.1%} of the results" for each in advice.previews]
    if advice.grows:
        last = (
            f"No budget finds nearly all results for ever: longer streams need more tuples.\n"
            f"Start with --memory {best.memory}; the run says what it misses."
        )
    else:
        last = (
            f"Start with --memory {best.memory}: the second half of these rows needs no more than the first."
        )
    return "\n".join(["", "", heading, *lines, "", last])
