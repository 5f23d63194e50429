"""Reads typed expressions from sqlglot's nodes: columns, arithmetic, aggregates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from millpond.errors import SqlError, SqlNameError, SqlTypeError, one_line
from millpond.frontend import literals
from millpond.frontend.aggregate_calls import AggregateCall, read_aggregate_call
from millpond.frontend.constants import Bound, read_constant
from millpond.frontend.joint_arguments import (
    PAIRED,
    JointArgumentError,
    JointReader,
    find_owners,
    refuse_lifted,
)
from millpond.frontend.refusals import accept_only, unsupported_error
from millpond.frontend.row_expressions import (
    find_derived,
    find_obstacle,
    is_row_expression,
    read_row_expression,
)
from millpond.frontend.scope import KeepBlockError, Scope, Source, SourceColumn, read_name
from millpond.frontend.spark_names import NAME
from millpond.frontend.statement import AGGREGATES, Statement
from millpond.frontend.time_calls import pick_edge, read_time_call
from millpond.frontend.time_counts import read_function_of_time
from millpond.query.expressions import Aggregate, Arithmetic, Comparison, Literal, Negation, Op, Ref
from millpond.query.model import Column, Derivation
from millpond.query.trees import aliases_in, refs
from millpond.query.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    INTERVAL,
    INTERVAL_VALUE,
    MAX_PRECISION,
    TIMESTAMP,
    WINDOW,
    Domain,
    Family,
    SqlType,
    array_of,
    decimal,
)

OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
CONDITIONS = (
    *(exp.LT, exp.LTE, exp.EQ, exp.GTE, exp.GT, exp.NEQ),
    *(exp.Between, exp.In, exp.Is, exp.And, exp.Or, exp.Not),
)
_OF_TIME = (Family.DATE, Family.TIME, Family.INTERVAL)
_RANKS = ("TINYINT", "SMALLINT", "INT", "BIGINT")


@dataclass(frozen=True)
class Reader:
    """The statement and the scope in which expressions are read.

    ``grouped`` are the columns that may appear outside an aggregate, None if all may.  ``aliases`` are
    the select items that HAVING may name, ``windows`` the calls of ``window`` that ``w.start`` may refer to.
    """

    statement: Statement
    scope: Scope
    grouped: frozenset[Ref] | None = None
    aliases: Mapping[str, exp.Expr] = field(default_factory=dict)
    windows: Mapping[str, exp.Expr] = field(default_factory=dict)


def strip_parentheses(statement: Statement, node: exp.Expr) -> exp.Expr:
    """A node without the parentheses around it."""
    while isinstance(node, exp.Paren):
        accept_only(statement, node, "this")
        node = node.this
    return node


def bind(reader: Reader, node: exp.Expr) -> Bound:
    """The typed expression of a select item or of a side of HAVING."""
    bound = _bind(reader, strip_parentheses(reader.statement, node))
    for each in _layers(node):
        for _ in range(reader.statement.pluses(each)):
            require_number(reader.statement, "+", each, bound.type)
            bound = replace(bound, name=f"(+ {bound.name})")
    return bound


def _layers(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parentheses around a value, from the outside in, then the value."""
    yield node
    while isinstance(node, exp.Paren):
        node = node.this
        yield node


def _bind(reader: Reader, node: exp.Expr) -> Bound:
    called = read_time_call(reader.scope, node, reader.grouped is not None)
    if called is not None:
        _guard_derived(reader, node, called)
        return called
    found = read_constant(reader.statement, node)
    if found:
        return found
    moment = _bind_moment(reader, node)
    if moment is not None:
        return moment
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        return _bind_column(reader, node)
    # GROUP BY A + 5, SELECT A % 5, SUM(price / 3)
    if reader.grouped is not None or _has_few_values(reader, node) or _is_rounded(reader, node):
        derived = _bind_derived(reader, node)
        if derived is not None:
            return derived
    if isinstance(node, exp.Neg):
        return _bind_negation(reader, node)
    if type(node) in OPERATORS:
        return _bind_arithmetic(reader, node)
    if isinstance(node, (*AGGREGATES, exp.Filter)):
        return _bind_aggregate(reader, node)
    derived = _bind_derived(reader, node)
    if derived is not None:
        return derived
    if type(node) in CONDITIONS:
        message = f"the condition {reader.statement.excerpt(node)} is not supported as a value"
        raise SqlError(message, reader.statement.at(node), "select its columns")
    raise unsupported_error(reader.statement, node if has_aggregate(node) else find_obstacle(node))


