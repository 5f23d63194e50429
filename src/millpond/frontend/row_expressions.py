"""Reads any other expression over one row as a derived column of its table.

Whatever the language does not read itself (CASE, LIKE, casts, functions of strings, numbers, dates, JSON) is
left to Spark: an expression over the columns of one occurrence becomes a column that is computed before
anything else.  sqlglot knows the functions, their types, and how Spark and DuckDB spell them;
``spark_functions`` has those that it does not know.  Refused are only expressions that are not functions of
the row: aggregates, subqueries, OVER, functions that make several rows, random numbers and the current time,
and unknown functions, which might be any of these.

Read are conditions of WHERE, ON and CHECK, select items, GROUP BY, arguments of aggregates and FILTER.
Expressions over aggregates, over several occurrences or over one that an outer join can replace by NULLs are
computed from the result (``projections``); arguments of aggregates, from the rows of the join
(``joint_arguments``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.schema import MappingSchema

from millpond.errors import SqlError, SqlTypeError
from millpond.frontend.constants import Bound
from millpond.frontend.domains import count_values, find_limited_column, find_rate
from millpond.frontend.near_times import find_near_columns
from millpond.frontend.refusals import CLOCK_FUNCTIONS, RANDOM_FUNCTIONS, is_unsettled
from millpond.frontend.row_facts import find_facts
from millpond.frontend.scope import Scope
from millpond.frontend.spark_functions import (
    correct_types,
    is_unknown_call,
    make_typable,
    to_duckdb,
)
from millpond.frontend.spark_names import name_expression
from millpond.frontend.statement import Statement
from millpond.frontend.time_zones import find_slack
from millpond.query.derived_names import mark_name
from millpond.query.expressions import Comparison, Literal, Op, Ref
from millpond.query.model import Column, Derivation
from millpond.query.types import (
    BOOLEAN,
    INT,
    INTERVAL_VALUE,
    TIME_VALUE,
    TIMESTAMP,
    TINYINT,
    Family,
    SqlType,
    find_type,
    nested,
)

# Nodes whose value is not determined by the columns of one row.
_NOT_OF_THE_ROW = (
    *(exp.AggFunc, exp.Query, exp.Subquery, exp.Window, exp.WithinGroup, exp.Filter, exp.Star),
    *(*CLOCK_FUNCTIONS, *RANDOM_FUNCTIONS, exp.UDTF, exp.CurrentUser, exp.Placeholder, exp.Parameter),
    *(exp.Tuple, exp.Cube, exp.Rollup, exp.GroupingSets),
)
_TYPE_NAMES = {"TIMESTAMP_NTZ": "TIMESTAMP", "TIMESTAMP_LTZ": "TIMESTAMP"}
# Types of values that no declared column has.
_VALUE_TYPES = {"BINARY": nested("BINARY", "BLOB"), "INTERVAL": INTERVAL_VALUE}
_ROW = "_row"
_NESTED = (exp.DType.ARRAY, exp.DType.MAP, exp.DType.STRUCT)


def is_row_expression(node: exp.Expr) -> bool:
    """Whether a node is an expression over columns that the value of each row determines.

    A function that is not known might be an aggregate, so it is none.
    """
    return all(map(is_row_function, node.walk())) and node.find(exp.Column) is not None


def find_obstacle(node: exp.Expr) -> exp.Expr:
    """The first node in an expression that is not a function of the row; the node itself without one."""
    return next((each for each in node.walk() if not is_row_function(each)), node)


def is_row_function(node: exp.Expr) -> bool:
    """Whether a node by itself, without its operands, is a function of them."""
    if isinstance(node, exp.Exists):  # exists(array, x -> condition)
        return node.args.get("expression") is not None
    return not isinstance(node, _NOT_OF_THE_ROW) and not is_unknown_call(node) and not is_unsettled(node)


def find_derived(scope: Scope, node: exp.Expr) -> tuple[str, Column] | None:
    """The derived column of an expression over one occurrence, with its alias; None for any other node."""
    if not is_row_expression(node):
        return None
    owners = {scope.find_column(column)[0].occurrence for column in node.find_all(exp.Column)}
    if len(owners) != 1:
        return None
    (alias,) = owners
    if alias in scope.extended:  # COALESCE(x, 0) is not NULL in a row that an outer join adds
        return None
    return alias, make_column(scope, alias, node)


def read_row_expression(scope: Scope, node: exp.Expr) -> Bound | None:
    """The derived column that an expression stands for; None if it is not one over a single occurrence."""
    found = find_derived(scope, node)
    if found is None:
        return None
    alias, column = found
    mark_as_read(scope.statement, node)
    name = name_expression(scope.statement, node)
    return Bound(scope.derive(alias, column), column.type, name)


def mark_as_read(statement: Statement, node: exp.Expr) -> None:
    """All words of an expression belong to it; none of them has been skipped by the parser."""
    for each in (node, *node.find_all(exp.Func)):
        first, last = statement.span(each)
        while statement.word(last + 1) == "]":
            last += 1
        # sqlglot records no position for the names of some functions.
        if (
            isinstance(each, exp.Func)
            and statement.word(first - 1) == "("
            and first - 2 not in statement.leaves
        ):
            first = first - 2 if statement.word(first - 2).isidentifier() else first
        statement.leaves.update(range(max(first, 0), last + 1))


def make_column(scope: Scope, alias: str, node: exp.Expr) -> Column:
    """The derived column of an expression over the columns of an occurrence."""
    table = scope.table_of(alias)
    row = node.copy()
    types = {column.name: column.type for column in table.all_columns}
    # The columns of the copy have no positions, for which those of the node are resolved.
    for column, written in zip([*row.find_all(exp.Column)], [*node.find_all(exp.Column)], strict=True):
        plain = _expand(scope, scope.find_column(written)[0])
        row = plain if column is row else row
        column.replace(plain)
    type_ = find_expression_type(scope.statement, node, row, types)
    name = _name(row, frozenset(column.name for column in table.columns))
    facts = tuple(find_facts(table, row, name, type_))
    arguments = tuple(dict.fromkeys(each.name for each in row.find_all(exp.Column)))
    limits = find_limited_column(table, row)
    times = {column.name for column in table.all_columns if column.type.family is Family.TIME}
    numbers = {column.name for column in table.all_columns if column.type.family is Family.NUMBER}
    spark, duckdb = row.sql("spark"), _to_duckdb(row, type_, times, numbers)
    near = find_near_columns(table, row, find_slack(scope.statement.time_zone))
    rate = find_rate(table, row)
    derivation = Derivation(spark, duckdb, facts, arguments=arguments, limits=limits, near=near, rate=rate)
    return Column(name, type_, derivation=derivation, cardinality=count_values(table, row))


def _expand(scope: Scope, ref: Ref) -> exp.Expr:
    """A column, or what it is computed from if it is the value of an expression in a merged block."""
    derivation = scope.column(ref).derivation
    if derivation is None or derivation.time is not None or derivation.gap is not None or derivation.repeated:
        return exp.column(exp.to_identifier(ref.column, quoted=True))
    return exp.Paren(this=sqlglot.parse_one(derivation.sql, read="spark").transform(_to_field))


def _to_field(node: exp.Expr) -> exp.Expr:
    """The field of a struct, which sqlglot reads as a column of a table; rows have no qualified columns."""
    if not isinstance(node, exp.Column) or not node.table:
        return node
    first, *fields = node.parts
    access: exp.Expr = exp.Column(this=first)
    for each in fields:
        access = exp.Dot(this=access, expression=each)
    return access


def derive_constant(scope: Scope, node: exp.Expr, constant: Bound) -> Bound | None:
    """A constant of a merged block as a column of its first table; None if that can be missing."""
    alias, literal = scope.occurrences[0].alias, constant.expression
    if alias in scope.extended or constant.type is None or not isinstance(literal, Literal):
        return None
    table = scope.table_of(alias).name
    name = f"constant {constant.name}"
    fact = Comparison(Ref(table, name), Op.EQ, literal, constant.name)
    spark = f"CAST({node.sql('spark')} AS {constant.type})"
    derivation = Derivation(spark, _to_duckdb(node, constant.type), () if literal.value is None else (fact,))
    return replace(constant, expression=scope.derive(alias, Column(name, constant.type, True, derivation)))


def _name(row: exp.Expr, taken: frozenset[str]) -> str:
    """The expression as text.  Spark and DuckDB ignore the case of names, so strings that differ only in
    case need a name that differs in more."""
    shown = row.copy()
    for identifier in shown.find_all(exp.Identifier):
        identifier.set("quoted", False)
    name = shown.sql("spark")
    strings = [literal.this for literal in row.find_all(exp.Literal) if literal.is_string]
    if any(text != text.lower() for text in strings) or name in taken:
        return mark_name(name, row.sql("spark"))
    return name


def _to_duckdb(
    row: exp.Expr, type_: SqlType, times: Collection[str] = (), numbers: Collection[str] = ()
) -> str:
    """DuckDB's spelling, with a result of the same type."""
    return f"CAST({to_duckdb(row, times, numbers)} AS {type_.names.duckdb})"


