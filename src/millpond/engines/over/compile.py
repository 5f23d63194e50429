"""Compiles the plan of window functions to a program, as SQL for DuckDB.

Rows are released in the order of time, and all rows of a timestamp together.  A function from the beginning
on is computed for new rows from a summary; any other from the rows around, of which the last ones are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from millpond.engines.over.program import ContextProgram, OverProgram, RankProgram, SummaryProgram
from millpond.plan.over import FunctionNeed, OverPlan
from millpond.query.durations import parse_duration
from millpond.query.expressions import Literal
from millpond.query.model import FrameUnit, Subquery, WindowFunction
from millpond.query.trees import is_aggregate
from millpond.query.types import DOUBLE, MAX_PRECISION, Family, SqlType, arrow_type, decimal
from millpond.query.window_functions import FunctionKind, find_kind, find_offset
from millpond.runtime.query_sql import window_function_sql
from millpond.runtime.sql import Dialect, literal_sql

SHARDS = 8
_RANKS = ("ROW_NUMBER", "RANK", "DENSE_RANK")
_EXTREMES = {"MIN": "least", "MAX": "greatest", "BOOL_AND": "least", "BOOL_OR": "greatest"}
_AGGREGATES = {"MIN": "min", "MAX": "max", "BOOL_AND": "bool_and", "BOOL_OR": "bool_or"}
_MOMENTS = ("VAR_SAMP", "VAR_POP", "STDDEV_SAMP", "STDDEV_POP")
_SUMMARIES = (*_RANKS, *_EXTREMES, *_MOMENTS, "COUNT", "COUNT_IF", "SUM", "AVG", "FIRST_VALUE")
# Functions from the beginning on that need the best row so far, by their second argument.
_BEST = {"MAX_BY": "DESC", "MIN_BY": "ASC"}
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
    function, frame = need.function, need.function.frame
    if need.closes is not None or frame is None or frame.start is not None:
        return None
    if function.function == "MEDIAN":
        return "how often each value occurs in all rows so far is not kept"
    if _is_from_beginning(need) and function.function not in _SUMMARIES and function.function not in _BEST:
        return "an aggregate of all rows so far"
    is_previous = frame.unit is FrameUnit.ROWS and frame.end == -1
    if find_kind(function) is FunctionKind.AGGREGATE and frame.end != 0 and not is_previous:
        return "a frame from the beginning on that ends neither with the current row nor with the one before"
    return None


def _is_summary(need: FunctionNeed) -> bool:
    """Whether a summary of each partition is kept; FIRST_VALUE from the beginning on keeps that value."""
    return _is_from_beginning(need) and need.function.function in _SUMMARIES


def _is_from_beginning(need: FunctionNeed) -> bool:
    """Whether a function is computed from all rows of the partition so far."""
    function, frame = need.function, need.function.frame
    is_first = function.function == "FIRST_VALUE" and frame is not None and frame.start is None
    starts = is_first and frame is not None and frame.end == 0 and not function.ignore_nulls
    return (need.summary or starts) and need.closes is None


@dataclass(frozen=True)
class _SummaryField:
    """A column of a summary: its value for the rows ``x``, and that of several summaries together."""

    name: str
    type: SqlType
    own: str
    merged: str


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
        from millpond.query.expressions import Ref
        from millpond.query.model import Occurrence, Select

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
        first = self._count_first_rows(function)
        if first and function.frame is not None and function.frame.end is None:
            final.append(f"count({self._counted(function)}) OVER ({partition}) >= {first}")
        elif need.later_rows:
            window = f"({partition}ORDER BY {self.order(function)})"
            final.append(f"lead(TRUE, {need.later_rows}) OVER {window} IS NOT NULL")
        if need.later_micros:
            final.append(f"t + {need.later_micros} < watermark")
        if (need.rows or function.function in _BEST) and need.closes is None:
            needed.append(self._needs_row(need, first))
        if (need.micros or need.later_micros) and need.closes is None:
            needed.append(f"t >= watermark - {need.micros + need.later_micros}")
        is_final = " AND ".join(f"({each})" for each in final) or "TRUE"
        return ContextProgram(number, self.call(function), is_final, " OR ".join(needed) or "FALSE")

    def _count_first_rows(self, function: WindowFunction) -> int:
        """How many of the first rows of a partition the function reads; 0 if it reads others."""
        frame = function.frame
        if frame is None or frame.start is not None:
            return 0
        if function.function == "NTH_VALUE":
            return find_offset(function)
        return int(function.function == "FIRST_VALUE")

    def _counted(self, function: WindowFunction) -> str:
        """What is not NULL for rows that count: all rows, or those with a value."""
        return self.value_of(str(function.arguments[0])) if function.ignore_nulls else "*"

    def _needs_row(self, need: FunctionNeed, first: int) -> str:
        """Whether later rows need a row: one of the first or the last rows, or the best one so far."""
        function, frame = need.function, need.function.frame
        number, order = first or need.rows, self.order(function, reverse=not first)
        # A frame of so many rows counts those without a value, too.
        counts_all = frame is not None and frame.unit is FrameUnit.ROWS and frame.start is not None
        skips_nulls = function.ignore_nulls and not counts_all
        passes = [f"{self._counted(function)} IS NOT NULL"] if skips_nulls else []
        if function.function in _BEST and function.frame is not None and function.frame.start is None:
            by = self.value_of(str(function.arguments[1]))
            number, order, passes = 1, f"{by} {_BEST[function.function]} NULLS LAST", [f"{by} IS NOT NULL"]
        parts = ", ".join([*self.keys(function), *passes])
        window = f"({f'PARTITION BY {parts} ' if parts else ''}ORDER BY {order})"
        needed = " AND ".join([*passes, f"row_number() OVER {window} <= {number}"])
        if frame is not None and frame.start is None and frame.end is not None and frame.end < -1:
            # The last row of the frame is counted from the current row.
            parts = ", ".join(self.keys(function))
            window = (
                f"({f'PARTITION BY {parts} ' if parts else ''}ORDER BY {self.order(function, reverse=True)})"
            )
            needed = f"({needed}) OR row_number() OVER {window} <= {-frame.end}"
        return needed

    def compile_summary(self, number: int, need: FunctionNeed) -> SummaryProgram:
        function = need.function
        keys = self.keys(function)
        types = [
            arrow_type(self.type_of(name)) if self.column(name) != "t" else pa.int64()
            for name in function.partition_by
        ]
        value, n, fields = self._summarise(function, f"summary{number}")
        schema = pa.schema(
            [*((f"k{i}", type_) for i, type_ in enumerate(types)), ("n", pa.int64())]
            + [(field.name, arrow_type(field.type)) for field in fields]
        )
        match = (
            " AND ".join(
                f"summary{number}.k{i} IS NOT DISTINCT FROM released.{key}" for i, key in enumerate(keys)
            )
            or "TRUE"
        )
        names = [f"k{i}" for i in range(len(keys))]
        shown = ", ".join(
            [*(f"{key} AS {name}" for key, name in zip(keys, names, strict=True)), f"{n} AS n"]
            + [f"{field.own} AS {field.name}" for field in fields]
        )
        merged = ", ".join(
            [*names, "CAST(sum(n) AS BIGINT) AS n"]
            + [f"CAST({each.merged} AS {each.type.names.duckdb}) AS {each.name}" for each in fields]
        )
        group = f" GROUP BY {', '.join(names)}" if names else ""
        own = f" GROUP BY {', '.join(keys)}" if keys else ""
        old = ", ".join([*names, "n", *(field.name for field in fields)])
        update = (
            f"SELECT {merged} FROM (SELECT {old}, 0 AS o FROM s UNION ALL "
            f"SELECT {shown}, 1 AS o FROM x{own} HAVING count(*) > 0){group}"
        )
        if not keys:
            update = f"SELECT * FROM ({update}) WHERE n IS NOT NULL"
        value = f"CAST({value} AS {function.type.names.duckdb})"
        return SummaryProgram(number, value, match, update, schema)

    def _find_argument(self, function: WindowFunction) -> tuple[str, SqlType]:
        """The first argument of a function, and its type."""
        argument = function.arguments[0]
        if not isinstance(argument, Literal):
            return self.value_of(argument), self.type_of(argument)
        assert argument.type is not None
        return literal_sql(argument.value, argument.type, Dialect.DUCKDB), argument.type

    def _summarise(self, function: WindowFunction, s: str) -> tuple[str, str, tuple[_SummaryField, ...]]:
        """The value of a new row; the count and the further fields of the summary."""
        name, call = function.function, self.call(function)
        if name in _RANKS:
            keys = ", ".join(self.column(k.column) for k in function.order_by)
            n = f"count(DISTINCT ROW({keys}))" if name == "DENSE_RANK" else "count(*)"
            return f"coalesce({s}.n, 0) + {call}", n, ()
        if not function.arguments:
            return f"coalesce({s}.n, 0) + {call}", "count(*)", ()
        x, type_ = self._find_argument(function)
        if name in ("COUNT", "COUNT_IF"):
            n = f"count({x})" if name == "COUNT" else f"count(CASE WHEN {x} THEN 1 END)"
            return f"coalesce({s}.n, 0) + {call}", n, ()
        if name in _EXTREMES:
            made = _AGGREGATES[name]
            field = _SummaryField("a", type_, f"{made}({x})", f"{made}(a)")
            return f"{_EXTREMES[name]}({s}.a, {call})", "count(*)", (field,)
        if name == "FIRST_VALUE":
            first = f"(first(struct_pack(v := {x}) ORDER BY {self.order(function)})).v"
            field = _SummaryField("a", type_, first, "(first(struct_pack(v := a) ORDER BY o)).v")
            return f"CASE WHEN {s}.n IS NULL THEN {call} ELSE {s}.a END", "count(*)", (field,)
        if name in _MOMENTS:
            return self._summarise_moments(function, s, f"CAST({x} AS DOUBLE)")
        is_float = type_.name in ("FLOAT", "DOUBLE")
        total = DOUBLE if is_float else decimal(MAX_PRECISION, type_.scale or 0)
        kept = total.names.duckdb
        add = self._framed(function, f"CAST(sum({x}) {{over}} AS {kept})")
        field = _SummaryField("a", total, f"CAST(sum({x}) AS {kept})", "sum(a)")
        if name == "SUM":
            return f"coalesce({s}.a + {add}, {s}.a, {add})", "count(*)", (field,)
        count = self._framed(function, f"count({x}) {{over}}")
        average = f"(coalesce({s}.a, 0) + coalesce({add}, 0)) / nullif(coalesce({s}.n, 0) + {count}, 0)"
        return average, f"count({x})", (field,)

    def _summarise_moments(
        self, function: WindowFunction, s: str, x: str
    ) -> tuple[str, str, tuple[_SummaryField, ...]]:
        """A variance from the count, the mean ``a`` and the sum ``b`` of squared distances from it.

        Those of two sets of rows, which a merge has at most, add up to those of their union.
        """
        n, mean, more = f"coalesce({s}.n, 0)", f"{s}.a", self._framed(function, f"count({x}) {{over}}")
        other = self._framed(function, f"avg({x}) {{over}}")
        own = self._framed(function, f"coalesce(var_pop({x}) {{over}}, 0)")
        between = f"coalesce(pow({other} - {mean}, 2) * {n} * {more} / nullif({n} + {more}, 0), 0)"
        squares = f"(coalesce({s}.b, 0) + {own} * {more} + {between})"
        rows = f"({n} + {more})" if function.function.endswith("_POP") else f"({n} + {more} - 1)"
        value = f"CASE WHEN {rows} > 0 THEN {squares} / {rows} END"
        pairs = "(sum(n) * sum(n) - sum(n * n)) / 2"
        apart = f"coalesce({pairs} / nullif(sum(n), 0) * pow(max(a) - min(a), 2), 0)"
        fields = (
            _SummaryField("a", DOUBLE, f"avg({x})", "sum(n * a) / nullif(sum(n), 0)"),
            _SummaryField("b", DOUBLE, f"coalesce(var_pop({x}), 0) * count({x})", f"sum(b) + {apart}"),
        )
        is_root = function.function.startswith("STDDEV")
        return f"sqrt({value})" if is_root else value, f"count({x})", fields

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
