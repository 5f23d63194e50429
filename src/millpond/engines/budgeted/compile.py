"""Compiles a plan to a program: the driver makes every SQL text and schema once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from millpond.engines.budgeted.plan import Band, BudgetedPlan, BudgetedTerm, JoinTree, Leaf, Level, is_integer
from millpond.engines.budgeted.program import (
    ONE,
    BudgetedProgram,
    BudgetedTermProgram,
    GroupProgram,
    JoinKeyKind,
    LeafProgram,
    LevelProgram,
    SelectProgram,
    SideProgram,
)
from millpond.query.expressions import TRUE, Aggregate, Expr, Ref
from millpond.query.model import Select
from millpond.query.trees import find_aggregates, is_aggregate, refs, substitute
from millpond.query.types import Domain, Family, SqlType, arrow_type
from millpond.runtime.aggregates import has_monotone_having
from millpond.runtime.arrow_ipc import schema_to_bytes
from millpond.runtime.duckdb import get_process_duckdb
from millpond.runtime.sql import Dialect, condition_sql, expression_sql

# A shard pays off if it keeps at least TUPLES_PER_SHARD tuples.
TUPLES_PER_SHARD = 8192
MAX_SHARDS = 8
NO_VALUE = "CAST(0 AS BIGINT)"
# The lower and the upper limit of a band or window.
Limits = tuple[float | None, float | None]
# Changes when a shard stores something else for the same program.
_STATE_VERSION = "weighted samples"
# Renamed parts of a program, with the names that identify them in checkpoints.
_FIRST_NAMES = {"BudgetedTermProgram(": "TermProgram(", "<JoinKeyKind.": "<Kind."}


def choose_shards(plan: BudgetedPlan, memory: int) -> int:
    """The number of shards for a budget of ``memory`` tuples."""
    return max(1, min(MAX_SHARDS, memory // TUPLES_PER_SHARD)) if plan.is_shardable else 1


def compile_budgeted(
    plan: BudgetedPlan,
    memory: int,
    dialect: Dialect,
    types: Sequence[str] | None = None,
    shards: int | None = None,
) -> BudgetedProgram:
    """The program; it casts results to the DuckDB types ``types``, if given."""
    shards = choose_shards(plan, memory) if shards is None else shards
    number = 0
    terms = []
    for term in plan.terms:
        selects = []
        for select in term.selects:
            selects.append(_SelectCompiler(select, f"q{number}", dialect, shards))
            number += 1
        terms.append(_compile_term(term, selects, types))
    aggregate = any(term.groups is not None for term in terms)
    retracts = any(term.groups is not None and term.groups.retracts for term in terms)
    names = tuple(f"o{i}" for i in range(len(plan.query.columns)))
    program = BudgetedProgram(tuple(terms), names, memory, shards, aggregate, retracts, b"")
    return replace(program, fingerprint=hashlib.sha256(describe_layout(program).encode()).digest()[:16])


def describe_layout(program: BudgetedProgram) -> str:
    """The text that identifies the layout of the state in checkpoints.

    It leaves out the sources of the streams and the size of the budget: both may change between two runs.
    Renaming a class must not invalidate checkpoints, so the text has the names from the first release.
    """
    text = repr((program.terms, program.shards, _STATE_VERSION))
    for new, first in _FIRST_NAMES.items():
        text = text.replace(new, first)
    return text


def _compile_term(
    term: BudgetedTerm, selects: Sequence[_SelectCompiler], types: Sequence[str] | None
) -> BudgetedTermProgram:
    first = selects[0]
    if is_aggregate(first.plan.select):
        groups = _GroupCompiler(first, types)
        return BudgetedTermProgram((first.build_program(groups.inputs),), groups.build_program(), None)
    compiled = tuple(each.build_program(each.items(types)) for each in selects)
    if not term.distinct:
        return BudgetedTermProgram(compiled, None, None)
    schemas = [
        each.infer_result_schema(program.outputs) for each, program in zip(selects, compiled, strict=True)
    ]
    return BudgetedTermProgram(compiled, None, schema_to_bytes(schemas[0]))


class _SelectCompiler:
    """Names the columns of a join tree, and renders its leaves and levels as SQL."""

    def __init__(self, plan: JoinTree, name: str, dialect: Dialect, shards: int) -> None:
        self.plan = plan
        self.name = name
        self._dialect = dialect
        self._shards = shards
        needed = sorted(plan.needed, key=str)
        self._names = {ref: f"x{i}" for i, ref in enumerate(needed)}
        self._types = {ref: plan.select.type_of(ref) for ref in needed}

    # --- names -------------------------------------------------------------------------------------

    def plain(self, ref: Ref) -> str:
        return self._names[ref]

    def names_in(self, level: Level | None) -> Callable[[Ref], str]:
        """The names of columns in the join of a level; None stands for a tree of a single leaf."""

        def name(ref: Ref) -> str:
            right = level is not None and ref.occurrence in level.right.aliases
            return f"{'r' if right else 'l'}.{self._names[ref]}"

        return name

    def names_in_last(self) -> Callable[[Ref], str]:
        return self.names_in(self.plan.levels[-1] if self.plan.levels else None)

    # --- parts of the program ----------------------------------------------------------------------

    def build_program(self, outputs: str) -> SelectProgram:
        plan = self.plan
        levels = []
        joined = plan.first.aliases
        for number, level in enumerate(plan.levels):
            levels.append(self._compile_level(number, level, joined))
            joined |= level.right.aliases
        leaves = tuple(
            self._compile_leaf(i, leaf, self._leaf_value(i, levels)) for i, leaf in enumerate(plan.leaves)
        )
        return SelectProgram(leaves, tuple(levels), outputs)

    @staticmethod
    def _leaf_value(number: int, levels: Sequence[LevelProgram]) -> str:
        if not levels:
            return NO_VALUE
        return levels[0].left.value if number == 0 else levels[number - 1].right.value

    def items(self, types: Sequence[str] | None) -> str:
        texts = []
        for i, item in enumerate(self.plan.select.items):
            text = expression_sql(item.expression, self.names_in_last(), Dialect.DUCKDB)
            texts.append(f"{text if types is None else f'CAST({text} AS {types[i]})'} AS o{i}")
        return ", ".join(texts)

    def infer_result_schema(self, outputs: str) -> pa.Schema:
        """The schema that DuckDB gives to the output of the last level."""
        empty = self._schema(self._names).empty_table()
        return get_process_duckdb().query(f"SELECT {outputs} FROM t l, t r", {"t": empty}).schema

    def _schema(self, columns: Sequence[Ref] | dict[Ref, str]) -> pa.Schema:
        fields = [(self._names[ref], arrow_type(self._types[ref])) for ref in columns]
        return pa.schema(fields or [(ONE, pa.int32())])

    def _columns_of(self, aliases: frozenset[str]) -> list[Ref]:
        return [ref for ref in self._names if ref.occurrence in aliases]

    def _compile_leaf(self, number: int, leaf: Leaf, value: str) -> LeafProgram:
        columns = self._columns_of(leaf.aliases)
        name = prefixed_names(self._dialect)
        shard = "0"
        if self._shards > 1:
            assert self.plan.shard_columns is not None
            values = [(name(ref), self.plan.select.type_of(ref)) for ref in self.plan.shard_columns[number]]
            shard = self._dialect.shard_of(values, self._shards)
        return LeafProgram(
            f"{self.name}f{number}",
            leaf.stream.table.name,
            tuple((self._names[ref], name(ref)) for ref in columns) or ((ONE, "CAST(1 AS INT)"),),
            condition_sql(leaf.condition, name, self._dialect),
            shard,
            value,
            schema_to_bytes(self._schema(columns)),
        )

    def _compile_level(self, number: int, level: Level, joined: frozenset[str]) -> LevelProgram:
        kind, values, limits = self._join_key(level)
        needed_later = {
            ref
            for later in self.plan.levels[number:]
            for ref in refs(later.condition)
        } | self._result_columns()  # fmt: skip
        sides = []
        for side, aliases, value in (
            ("l", joined, values[0]),
            ("r", level.right.aliases, values[1]),
        ):
            columns = [ref for ref in self._columns_of(aliases) if ref in needed_later]
            schema = schema_to_bytes(self._schema(columns))
            place = self._window_position(level.window, right=side == "r")
            sides.append(SideProgram(f"{self.name}{side}{number}", value, place, schema))
        condition = condition_sql(level.condition, self.names_in(level), Dialect.DUCKDB)
        return LevelProgram(
            sides[0],
            sides[1],
            kind,
            condition,
            level.exact,
            self._has_integer_keys(level),
            level.window is not None,
            *limits,
        )

    def _has_integer_keys(self, level: Level) -> bool:
        pairs = level.equal if level.band is None else ((level.band.left, level.band.right),)
        return all(is_integer(self.plan.select.type_of(ref)) for pair in pairs for ref in pair)

    def _result_columns(self) -> frozenset[Ref]:
        """The columns that the select list, GROUP BY and HAVING need."""
        select = self.plan.select
        used = {ref for item in select.items for ref in refs(item.expression)}
        return frozenset(used | set(select.group_by or ()) | refs(select.having))

    def _join_key(self, level: Level) -> tuple[JoinKeyKind, tuple[str, str], Limits]:
        """The kind of the join key, its SQL text on either side, and the limits of the band or window."""
        limits = _limits(level.window or level.band)
        type_of = self.plan.select.type_of
        if len(level.equal) == 1 and all(is_integer(type_of(ref)) for ref in level.equal[0]):
            left, right = (_number(self.plain(ref), type_of(ref), "BIGINT") for ref in level.equal[0])
            return JoinKeyKind.NUMBER, (left, right), limits
        if level.equal:
            texts = []
            for side in (0, 1):
                columns = [
                    _hashable(self.plain(pair[side]), _common_type(*map(type_of, pair)), Dialect.DUCKDB)
                    for pair in level.equal
                ]
                texts.append(f"CAST(hash({', '.join(columns)}) >> 1 AS BIGINT)")
            return JoinKeyKind.HASH, (texts[0], texts[1]), limits
        if level.band is not None:
            band = level.band
            left, right = (
                _number(self.plain(ref), type_of(ref), "DOUBLE") for ref in (band.left, band.right)
            )
            return JoinKeyKind.BAND, (left, right), limits
        return JoinKeyKind.NOTHING, (NO_VALUE, NO_VALUE), limits

    def _window_position(self, window: Band | None, right: bool) -> str:
        """The position of a tuple in the sliding window, as SQL; 0 without one."""
        if window is None:
            return "CAST(0 AS DOUBLE)"
        ref = window.right if right else window.left
        return _number(self.plain(ref), self.plan.select.type_of(ref), "DOUBLE")


def _limits(band: Band | None) -> Limits:
    if band is None:
        return None, None
    low, high = (None if x is None else float(x) for x in (band.low, band.high))
    return low, high


def prefixed_names(dialect: Dialect) -> Callable[[Ref], str]:
    """The names of columns in the frame of a leaf."""
    return lambda ref: dialect.name_of(str(ref))


def _number(text: str, type_: SqlType, number: str) -> str:
    """A column as a number of the type ``number``, in DuckDB SQL."""
    if type_.domain is Domain.TIME:
        text = Dialect.DUCKDB.micros(text)
    elif type_.family is Family.DATE:
        text = Dialect.DUCKDB.days(text)
    return f"CAST({text} AS {number})"


def _common_type(one: SqlType, other: SqlType) -> SqlType | None:
    """The type of both; None where they differ."""
    return one if one == other else None


def _hashable(text: str, type_: SqlType | None, dialect: Dialect) -> str:
    """A text whose equal values have equal hashes, whatever their number types and the sign of zero."""
    if type_ is not None and type_.family in (Family.STRING, Family.DATE, Family.TIME, Family.BOOLEAN):
        return text
    return f"(CAST({text} AS DOUBLE) + CAST(0 AS DOUBLE))"


# --- groups ------------------------------------------------------------------------------------------


class _GroupCompiler:
    """Compiles the aggregates of a select to partial aggregates that can be merged."""

    def __init__(self, compiler: _SelectCompiler, types: Sequence[str] | None) -> None:
        self._compiler = compiler
        self._select: Select = compiler.plan.select
        self._types = types
        self._aggregates = find_aggregates(self._select)
        self._keys = self._select.group_by or ()

    @property
    def inputs(self) -> str:
        """The select list of a match: the grouping columns and the arguments of the aggregates."""
        name = self._compiler.names_in_last()

        def text(expr: Expr) -> str:
            return expression_sql(expr, name, Dialect.DUCKDB)

        keys = [f"{text(ref)} AS g{i}" for i, ref in enumerate(self._keys)]
        values = [
            f"{'TRUE' if a.argument is None else text(a.argument)} AS e{i}"
            for i, a in enumerate(self._aggregates)
        ]
        return ", ".join([*keys, *values, "1 AS one"])

    def build_program(self) -> GroupProgram:
        names = [f"g{i}" for i in range(len(self._keys))]
        compiler = self._compiler
        matches = compiler.infer_result_schema(self.inputs).empty_table()
        parts = [column for i, a in enumerate(self._aggregates) for column in _partials(i, a, matches)]
        group = f" GROUP BY {', '.join(names)}" if names else " HAVING count(*) > 0"
        listed = [*names, *(f"{text} AS {name}" for name, text, _ in parts), "count(*) AS matches"]
        partial = f"SELECT {', '.join(listed)} FROM matches{group}"
        merged = [*names, *(f"{text} AS {name}" for name, _, text in parts)]
        merge = f"SELECT {', '.join([*merged, 'CAST(sum(matches) AS BIGINT) AS matches'])} FROM rows{group}"
        schema = get_process_duckdb().query(partial, {"matches": matches}).schema
        retracts = self._select.having != TRUE and not has_monotone_having(self._select)
        return GroupProgram(len(names), partial, merge, self._finish(), retracts, schema_to_bytes(schema))

    def _finish(self) -> str:
        """SQL from merged groups to result rows."""
        stand_in: dict[Expr, Ref] = {a: Ref("", f"a{i}") for i, a in enumerate(self._aggregates)}
        stand_in |= {ref: Ref("", f"g{i}") for i, ref in enumerate(self._keys)}

        def name(ref: Ref) -> str:
            if ref.column.startswith("g"):
                return ref.column
            return _final_value(int(ref.column[1:]), self._aggregates[int(ref.column[1:])])

        items = []
        for i, item in enumerate(self._select.items):
            text = expression_sql(substitute(item.expression, stand_in), name, Dialect.DUCKDB)
            items.append(f"{text if self._types is None else f'CAST({text} AS {self._types[i]})'} AS o{i}")
        having = condition_sql(substitute(self._select.having, stand_in), name, Dialect.DUCKDB)
        keys = "".join(f"g{i}, " for i in range(len(self._keys)))
        return f"SELECT {keys}{', '.join(items)} FROM groups WHERE {having}"


def _partials(number: int, aggregate: Aggregate, matches: pa.Table) -> list[tuple[str, str, str]]:
    """The partial aggregates that an aggregate needs: name, SQL over matches, and SQL that merges several."""
    argument = f"e{number}"
    count = (f"n{number}", f"count({argument})", f"CAST(sum(n{number}) AS BIGINT)")
    if aggregate.function == "COUNT":
        return [count]
    if aggregate.function in ("MIN", "MAX"):
        function = aggregate.function.lower()
        return [(f"m{number}", f"{function}({argument})", f"{function}(m{number})")]
    kind = matches.schema.field(argument).type
    scale = kind.scale if pa.types.is_decimal(kind) else 0
    exact = "DOUBLE" if pa.types.is_floating(kind) else f"DECIMAL(38,{scale})"
    return [
        count,
        (f"s{number}", f"CAST(sum({argument}) AS {exact})", f"CAST(sum(s{number}) AS {exact})"),
    ]


def _final_value(number: int, aggregate: Aggregate) -> str:
    """The value of an aggregate, as SQL over its partial aggregates."""
    match aggregate.function:
        case "COUNT":
            return f"n{number}"
        case "SUM":
            return f"s{number}"
        case "AVG":
            return f"(CAST(s{number} AS DOUBLE) / CAST(nullif(n{number}, 0) AS DOUBLE))"
    return f"m{number}"