def find_expression_type(
    statement: Statement, node: exp.Expr, row: exp.Expr, types: Mapping[str, SqlType]
) -> SqlType:
    """The type of an expression over columns of the given types; ``node`` is its place in the statement.

    It is sqlglot's, which can differ from Spark's among numbers: ``COALESCE`` of a DECIMAL and an INT has
    fewer digits.  ``spark/sources/derived.py`` replaces it by Spark's own when the query runs.
    """
    typed = make_typable(row)
    for column in [*typed.find_all(exp.Column)]:
        column.set("table", exp.to_identifier(_ROW, quoted=True))
    columns = {name: str(type_) for name, type_ in types.items()}
    schema = MappingSchema({_ROW: columns}, dialect="spark", normalize=False)
    found: exp.DataType | None = None
    again: exp.Expr | None = typed
    while again is not None:
        select = exp.select(again.copy()).from_(exp.Table(this=exp.to_identifier(_ROW, quoted=True)))
        try:
            (typed,) = annotate_types(select, schema=schema, dialect="spark").expressions
        except SqlglotError:
            break
        found = typed.type
        again = correct_types(typed)
    if found is not None and found.this in _NESTED and found.expressions:
        return nested(found.sql("spark"), found.sql("duckdb"))
    name = found.sql("spark").upper().replace(", ", ",") if found is not None else "UNKNOWN"
    type_ = _VALUE_TYPES.get(name) or _find_plain_type(name)
    if type_ is None:
        what = "unknown" if name in ("UNKNOWN", "NULL") else f"{name}, which is not supported here"
        message = f"the type of {statement.excerpt(node)} is {what}"
        raise SqlTypeError(
            message, statement.at(node), "write CAST(… AS type) around it" * (what == "unknown")
        )
    is_computed = not isinstance(row, exp.Cast | exp.Column)
    return INT if type_ is TINYINT and is_computed else type_  # sqlglot calls the year of a date a TINYINT


@cache
def _find_plain_type(name: str) -> SqlType | None:
    if name == "DECIMAL":
        name = "DECIMAL(38,18)"
    type_ = find_type(_TYPE_NAMES.get(name, name))
    return TIME_VALUE if type_ is TIMESTAMP else type_


def read_row_predicate(scope: Scope, node: exp.Expr) -> Bound | None:
    """The BOOLEAN column that a condition over one occurrence stands for; None if it is no such condition."""
    bound = read_row_expression(scope, node)
    if bound is not None and bound.type is not BOOLEAN:
        raise SqlError(
            f"{scope.statement.excerpt(node)} is {bound.type}, not a condition", scope.statement.at(node)
        )
    return bound
