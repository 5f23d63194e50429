"""What witnesses are built from, and what a candidate for a witness is.

A witness is built from a violation in steps: propose candidates (``candidates.py``), solve for the values of
their rows (``values.py``), assign timestamps (``times.py``) and confirm by brute force (``search.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from millpond.analysis.regions import JoinRegions
from millpond.analysis.violations import Violation
from millpond.analysis.witness.values import Assignment
from millpond.query.expressions import Aggregate, Literal, Ref
from millpond.query.model import NullRow, Select
from millpond.query.trees import walk


@dataclass(frozen=True)
class WitnessSource:
    """The violation to prove: in one part of one select, for one aggregate or (None) the select itself."""

    select: Select
    regions: JoinRegions
    violation: Violation
    aggregate: Aggregate | None = None

    @property
    def aliases(self) -> list[str]:
        """The occurrences that have rows: neither the virtual stream of MIN and MAX nor missing partners."""
        part = self.regions.part
        known = {o.alias for o in self.select.occurrences}
        known -= {o.alias for o in part.select.occurrences if isinstance(o.table.block, NullRow)}
        return [alias for alias in part.aliases if alias in known]


@dataclass(frozen=True)
class CandidateRow:
    """A row of a candidate: an occurrence, the assignment that has its values, its timestamp once known."""

    occurrence: str
    assignment: Assignment
    timestamp: Fraction | None = None


@dataclass(frozen=True)
class WitnessCandidate:
    """A candidate for a witness: ``setup`` rows, optional rows (``universe``) and one probe per optional row.

    ``shared``: occurrences whose columns have the same values in all assignments, so that one row serves all
    matches; None if that is not known.  ``step_by_step``: the answer is observed after each row of a probe.
    """

    setup: tuple[CandidateRow, ...]
    universe: tuple[CandidateRow, ...]
    probes: tuple[tuple[CandidateRow, ...], ...]
    shared: tuple[str, ...] | None = None
    step_by_step: bool = False


def split_by_moving_columns(source: WitnessSource) -> list[WitnessSource]:
    """The source with each choice of moving columns."""
    choices = (source.violation.moving, *source.violation.alternatives)
    return [replace(source, violation=replace(source.violation, moving=t, alternatives=())) for t in choices]


def find_kept_aliases(source: WitnessSource) -> list[str]:
    """The occurrences whose rows can be the optional ones: first the one that the violation names."""
    holders = [source.violation.kept_alias, *(ref.occurrence for ref in source.violation.columns)]
    return list(dict.fromkeys(alias for alias in holders if alias in source.aliases))


def find_argument_alias(source: WitnessSource) -> str | None:
    """The occurrence of the aggregated column; None if no single column is aggregated."""
    argument = source.aggregate.argument if source.aggregate else None
    return argument.occurrence if isinstance(argument, Ref) else None


def find_having_constants(select: Select) -> set[int]:
    """The constants in HAVING; an answer may show nothing until they are reached."""
    literals = (n.value for n in walk(select.having) if isinstance(n, Literal))
    return {abs(value) for value in literals if isinstance(value, int)}
