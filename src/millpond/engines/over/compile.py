"""Compiles the plan of window functions to a program, as SQL for DuckDB.

Rows are released in the order of time, and all rows of a timestamp together.  A function from the beginning
on is computed for new rows from a summary; any other from the rows around, of which the last ones are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.engines.over.program import ContextProgram, OverProgram, RankProgram, SummaryProgram
from millpond.plan.over import FunctionNeed, OverPlan
from millpond.query.durations import parse_duration
from millpond.query.model import FrameUnit, Literal, Subquery, WindowFunction
from millpond.query.trees import is_aggregate
from millpond.query.types import MAX_PRECISION, Family, SqlType, arrow_type
from millpond.query.window_functions import FunctionKind, find_kind
from millpond.runtime.query_sql import window_function_sql
from millpond.runtime.sql import Dialect, literal_sql

SHARDS = 8
_RANKS = ("ROW_NUMBER", "RANK", "DENSE_RANK")
_EXTREMES = {"MIN": "least", "MAX": "greatest", "BOOL_AND": "least", "BOOL_OR": "greatest"}
_AGGREGATES = {"MIN": "min", "MAX": "max", "BOOL_AND": "bool_and", "BOOL_OR": "bool_or"}
_SUMMARIES = (*_RANKS, *_EXTREMES, "COUNT", "COUNT_IF", "SUM", "AVG", "FIRST_VALUE")
# Functions for which rows with equal sort keys are alike; for others, the order of arrival decides.
_PEERS = ("RANK", "DENSE_RANK")


def find_gap(plan: OverPlan) -> str | None:
    """Why the engine does not run a plan; None if it does."""
    select, base = plan.select, plan.block.base
    if base.block is not None and (base.time is None or not isinstance(base.block, Subquery)):
        return "window functions over a subquery whose rows have no timestamp"
    if len(select.occurrences) != 1 or select.exists:
        return "a join with window functions"
    if is_aggregate(select) or plan.query.terms[0].distinct:
        return "groups or a set of the results of window functions"
    if any(c.derivation is not None and c.derivation.repeated for c in base.derived):
        return "window functions over sliding windows"
    if any(need.revised for need in plan.needs):
        return None if len(plan.needs) == 1 else "a rank by a value beside other window functions"
    if base.time is None:
        return "window functions of a stream without application time"
    for need in plan.needs:
        if gap := _find_function_gap(need):
            return f"{need.function.text or need.function.name} ({gap})"
    return None


def _find_function_gap(need: FunctionNeed) -> str | None:
    function = need.function
    if function.ignore_nulls and need.closes is None and not need.micros:
        return "IGNORE NULLS"
    if _is_summary(need):
        frame = function.frame
        if function.function not in _SUMMARIES:
            return "an aggregate of all rows so far"
        if frame is not None and (frame.end != 0):
            return "a frame from the beginning on that does not end with the current row"
    elif (
        function.function in ("NTH_VALUE", "FIRST_VALUE") and function.frame and function.frame.start is None
    ):
        return None if need.closes is not None else "a value of the first rows"
    return None


def _is_summary(need: FunctionNeed) -> bool:
    """Whether a summary of each partition is kept; FIRST_VALUE from the beginning on keeps that value."""
    frame = need.function.frame
    is_first = need.function.function == "FIRST_VALUE" and frame is not None and frame.start is None
    starts = is_first and frame is not None and frame.end == 0 and need.closes is None
    return (need.summary or starts) and need.closes is None


class _Compiler:
    def __init__(self, plan: OverPlan, used: Sequence[str]) -> None:
        self.plan = plan
        self.base = plan.block.base
        names = [c.name for c in self.base.all_columns if c.name in set(used)]
        for need in plan.needs:
            f = need.function
            names += [*f.partition_by, *(k.column for k in f.order_by)]
            names += [each for each in f.arguments if isinstance(each, str)]
        self.end = self._find_end()
        names += [self.end] if self.end else []
        self.names = tuple(dict.fromkeys(names))

    def _find_end(self) -> str | None:
        """The column with the end of the partitions that close."""
        from millpond.query.buckets import find_bucket
        from millpond.query.model import Occurrence, Ref, Select

        select = Select((Occurrence(self.base.name, self.base),), ())
        for need in self.plan.needs:
            if need.closes is not None:
                columns = [Ref(self.base.name, name) for name in need.function.partition_by]
                bucket = find_bucket(select, self.base.name, columns)
                if bucket is not None and bucket.end.column != self.base.time:
                    return bucket.end.column
        return None

    def column(self, name: str) -> str:
        """The name of a column in the program; timestamps of the rows are compared in microseconds."""
        return "t" if name == self.base.time else f"c{self.names.index(name)}"

    def value_of(self, name: str) -> str:
        return f"c{self.names.index(name)}"

    def type_of(self, name: str) -> SqlType:
        return self.base.column(name).type

    def keys(self, function: WindowFunction) -> list[str]:
        return [self.column(name) for name in function.partition_by]

    def order(self, function: WindowFunction, reverse: bool = False) -> str:
        """The order of a function, with the order of arrival last."""
        words = []
        for key in function.order_by:
            descending, first = key.descending is not reverse, key.nulls_first is not reverse
            direction = "DESC" if descending else "ASC"
            words.append(f"{self.column(key.column)} {direction} NULLS {'FIRST' if first else 'LAST'}")
        return ", ".join([*words, f"seq {'DESC' if reverse else 'ASC'}"])

    def call(self, function: WindowFunction) -> str:
        """The function over the rows of a table."""
        frame = function.frame
        is_range = frame is not None and frame.unit is FrameUnit.RANGE
        ties = (
            function.function not in _PEERS and not is_range and find_kind(function) is not FunctionKind.SHARE
        )
        return window_function_sql(
            function, Family.NUMBER, names=self.column, values=self.value_of, last_key="seq" if ties else None
        )

    # --- functions ---------------------------------------------------------------------------------------

    def compile_context(self, number: int, need: FunctionNeed) -> ContextProgram:
        function = need.function
        parts = ", ".join(self.keys(function))
        partition = f"PARTITION BY {parts} " if parts else ""
        final, needed = [], []
        if need.closes is not None:
            end = f"epoch_us({self.column(self.end)})" if self.end else "t + 1"
            final.append(f"{end} <= watermark")
            needed.append(f"{end} > watermark")
        if need.later_rows:
            window = f"({partition}ORDER BY {self.order(function)})"
            final.append(f"lead(TRUE, {need.later_rows}) OVER {window} IS NOT NULL")
        if need.later_micros:
            final.append(f"t + {need.later_micros} < watermark")
        if need.rows and need.closes is None:
            window = f"({partition}ORDER BY {self.order(function, reverse=True)})"
            needed.append(f"row_number() OVER {window} <= {need.rows}")
        if (need.micros or need.later_micros) and need.closes is None:
            needed.append(f"t >= watermark - {need.micros + need.later_micros}")
        is_final = " AND ".join(f"({each})" for each in final) or "TRUE"
        return ContextProgram(number, self.call(function), is_final, " OR ".join(needed) or "FALSE")

    def compile_summary(self, number: int, need: FunctionNeed) -> SummaryProgram:
        function = need.function
        keys = self.keys(function)
        types = [
            arrow_type(self.type_of(name)) if self.column(name) != "t" else pa.int64()
            for name in function.partition_by
        ]
        value, n, a, total = self._summarise(function, f"summary{number}")
        kept = self._total_type(function)
        schema = pa.schema(
            [*((f"k{i}", type_) for i, type_ in enumerate(types)), ("n", pa.int64())]
            + ([("a", arrow_type(kept))] if kept is not None else [])
        )
        match = (
            " AND ".join(
                f"summary{number}.k{i} IS NOT DISTINCT FROM released.{key}" for i, key in enumerate(keys)
            )
            or "TRUE"
        )
        shown = ", ".join([*(f"{key} AS k{i}" for i, key in enumerate(keys)), f"{n} AS n"])
        names = [f"k{i}" for i in range(len(keys))]
        group = f" GROUP BY {', '.join(names)}" if names else ""
        merged = ", ".join([*names, "CAST(sum(n) AS BIGINT) AS n"])
        if kept is not None:
            shown += f", {a} AS a"
            merged += f", CAST({total} AS {kept.names.duckdb}) AS a"
        own = f" GROUP BY {', '.join(keys)}" if keys else ""
        old = ", ".join([*names, "n", *(["a"] if kept is not None else [])])
        update = (
            f"SELECT {merged} FROM (SELECT {old}, 0 AS o FROM s UNION ALL "
            f"SELECT {shown}, 1 AS o FROM x{own} HAVING count(*) > 0){group}"
        )
        if not keys:
            update = f"SELECT * FROM ({update}) WHERE n IS NOT NULL"
        value = f"CAST({value} AS {function.type.names.duckdb})"
        return SummaryProgram(number, value, match, update, schema)

    def _total_type(self, function: WindowFunction) -> SqlType | None:
        """The type of the kept value; None if only a count is kept."""
        from millpond.query.types import DOUBLE, decimal

        name = function.function
        if name in (*_RANKS, "COUNT", "COUNT_IF"):
            return None
        argument = function.arguments[0]
        type_ = argument.type if isinstance(argument, Literal) else self.type_of(argument)
        assert type_ is not None
        if name not in ("SUM", "AVG"):
            return type_
        if type_.name in ("FLOAT", "DOUBLE"):
            return DOUBLE
        return decimal(MAX_PRECISION, type_.scale or 0)

    def _summarise(self, function: WindowFunction, s: str) -> tuple[str, str, str, str]:
        """The value of a new row; the count, the value and the combined value of the summary."""
        name, call = function.function, self.call(function)
        if name in _RANKS:
            keys = ", ".join(self.column(k.column) for k in function.order_by)
            n = f"count(DISTINCT ROW({keys}))" if name == "DENSE_RANK" else "count(*)"
            return f"coalesce({s}.n, 0) + {call}", n, "", ""
        argument = function.arguments[0] if function.arguments else None
        x = ""
        if argument is not None:
            x = (
                literal_sql(argument.value, argument.type, Dialect.DUCKDB)
                if isinstance(argument, Literal)
                else self.value_of(argument)
            )
        if name in ("COUNT", "COUNT_IF"):
            n = (
                "count(*)"
                if argument is None
                else f"count({x})"
                if name == "COUNT"
                else f"count(CASE WHEN {x} THEN 1 END)"
            )
            return f"coalesce({s}.n, 0) + {call}", n, "", ""
        if name in _EXTREMES:
            made = _AGGREGATES[name]
            return f"{_EXTREMES[name]}({s}.a, {call})", "count(*)", f"{made}({x})", f"{made}(a)"
        if name == "FIRST_VALUE":
            first = f"first(struct_pack(v := {x}) ORDER BY {self.order(function)})"
            return (
                f"CASE WHEN {s}.n IS NULL THEN {call} ELSE {s}.a END",
                "count(*)",
                f"({first}).v",
                "(first(struct_pack(v := a) ORDER BY o)).v",
            )
        total = self._total_type(function)
        assert total is not None
        kept = total.names.duckdb
        add = self._framed(function, f"CAST(sum({x}) {{over}} AS {kept})")
        if name == "SUM":
            return f"coalesce({s}.a + {add}, {s}.a, {add})", "count(*)", f"CAST(sum({x}) AS {kept})", "sum(a)"
        count = self._framed(function, f"count({x}) {{over}}")
        average = f"(coalesce({s}.a, 0) + coalesce({add}, 0)) / nullif(coalesce({s}.n, 0) + {count}, 0)"
        return average, f"count({x})", f"CAST(sum({x}) AS {kept})", "sum(a)"

    def _framed(self, function: WindowFunction, text: str) -> str:
        """An aggregate over the frame of a function."""
        call = self.call(function)
        over = call[call.index(" OVER (") + 1 : call.rindex(" AS ")]
        return text.format(over=over)


def compile_over(plan: OverPlan, used: Sequence[str], divide: bool = True) -> OverProgram:
    """The program of a plan that has no gap; ``used`` are the columns that are emitted beside the values."""
    compiler = _Compiler(plan, used)
    base = plan.block.base
    functions = [need.function for need in plan.needs]
    values = pa.schema([(f"v{i}", arrow_type(f.type)) for i, f in enumerate(functions)])
    types = [(f"c{i}", arrow_type(compiler.type_of(name))) for i, name in enumerate(compiler.names)]
    rows = pa.schema([("seq", pa.int64()), ("t", pa.int64()), *types])
    shared = [name for name in functions[0].partition_by if all(name in f.partition_by for f in functions)]
    shard_by = tuple(shared) if divide else ()
    rank = _compile_rank(compiler, plan) if any(need.revised for need in plan.needs) else None
    summaries, contexts = [], []
    for number, need in enumerate(plan.needs):
        if rank is None and _is_summary(need):
            summaries.append(compiler.compile_summary(number, need))
        elif rank is None:
            contexts.append(compiler.compile_context(number, need))
    outputs = tuple(compiler.value_of(name) for name in used) + tuple(values.names)
    return OverProgram(
        base.name,
        base.time,
        parse_duration(base.properties.get("watermark", "")) or 0,
        compiler.names,
        rows,
        values,
        tuple(summaries),
        tuple(contexts),
        outputs,
        f"epoch_us({compiler.column(compiler.end)})" if compiler.end else None,
        SHARDS if shard_by else 1,
        shard_by,
        rank,
    )


def _compile_rank(compiler: _Compiler, plan: OverPlan) -> RankProgram:
    (need,) = plan.needs
    call = compiler.call(need.function)
    columns = ", ".join(["seq", "t", *(f"c{i}" for i in range(len(compiler.names)))])
    ranked = f"SELECT {columns}, {call} AS v0, TRUE AS f0, TRUE AS e FROM a"
    return RankProgram(f"SELECT * FROM ({ranked}) WHERE v0 <= {need.limit}")