def _is_rounded(reader: Reader, node: exp.Expr) -> bool:
    """Whether Spark rounds a decimal in an expression of a row: a quotient, or one of too many digits."""
    if type(node) not in OPERATORS or not is_row_expression(node):
        return False
    columns = [find_derived(reader.scope, each) for each in (node, *node.find_all(exp.Div))]
    if columns[0] is None:
        return False
    types = [column[1].type for column in columns if column is not None]
    return types[0].precision == MAX_PRECISION or any(type_.scale is not None for type_ in types[1:])


def _bind_moment(reader: Reader, node: exp.Expr) -> Bound | None:
    """A function of time, or a date or timestamp to which a length of time is added."""
    found = None if isinstance(node, exp.Column) else read_function_of_time(reader.scope, node)
    if found is not None and (reader.grouped is None or found.expression in reader.grouped):
        return found
    if not isinstance(node, exp.Add | exp.Sub | exp.TimestampAdd | exp.TsOrDsAdd):
        return None
    columns = [each for each in node.find_all(exp.Column) if not isinstance(each.this, exp.Star)]
    is_distance = isinstance(node, exp.Sub) and node.expression.find(exp.Column) is not None
    if is_distance or not all(map(reader.scope.knows, columns)):
        return None
    kinds = [reader.scope.resolve(each)[1].type for each in columns]
    if not any(kind is not None and kind.family in (Family.DATE, Family.TIME) for kind in kinds):
        return None
    derived = find_derived(reader.scope, node)
    is_moment = derived is not None and derived[1].type.family in (Family.DATE, Family.TIME)
    return _bind_derived(reader, node) if is_moment else None


def find_grouped_time(reader: Reader, node: exp.Expr) -> Bound | None:
    """A function of time that the select groups by; None for any other expression."""
    if isinstance(node, exp.Column) or reader.grouped is None or not is_row_expression(node):
        return None
    found = read_function_of_time(reader.scope, node)
    return found if found is not None and found.expression in reader.grouped else None


def _bind_derived(reader: Reader, node: exp.Expr) -> Bound | None:
    """The derived column that an expression over one occurrence stands for; it must be grouped by."""
    if any(names_window(reader, each) for each in node.find_all(exp.Column)):
        return None  # the result can be computed from the window
    found = find_derived(reader.scope, node)
    if found is None:
        return None
    alias, column = found
    if reader.grouped is not None and Ref(alias, column.name) not in reader.grouped:
        return None
    return read_row_expression(reader.scope, node)


def _has_few_values(reader: Reader, node: exp.Expr) -> bool:
    """Whether arithmetic has finitely many values whatever its operands, as ``A % 5`` has."""
    found = find_derived(reader.scope, node) if isinstance(node, exp.Mod) else None
    return found is not None and bool(found[1].derivation and found[1].derivation.facts)


def has_aggregate(node: exp.Expr) -> bool:
    """The node contains an aggregate."""
    return any(isinstance(each, AGGREGATES) for each in node.walk())


def require_number(statement: Statement, what: str, node: exp.Expr, kind: SqlType | None) -> None:
    """Refuse a value that is not a number."""
    if kind is None or kind.family is Family.NUMBER:
        return
    is_time = kind.family is Family.TIME
    remedy = "WHERE and ON can add an INTERVAL to a TIMESTAMP" if is_time else "use a numeric column"
    raise SqlTypeError(
        f"{what} needs numbers, but {statement.excerpt(node)} is {kind}", statement.at(node), remedy
    )


