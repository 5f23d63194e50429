"""The answer of the checker: an outcome, its reasons, and what must be kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millpond.errors import NotUnboundedError
from millpond.plan.state import State
from millpond.query.model import Query

if TYPE_CHECKING:
    from millpond.analysis.witness.candidates import Clue
    from millpond.plan.needs import TimedPlan
    from millpond.plan.synopses import ExactPlan

BOUNDED = "bounded"
UNBOUNDED = "unbounded"
UNDETERMINED = "undetermined"


@dataclass(frozen=True)
class Reason:
    """Why: which condition, which columns, which predicate (the user's own text), and one sentence."""

    code: str
    columns: tuple[str, ...]
    predicate: str | None
    message: str

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "columns": list(self.columns),
            "predicate": self.predicate,
            "message": self.message,
        }


@dataclass(frozen=True)
class Verdict:
    """The outcome with its certificate: ``plan`` (or ``timed``, where time matters) if bounded, ``clue`` (the
    source of witnesses) if not.  ``published`` says what the paper's own theorem makes of a query in time,
    where that differs."""

    outcome: str
    reasons: tuple[Reason, ...]
    state: State
    query: Query = field(repr=False)
    plan: ExactPlan | None = field(default=None, repr=False)
    timed: TimedPlan | None = field(default=None, repr=False)
    clue: Clue | None = field(default=None, repr=False)
    published: str | None = None

    @property
    def query_text(self) -> str:
        return self.query.text

    def explain(self) -> str:
        """Prose for a person: a verdict line, then a few indented lines."""
        from millpond.analysis.explain import explain

        return explain(self)

    def witness(self, n: int) -> dict[str, Any]:
        """A confirmed proof of growth with ``n`` optional rows, as JSON values.

        Raises NotUnboundedError unless the query is unbounded, WitnessSizeError where the columns' types
        have no room for ``n`` rows.
        """
        from millpond.analysis.witness.search import witness_of

        if self.clue is None:
            raise NotUnboundedError(
                f"the query is {self.outcome}: there is no witness that its memory must grow"
            )
        return witness_of(self.query, self.clue, n).to_json()

    def to_json(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "reasons": [reason.to_json() for reason in self.reasons],
            "state": self.state.to_json(),
            "query": self.query_text,
            "published": self.published,
        }
