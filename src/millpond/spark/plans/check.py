"""``millpond.check`` of a streaming DataFrame: the verdict on the same query as SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, UNDETERMINED, Reason, UndeterminedCode, Verdict
from millpond.errors import MillpondError, SqlError, UsageError
from millpond.frontend.parse import parse
from millpond.frontend.spark_functions import declare_functions
from millpond.plan.state import Kept, State, Window
from millpond.query.model import Query
from millpond.spark.plans.nodes import PlanNode, UnsupportedPlanError
from millpond.spark.plans.operators import TRANSPARENT, OpaqueOperatorError, describe_operator
from millpond.spark.plans.read import read_optimised_plan, read_plan
from millpond.spark.plans.state import predict_state
from millpond.spark.plans.translate import translate_plan

_CURRENT_TIME = {"CurrentTimestamp", "CurrentDate", "Now", "LocalTimestamp", "CurrentTime"}
OUTPUT_MODES = ("append", "update", "complete")


def check_frame(frame: DataFrame, output_mode: str = "append") -> Verdict:
    """The verdict on a streaming DataFrame: that of the same query as SQL, whatever the output mode.

    A plan with an operator whose state is opaque, or that has no SQL, is undetermined.
    """
    if not isinstance(frame, DataFrame):
        raise UsageError(f"the query must be a streaming DataFrame, not {type(frame).__name__}")
    if not hasattr(frame, "_jdf"):
        raise MillpondError(
            "the plans of Spark Connect cannot be read",
            remedy="check the DataFrame in a classic Spark session",
        )
    if output_mode not in OUTPUT_MODES:
        raise MillpondError(
            f"there is no output mode {output_mode!r}", remedy=f"use {', '.join(OUTPUT_MODES)}"
        )
    if not frame.isStreaming:
        raise MillpondError(
            "the DataFrame is not a streaming one", remedy="read its source with spark.readStream"
        )
    plan = read_plan(frame)
    state = predict_state(_find_executed_plan(frame, plan), output_mode)
    return replace(decide_plan(plan), spark_state=state.outcome, spark_reasons=state.reasons)


def _find_executed_plan(frame: DataFrame, analysed: PlanNode) -> PlanNode:
    """The optimised plan, which Spark executes, or the analysed one where that does not tell.

    Spark's optimiser replaces the current time by a constant; a query takes a new one for every batch.
    """
    expressions = (
        each for node in analysed.walk() for name in node.fields for each in node.expressions(name)
    )
    if any(each.kind in _CURRENT_TIME for expression in expressions for each in expression.walk()):
        return analysed
    try:
        return read_optimised_plan(frame)
    except (Py4JError, PySparkException):
        return analysed


def decide_plan(plan: PlanNode) -> Verdict:
    """The verdict on the query that an analysed plan stands for."""
    try:
        translated = translate_plan(plan)
        with declare_functions(translated.functions):
            (query,) = parse(translated.text)
    except OpaqueOperatorError as found:
        return _build_undetermined(plan, UndeterminedCode.OPAQUE_OPERATOR, str(found))
    except UnsupportedPlanError as gap:
        return _build_undetermined(plan, UndeterminedCode.UNSUPPORTED, f"{gap} cannot be written as SQL")
    except SqlError as error:
        return _build_undetermined(plan, UndeterminedCode.UNSUPPORTED, error.message)
    verdict = decide(query)
    for below in translated.below:
        verdict = _combine(verdict, decide_plan(below))
    return _add_windows(verdict, translated.windows)


def _combine(verdict: Verdict, below: Verdict) -> Verdict:
    """The verdict on a plan whose opaque function takes the rows of another one."""
    if below.outcome == BOUNDED:
        state = _add(verdict.state, below.state) if verdict.outcome == BOUNDED else verdict.state
        return replace(verdict, state=state)
    if verdict.outcome != BOUNDED:
        return verdict
    assumption = "the function that takes these rows depends on each of them"
    assumed = (*below.assumptions, assumption) if below.outcome == UNBOUNDED else ()
    return replace(below, assumptions=assumed)


def _add(one: State, other: State) -> State:
    def total(a: int | None, b: int | None) -> int | None:
        return None if a is None or b is None else a + b

    entries, size = total(one.entries, other.entries), total(one.bytes, other.bytes)
    return State(entries, size, one.streams + other.streams, [*one.windows, *other.windows])


def _add_windows(verdict: Verdict, windows: Sequence[tuple[str, int]]) -> Verdict:
    """The verdict with the keys that ``dropDuplicatesWithinWatermark`` keeps for so many ms."""
    if verdict.outcome != BOUNDED or not windows:
        return verdict
    kept = tuple(
        Kept(stream, stream, (), (f"keys of the last {delay / 1000:g} seconds",), None, None, closes=True)
        for stream, delay in windows
    )
    rows: list[Window] = [{"stream": stream, "seconds": delay / 1000} for stream, delay in windows]
    return replace(verdict, state=_add(verdict.state, State(None, None, kept, rows)))


def _build_undetermined(plan: PlanNode, code: UndeterminedCode, message: str) -> Verdict:
    steps = [describe_operator(node) for node in plan.walk() if node.kind not in TRANSPARENT]
    query = Query((), (), text=" <- ".join(steps))
    return Verdict(UNDETERMINED, (Reason(code, (), None, message),), State(None, None), query)