# --- columns and arithmetic --------------------------------------------------------------------------


def _bind_column(reader: Reader, node: exp.Column) -> Bound:
    name = read_name(reader.statement, node.this)
    alias = None if node.args.get("table") else reader.aliases.get(name.lower())
    if alias is not None and not _is_grouped(reader, node):
        return replace(bind(replace(reader, aliases={}), alias), name=name)
    window = _bind_window(reader, node)
    if window is not None:
        return window
    of_block = reader.scope.find_window(node) if reader.grouped is not None else None
    start = of_block[1].ref if of_block is not None else None
    if start is not None and start in (reader.grouped or ()):  # its end is a fixed time after its start
        edge = pick_edge(reader.scope, Bound(start, WINDOW, name), node.name, grouped=True)
        return replace(edge, name=name)
    source, column = reader.scope.resolve(node)
    return _bind_source_column(reader, node, source, replace(column, name=node.meta.get(NAME, name)))


def names_window(reader: Reader, node: exp.Column) -> bool:
    """Whether a name is that of a window or of an edge of it, and not that of a column."""
    qualifier = node.args.get("table")
    name = (qualifier or node).name.lower()
    if name not in reader.windows or node.args.get("db"):
        return False
    return not (reader.scope.has_alias(name) if qualifier else reader.scope.knows(node))


def _bind_window(reader: Reader, node: exp.Column) -> Bound | None:
    """``window``, ``window.start`` or ``window.end``, where ``window`` is the only one or an alias."""
    if not names_window(reader, node):
        return None
    qualifier = node.args.get("table")
    name = (qualifier or node).name.lower()
    if qualifier and node.name.upper() not in ("START", "END"):
        message = f"a window has no field {one_line(node.name, 40)}"
        raise SqlError(message, reader.statement.at(node), f"write {name}.start or {name}.end")
    window = read_time_call(reader.scope, reader.windows[name])
    assert window is not None
    _guard_derived(reader, node, window)
    if not qualifier:
        return replace(window, name=node.name)
    return pick_edge(reader.scope, window, node.name, reader.grouped is not None)


def _guard_derived(reader: Reader, node: exp.Expr, bound: Bound) -> None:
    """Refuse a function of a column that is not grouped by, unless the column is."""
    for ref in refs(bound.expression):
        derivation = reader.scope.column(ref).derivation
        if reader.grouped is not None and ref not in reader.grouped and derivation is not None:
            raise SqlError(
                f"{reader.statement.excerpt(node)} is neither in GROUP BY nor inside an aggregate",
                reader.statement.at(node),
                "add it to GROUP BY",
            )


def _guard_grouped(reader: Reader, node: exp.Expr, ref: Ref) -> None:
    if reader.grouped is not None and ref not in reader.grouped:
        raise SqlError(
            f"column {one_line(str(ref))} is neither in GROUP BY nor inside an aggregate",
            reader.statement.at(node),
            f"add it to GROUP BY, or write MIN({one_line(ref.column)})",
        )


def bind_star_column(reader: Reader, node: exp.Expr, column: SourceColumn) -> Bound:
    """One of the columns that ``*`` stands for."""
    source = next(each for each in reader.scope.visible if column in each.columns)
    return _bind_source_column(reader, node, source, column)


def _bind_source_column(reader: Reader, node: exp.Expr, source: Source, column: SourceColumn) -> Bound:
    if column.ref is not None:
        _guard_grouped(reader, node, column.ref)
        return Bound(column.ref, column.type, column.name)
    if reader.grouped is not None or not isinstance(column.value, Bound):
        raise KeepBlockError(source.path)
    return replace(column.value, name=column.name)


