"""The verdict on a query: an outcome, its reasons, the plan or the source of witnesses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.errors import NotUnboundedError, WitnessSizeError, is_whole, require
from millpond.plan.state import State
from millpond.query.model import Query

if TYPE_CHECKING:
    from millpond.analysis.repair.model import Repair
    from millpond.analysis.witness.model import Witness, WitnessTemplate
    from millpond.analysis.witness.search import SearchBudget
    from millpond.analysis.witness.source import WitnessSource
    from millpond.plan.needs import TimedPlan
    from millpond.plan.over import OverPlan
    from millpond.plan.synopses import ExactPlan

BOUNDED = "bounded"
UNBOUNDED = "unbounded"
UNDETERMINED = "undetermined"


class UndeterminedCode(StrEnum):
    """Why there is no verdict; the values are the public codes of the reasons."""

    TOO_MANY_ALTERNATIVES = "too-many-alternatives"
    NO_SYNOPSIS = "no-synopsis"
    UNCONFIRMED = "unconfirmed"
    TOO_MANY_ORDERS = "too-many-orders"
    NO_STREAM = "no-stream"
    SECOND_TIMESTAMP = "second-timestamp"
    NEVER_FINAL = "never-final"
    SEVERAL_OUTER_STREAMS = "several-outer-streams"
    NESTED_OUTER_JOINS = "nested-outer-joins"
    SESSION_OF_PARTNERS = "session-of-partners"
    BLOCK = "block"
    REVISED = "revised-block"
    CURRENT_TIME = "current-time"
    OPAQUE_OPERATOR = "opaque-operator"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True)
class Reason:
    """Why a query is not bounded: a code, the columns and the predicate (as the user wrote it), a sentence.

    ``code`` is the value of a ``ViolationCode`` or an ``UndeterminedCode``; the latter may have a failed
    criterion as their ``cause``.
    """

    code: str
    columns: tuple[str, ...]
    predicate: str | None
    message: str
    cause: Reason | None = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "columns": list(self.columns),
            "predicate": self.predicate,
            "message": self.message,
        }


@dataclass(frozen=True)
class Verdict:
    """The outcome and what supports it.

    A bounded query has a plan of what is kept: ``plan``, for the exact engine, or ``timed``, for the timed
    engine, if timestamps matter, or ``over``, for window functions.  An unbounded query has a
    ``witness_source`` or, if it has blocks, a ``template`` of witnesses.  ``published`` says where the
    theorem of paper 2, as published, differs.  ``assumptions`` are what an unbounded verdict takes for
    granted of the expressions of the query.  ``blocks`` are the verdicts on its subqueries that are tables of
    their own, by name, and ``block`` is the one that the first reason is about, if it is about one.
    ``spark_state`` says of a DataFrame whether the state that Spark itself keeps for it is "flat" or "grows".
    """

    outcome: str
    reasons: tuple[Reason, ...]
    state: State
    query: Query = field(repr=False)
    plan: ExactPlan | None = field(default=None, repr=False)
    timed: TimedPlan | None = field(default=None, repr=False)
    over: OverPlan | None = field(default=None, repr=False)
    witness_source: WitnessSource | None = field(default=None, repr=False)
    template: WitnessTemplate | None = field(default=None, repr=False)
    published: str | None = None
    assumptions: tuple[str, ...] = ()
    blocks: Mapping[str, Verdict] = field(default_factory=dict, repr=False)
    block: str | None = None
    spark_state: str | None = None
    spark_reasons: tuple[str, ...] = ()

    @property
    def query_text(self) -> str:
        return self.query.text

    def explain(self, width: int = 78) -> str:
        """The verdict as text: a headline, then indented lines, none longer than ``width``."""
        from millpond.analysis.explain import explain

        require(is_whole(width), "width", "a whole number", width)
        return explain(self, width)

    def _repr_html_(self) -> str:
        """The verdict as a card, which notebooks show."""
        from millpond.analysis.card import render_card

        return render_card(self)

    def witness(self, n: int) -> dict[str, Any]:
        """A confirmed witness with ``n`` optional rows, as JSON values.

        Raises NotUnboundedError unless the query is unbounded, and WitnessSizeError if the columns' types
        have too few values for ``n`` rows.
        """
        return self.build_witness(n).to_json()

    def build_witness(self, n: int, budget: SearchBudget | None = None) -> Witness:
        """The same witness as Python values.  The search for it ends when the budget, if given, is spent."""
        from millpond.analysis.witness.search import build_witness

        require(is_whole(n), "n", "a whole number", n)
        if self.template is not None:
            from millpond.analysis.witness.templates import build_from_template

            return build_from_template(self.query, self.template, n)
        if self.witness_source is None:
            raise NotUnboundedError(
                f"the query is {self.outcome}: there is no witness that its memory must grow"
            )
        try:
            return build_witness(self.query, self.witness_source, n, budget)
        except WitnessSizeError as error:
            if not self.assumptions:
                raise
            message = f"no rows are known that show this; the verdict assumes that {self.assumptions[0]}"
            raise WitnessSizeError(message) from error

    def repairs(self, limit: int | None = None, sample: str | PathLike[str] | None = None) -> list[Repair]:
        """The smallest changes that make the query bounded, best first; none for a bounded query.

        Each is the whole text with a few edits, and has been decided again.  Constants are taken from
        ``sample``, a file of the stream or a folder with a file for each; without it they are placeholders.
        """
        from millpond.analysis.repair.find import find_repairs
        from millpond.analysis.repair.sample import read_sample

        require(limit is None or is_whole(limit), "limit", "a whole number", limit)
        is_path = sample is None or isinstance(sample, str | PathLike)
        require(is_path, "sample", "a path", sample)
        rows = read_sample(self.query, Path(sample)) if sample is not None else {}
        return find_repairs(self, limit, rows)

    def to_json(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "reasons": [reason.to_json() for reason in self.reasons],
            "state": self.state.to_json(),
            "query": self.query_text,
            "published": self.published,
            "assumptions": list(self.assumptions),
            "block": self.block,
            "spark_state": self.spark_state,
            "blocks": {name: verdict.to_json() for name, verdict in self.blocks.items()},
        }
