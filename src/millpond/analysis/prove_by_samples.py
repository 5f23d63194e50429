"""Proves growth with rows that are samples of what the query's expressions accept, where others fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millpond.analysis.assumptions import declare_opaque, list_assumptions
from millpond.analysis.regions import JoinRegions
from millpond.analysis.verdict import UNBOUNDED, Verdict
from millpond.analysis.violations import Failure
from millpond.analysis.witness.source import WitnessSource
from millpond.query.model import Query, Select


def prove_by_samples(query: Query, verdict: Verdict, failures: Sequence[tuple[Select, Failure]]) -> Verdict:
    """Unbounded if such a witness is confirmed; otherwise the verdict itself.

    Expressions that DuckDB cannot compute may take any value, where that can be assumed of them.
    """
    from millpond.analysis.witness.sampled_templates import find_sampled_template  # it imports DuckDB
    from millpond.runtime.row_queries import UncomputableError

    reasons = tuple(each.cause or each for each in verdict.reasons)
    proven = replace(verdict, outcome=UNBOUNDED, reasons=reasons)
    try:
        template = find_sampled_template(query)
    except UncomputableError:
        return _assume_values(query, proven, failures[0]) or verdict
    return (
        verdict if template is None else replace(proven, template=template, assumptions=template.assumptions)
    )


def _assume_values(query: Query, proven: Verdict, failed: tuple[Select, Failure]) -> Verdict | None:
    """The proven verdict if a witness is confirmed in which expressions have any value."""
    from millpond.analysis.witness.sampled_templates import find_sampled_template  # it imports DuckDB
    from millpond.runtime.row_queries import UncomputableError

    select, failure = failed
    declared = declare_opaque(query, select)
    try:
        template = find_sampled_template(declared[0]) if declared is not None else None
    except UncomputableError:
        return None
    if template is None:
        return None
    assumed = {*template.assumptions, *list_assumptions(query, select, failure, free=True)}
    source = WitnessSource(select, JoinRegions(failure.part), failure.violation, failure.aggregate)
    return replace(proven, witness_source=source, assumptions=tuple(sorted(assumed)))