def _is_grouped(reader: Reader, node: exp.Column) -> bool:
    """The name refers to a group column, which takes precedence over a select alias."""
    return reader.scope.knows(node) and reader.scope.find_column(node)[0] in (reader.grouped or ())


def _bind_negation(reader: Reader, node: exp.Neg) -> Bound:
    operand = bind(reader, node.this)
    require_number(reader.statement, "-", node.this, operand.type)
    return Bound(Negation(operand.expression), operand.type, f"(- {operand.name})")


def _bind_arithmetic(reader: Reader, node: exp.Expr) -> Bound:
    accept_only(reader.statement, node, "this", "expression", "typed", "safe")
    operator = OPERATORS[type(node)]
    left, right = bind(reader, node.this), bind(reader, node.expression)
    if any(each.type is not None and each.type.family in _OF_TIME for each in (left, right)):
        derived = _bind_derived(reader, node)
        if derived is not None:
            return derived
    if {left.type, right.type} <= {TIMESTAMP, INTERVAL}:  # Spark can compute it from the results
        message = f"{reader.statement.excerpt(node)} is not supported here"
        raise SqlError(message, reader.statement.at(node), "compare the timestamps in WHERE or ON")
    require_number(reader.statement, operator, node.this, left.type)
    require_number(reader.statement, operator, node.expression, right.type)
    expression = Arithmetic(operator, left.expression, right.expression)
    name = f"({left.name} {operator} {right.name})"
    return Bound(expression, arithmetic_type(operator, left.type, right.type), name)


def arithmetic_type(operator: str, left: SqlType | None, right: SqlType | None) -> SqlType | None:
    """The type of a computed number; only its family and whether it is dense are relied on."""
    if left is None or right is None:
        return None
    if literals.is_floating(left) or literals.is_floating(right):
        return DOUBLE
    decimals = [kind for kind in (left, right) if kind.name not in _RANKS]
    if decimals:
        return max(decimals, key=lambda kind: (kind.high or 0, -kind.step))
    if operator == "/":
        return DOUBLE
    return max(left, right, INT, key=lambda kind: _RANKS.index(kind.name))


# --- aggregates --------------------------------------------------------------------------------------


def _bind_aggregate(reader: Reader, node: exp.Expr) -> Bound:
    """An aggregate, with its FILTER."""
    call = read_aggregate_call(reader.scope, node)
    statement, text = reader.statement, reader.statement.slice(node)
    if not call.arguments:
        return Bound(Aggregate("COUNT", None, text=text), BIGINT, "count(1)")
    plain = replace(reader, grouped=None, aliases={})
    bound = _bind_arguments(plain, call)
    name = call.fill_name(each.name for each in bound)
    if not any(aliases_in(each.expression) for each in bound):
        if call.function == "COUNT" and not call.distinct and _is_value(bound[0]):
            return Bound(Aggregate("COUNT", None, text=text), BIGINT, name)  # COUNT(1) counts rows
        bound[0] = _derive_constant(reader, node, bound[0])
    for each, written in zip(bound, call.arguments, strict=True):
        _check_argument(statement, call, each, written)
    others = (*(each.expression for each in bound[1:]), *call.constants)
    aggregate = Aggregate(call.function, bound[0].expression, call.distinct, text, others)
    return Bound(aggregate, find_aggregate_type(call.function, bound[0].type), name)


def _bind_arguments(reader: Reader, call: AggregateCall) -> list[Bound]:
    """The arguments of an aggregate.

    Raises JointArgumentError if they are over several tables and do not split, or over one that an outer join
    can replace by NULLs.
    """
    columns = [column for each in call.arguments for column in each.find_all(exp.Column)]
    owners = find_owners(reader.scope, [each for each in columns if not names_window(reader, each)])
    if len(owners) > 1:
        return _bind_joint(reader, call)
    try:
        return [bind(reader, each) for each in call.arguments]
    except (SqlTypeError, SqlNameError):
        raise
    except SqlError:
        if owners <= reader.scope.extended and all(map(is_row_expression, call.arguments)):
            refuse_lifted(reader.scope, call.arguments)
            raise JointArgumentError(reader.scope) from None
        raise


