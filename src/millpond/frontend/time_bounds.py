"""What a condition says about the time between two timestamps."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp


@dataclass(frozen=True)
class TimeBound:
    """``later - earlier`` is less (or greater) than so many microseconds, or equal to them."""

    operator: type[exp.Expr]
    micros: int


@dataclass(frozen=True)
class TimeDifference:
    """What a condition says about the time between two expressions.

    ``bounds`` follow from it, and with ``exact`` it follows from them.  Beyond ``reach`` microseconds it has
    the same value for all larger differences: ``if_far``.
    """

    later: exp.Expr
    earlier: exp.Expr
    bounds: tuple[TimeBound, ...]
    exact: bool
    reach: int
    if_far: bool
