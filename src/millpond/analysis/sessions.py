"""The criterion for session windows: what is kept of a session that never ends.

A session does not close for good, as rows that follow each other closely keep it open.  Boundedly many
sessions are open at a time, and an aggregate of fixed size is kept of each; but COUNT(DISTINCT) and MEDIAN
keep the values themselves.
"""

from __future__ import annotations

from millpond.analysis.join_criteria import find_unbounded_projections
from millpond.analysis.regions import JoinRegions
from millpond.analysis.violations import Failure, ViolationCode
from millpond.query.aggregate_functions import keeps_values
from millpond.query.model import Select
from millpond.query.parts import split_into_parts
from millpond.query.trees import find_aggregates, sorted_refs


def find_session_failures(select: Select) -> list[Failure]:
    """The aggregates of an unbounded column whose values a session must keep; none means bounded."""
    parts = split_into_parts(select, disjoint=True)
    failures = []
    for part in parts:
        for aggregate in find_aggregates(select):
            if aggregate.argument is None or not keeps_values(aggregate):
                continue
            columns = sorted_refs(aggregate)
            found = find_unbounded_projections(JoinRegions(part), columns, ViolationCode.HOLISTIC_AGGREGATE)
            failures += [Failure(part, each, aggregate, alone=len(parts) == 1) for each in found]
    return failures
