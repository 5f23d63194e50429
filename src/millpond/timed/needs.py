"""What a bounded query in time needs; what is kept for it follows."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.analysis.needs import SelectNeeds
from millpond.query.model import Query


@dataclass(frozen=True)
class TimedPlan:
    """The needs of every select."""

    query: Query
    selects: tuple[SelectNeeds, ...]
