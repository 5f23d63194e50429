"""Spark's analysed plan as a tree of values.

Nodes and expressions are named by the class that Spark gives them, without its package: ``Aggregate``,
``EventTimeWatermark``, ``AttributeReference``.  Their fields have Spark's names as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


class UnsupportedPlanError(Exception):
    """A plan that cannot be rendered; the message names the construct."""


@dataclass(frozen=True)
class Attribute:
    """A column of a node's output.  ``type`` is a type of Spark SQL; ``delay`` its watermark's, in ms."""

    name: str
    expr_id: int
    type: str
    nullable: bool = True
    delay: int | None = None


@dataclass(frozen=True)
class PlanExpression:
    """An expression: its class, its children, and its other fields.

    ``expr_id`` is the column that an AttributeReference reads, or that an Alias makes.  Expressions that are
    no children (the branches of a CASE) and plans (of subqueries) are among the fields.  ``function`` is the
    name under which Spark's registry lists the class.
    """

    kind: str
    children: tuple[PlanExpression, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    expr_id: int | None = None
    name: str | None = None
    type: str | None = None
    value: str | None = None
    function: str | None = None

    def walk(self) -> Iterator[PlanExpression]:
        """The expression and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def columns(self) -> frozenset[int]:
        """The IDs of the columns that the expression reads."""
        found = (each.expr_id for each in self.walk() if each.kind == "AttributeReference")
        return frozenset(each for each in found if each is not None)


@dataclass(frozen=True)
class PlanSource:
    """Where a leaf reads from.  Leaves with equal ``identity`` read the same rows."""

    format: str
    options: Mapping[str, str] = field(compare=False)
    identity: str


@dataclass(frozen=True)
class PlanNode:
    """An operator: its class, its inputs, its fields (with expressions as trees), and its output.

    ``streaming`` says whether an input below it is a stream.  ``source`` is known of leaves.  The output of a
    plan inside an expression is known of its leaves only.
    """

    kind: str
    children: tuple[PlanNode, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    streaming: bool = False
    output: tuple[Attribute, ...] = ()
    source: PlanSource | None = None

    def walk(self) -> Iterator[PlanNode]:
        """The node and all below it, without plans inside expressions."""
        yield self
        for child in self.children:
            yield from child.walk()

    def expressions(self, name: str) -> tuple[PlanExpression, ...]:
        """The expressions of a field: those of a list, a single one, or none."""
        value = self.fields.get(name)
        if isinstance(value, PlanExpression):
            return (value,)
        values = value if isinstance(value, tuple) else ()
        return tuple(each for each in values if isinstance(each, PlanExpression))

    def expression(self, name: str) -> PlanExpression | None:
        """The expression of a field, if it has one."""
        return next(iter(self.expressions(name)), None)


def split_conjuncts(condition: PlanExpression | None) -> Iterator[PlanExpression]:
    """The conditions that AND connects."""
    if condition is None:
        return
    if condition.kind == "And":
        for child in condition.children:
            yield from split_conjuncts(child)
    else:
        yield condition