def _bind_joint(reader: Reader, call: AggregateCall) -> list[Bound]:
    refuse_lifted(reader.scope, call.arguments)
    if call.distinct or (len(call.arguments) > 1 and call.function not in PAIRED):
        raise JointArgumentError(reader.scope)
    joint = JointReader(reader, bind, arithmetic_type)
    return [joint.read(call.function, each) for each in call.arguments]


def _is_value(bound: Bound) -> bool:
    return isinstance(bound.expression, Literal) and bound.expression.value is not None


def _check_argument(statement: Statement, call: AggregateCall, bound: Bound, node: exp.Expr) -> None:
    """Refuse an argument of the wrong type."""
    if bound.type is WINDOW and call.function != "COUNT":
        message = f"{call.function} of a window is not supported"
        raise SqlError(message, statement.at(node), "aggregate its start or its end")
    if bound.type is not None and bound.type.family is Family.NESTED:
        message = f"{call.function} of {statement.excerpt(node)}, which is {bound.type}, is not supported"
        raise SqlTypeError(message, statement.at(node), "aggregate its fields or elements")
    is_length = bound.type is INTERVAL_VALUE and call.function in ("SUM", "AVG")
    if call.numeric and not is_length:
        require_number(statement, call.function, node, bound.type)
    if call.boolean and bound.type is not BOOLEAN:
        message = f"{statement.excerpt(node)} is {bound.type}, not a condition"
        raise SqlTypeError(message, statement.at(node), f"compare it: {statement.excerpt(node)} = …")


def _derive_constant(reader: Reader, node: exp.Expr, constant: Bound) -> Bound:
    """A column with the same constant in every row, for SUM(1)."""
    scope, literal = reader.scope, constant.expression
    alias = next((o.alias for o in scope.occurrences if o.alias not in scope.extended), None)
    if alias is None or not isinstance(literal, Literal) or literal.type is None:
        message = f"{reader.statement.excerpt(node)} aggregates a constant"
        raise SqlError(message, reader.statement.at(node), "write COUNT(*), or aggregate a column")
    written = exp.convert(literal.value)
    name, table = f"{written.sql('spark')} in every row", scope.occurrence_of(Ref(alias, "")).table
    fact = Comparison(Ref(table.name, name), Op.EQ, literal, name)
    spark = f"CAST({written.sql('spark')} AS {literal.type})"
    derivation = Derivation(spark, f"CAST({written.sql('duckdb')} AS {literal.type.names.duckdb})", (fact,))
    column = Column(name, literal.type, nullable=False, derivation=derivation)
    return replace(constant, expression=scope.derive(alias, column))


def find_aggregate_type(function: str, argument: SqlType | None) -> SqlType | None:
    """The type of an aggregate of a column."""
    if function in ("COUNT", "APPROX_COUNT_DISTINCT"):
        return BIGINT
    if function in ("MIN", "MAX", "MIN_BY", "MAX_BY", "PERCENTILE_APPROX") or argument is None:
        return argument
    if function in ("COLLECT_LIST", "COLLECT_SET"):
        return array_of(argument)
    if argument is INTERVAL_VALUE and function in ("SUM", "AVG"):
        return argument
    if function not in ("SUM", "AVG", "MEDIAN"):
        return DOUBLE
    is_decimal = argument.name not in _RANKS and argument.domain is Domain.DISCRETE
    if function != "MEDIAN" and argument.precision is not None and argument.scale is not None:
        digits, scale = (10, 0) if function == "SUM" else (4, 4)  # as in Spark
        precision = min(argument.precision + digits, MAX_PRECISION)
        return decimal(precision, min(argument.scale + scale, MAX_PRECISION))
    if function == "SUM" and not literals.is_floating(argument):
        return argument if is_decimal else BIGINT
    return argument if is_decimal else DOUBLE
