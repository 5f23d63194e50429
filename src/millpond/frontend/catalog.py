"""Reads tables from CREATE statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from millpond.errors import SqlError, SqlNameError, SqlTypeError, one_line
from millpond.frontend.conditions import read_row_condition
from millpond.frontend.domains import count_limited_values, count_listed_values
from millpond.frontend.expressions import Reader
from millpond.frontend.refusals import accept_only, is_type_name, unsupported_error
from millpond.frontend.scope import Scope, list_names, read_name, read_table_name
from millpond.frontend.statement import Statement
from millpond.frontend.suggestions import suggest_name
from millpond.query.durations import parse_duration, parse_rate
from millpond.query.expressions import Condition, Ref
from millpond.query.model import Column, Occurrence, SourceSpec, Table, time_columns
from millpond.query.types import MAX_PRECISION, PLAIN_TYPES, STRING, SqlType, decimal, nested

# sqlglot's own names of the types, for example TEXT for STRING and TIMESTAMPTZ for TIMESTAMP.
_NESTED_TYPES = (exp.DType.ARRAY, exp.DType.MAP, exp.DType.STRUCT, exp.DType.BINARY)
_TYPES = {exp.DataType.build(type_.name, dialect="spark").this: type_ for type_ in PLAIN_TYPES}
TYPE_NAMES = ", ".join([*(type_.name for type_ in PLAIN_TYPES), "DECIMAL, ARRAY, MAP, STRUCT, BINARY"])
# The properties of streams; ``cardinality.COLUMN`` is a promise about a column.
_PROPERTIES = ("time", "watermark", "idle", "rate")
_CARDINALITY = "cardinality."
TABLE_FORM = "write CREATE [STREAMING] TABLE name (column type, …) USING format OPTIONS (…) TBLPROPERTIES (…)"


def describe_types(word: str) -> str:
    """The remedy for a word that is not a type: the nearest type, or all of them.

    >>> describe_types("INTT")
    'did you mean INT?'
    """
    return suggest_name(word, TYPE_NAMES.split(", ")) or f"the types are {TYPE_NAMES}"


@dataclass
class _Clauses:
    """The clauses after the columns; ``values`` are the nodes of the properties, for messages."""

    streaming: bool = False
    format: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    values: dict[str, exp.Expr] = field(default_factory=dict)


def read_table(statement: Statement) -> Table:
    """The table that a CREATE statement declares."""
    tree = statement.tree
    if not isinstance(tree, exp.Create):
        raise SqlError(
            "this CREATE statement is not supported",
            statement.token_at(0),
            f"{TABLE_FORM}; put a format with dots in `…`",
        )
    if tree.args.get("kind") != "TABLE":
        construct = " ".join(
            statement.word(i) for i in range(min(3, len(statement.tokens))) if i not in statement.leaves
        )
        raise SqlError(f"{one_line(construct)} is not supported", statement.token_at(0), TABLE_FORM)
    if tree.args.get("expression"):
        message = "CREATE TABLE AS SELECT is not supported"
        raise SqlError(
            message, statement.keyword_at(tree, "AS"), "list the columns, and write the SELECT on its own"
        )
    accept_only(statement, tree, "this", "kind", "exists", "properties")
    clauses = _read_clauses(statement, tree.args.get("properties"))
    if not isinstance(tree.this, exp.Schema):
        raise SqlError("CREATE TABLE without columns is not supported", statement.at(tree.this), TABLE_FORM)
    accept_only(statement, tree.this, "this", "expressions")
    name = read_table_name(statement, tree.this.this)
    columns, checks = _read_columns(statement, tree.this)
    origin = SourceSpec(clauses.format, clauses.options) if clauses.format else None
    table = Table(name, columns, clauses.streaming, source=origin, properties=clauses.properties)
    table = replace(table, time=_find_time_column(statement, table, clauses))
    _check_durations(statement, table, clauses)
    _check_rate(statement, table, clauses)
    reader = Reader(statement, Scope(statement, (Occurrence(name, table),)))
    table = replace(table, checks=tuple(_read_check(reader, each) for each in checks))
    table = replace(table, derived=tuple(reader.scope.derived.get(name, {}).values()))
    declared = _read_cardinalities(statement, table, clauses)
    limited = tuple(
        replace(column, cardinality=min(counts))
        if (counts := [*declared.get(column.name, ()), *_count_listed(table, column)])
        else column
        for column in table.columns
    )
    return replace(table, columns=limited)


def _count_listed(table: Table, column: Column) -> list[int]:
    """The numbers of values to which CHECKs limit a column, if not by comparing it with constants."""
    listed = count_listed_values(table.checks, Ref(table.name, column.name))
    counts = [None if column.type.step else listed, count_limited_values(table, column.name)]
    return [count for count in counts if count is not None]


def _read_cardinalities(statement: Statement, table: Table, clauses: _Clauses) -> dict[str, list[int]]:
    """``cardinality.COLUMN``: the most different values of a column."""
    found: dict[str, list[int]] = {}
    for key, node in clauses.values.items():
        if not key.lower().startswith(_CARDINALITY):
            continue
        wanted, place = key[len(_CARDINALITY) :], statement.at(node)
        column = next((c for c in table.columns if c.name.lower() == wanted.lower()), None)
        if column is None:
            known = list_names(wanted, (c.name for c in table.columns))
            raise SqlNameError(f"there is no column {one_line(wanted)}", place, f"the columns are {known}")
        _require_stream(statement, table, clauses.values, key)
        number = clauses.properties[key].replace("_", "")
        if not number.isdecimal() or not 0 < int(number) < 10**18:
            given = one_line(clauses.properties[key], 40)
            message = f"'{one_line(key, 60)}' = '{given}' is not a number of values"
            raise SqlError(message, place, "write '1000000'")
        found.setdefault(column.name, []).append(int(number))
    return found


def _read_check(reader: Reader, node: exp.Expr) -> Condition:
    interval = node.find(exp.Interval)
    if interval is not None:
        message = "INTERVAL is not supported in CHECK"
        raise SqlError(message, reader.statement.at(interval))
    condition = read_row_condition(reader, node)
    for column in (each for columns in reader.scope.derived.values() for each in columns.values()):
        if column.derivation is not None and column.derivation.time is not None:
            shown = reader.statement.excerpt(node)
            message = f"{shown} calls a function of time, which is not supported in CHECK"
            raise SqlError(message, reader.statement.at(node))
    return condition


# --- columns -----------------------------------------------------------------------------------------


def _read_columns(statement: Statement, schema: exp.Schema) -> tuple[tuple[Column, ...], list[exp.Expr]]:
    columns: dict[str, Column] = {}
    checks: list[exp.Expr] = []
    for each in schema.expressions:
        if isinstance(each, exp.ColumnDef):
            column = _read_column(statement, each, checks)
            if column.name.lower() in columns:
                message = f"column {one_line(column.name)} is declared twice"
                raise SqlNameError(message, statement.at(each), "declare it once")
            columns[column.name.lower()] = column
        elif isinstance(each, exp.Identifier):
            raise SqlError(
                f"the type of {statement.excerpt(each)} is missing",
                statement.at(each),
                f"the types are {TYPE_NAMES}",
            )
        elif isinstance(each, exp.Constraint):
            accept_only(statement, each, "this", "expressions")
            for inner in each.expressions:
                _read_constraint(statement, inner, checks)
        else:
            _read_constraint(statement, each, checks)
    if not columns:
        raise SqlError("the table has no columns", statement.at(schema), "declare at least one")
    return tuple(columns.values()), checks


def _read_column(statement: Statement, node: exp.ColumnDef, checks: list[exp.Expr]) -> Column:
    accept_only(statement, node, "this", "kind", "constraints")
    nullable = True
    for each in node.args.get("constraints") or ():
        accept_only(statement, each, "this", "kind")
        nullable = _read_constraint(statement, each.args["kind"], checks) and nullable
    return Column(read_name(statement, node.this), _read_type(statement, node), nullable)


def _read_constraint(statement: Statement, node: exp.Expr, checks: list[exp.Expr]) -> bool:
    """Add a CHECK to the list; return whether the constraint allows NULL."""
    if isinstance(node, exp.CheckColumnConstraint):
        accept_only(statement, node, "this")
        checks.append(node.this)
    elif isinstance(node, exp.NotNullColumnConstraint):
        accept_only(statement, node, "allow_null")
        return bool(node.args.get("allow_null"))
    elif not isinstance(node, exp.CommentColumnConstraint):
        raise unsupported_error(statement, node)
    return True


def _read_type(statement: Statement, node: exp.ColumnDef) -> SqlType:
    kind, place = node.args.get("kind"), statement.token_at(statement.span(node.this)[0] + 1)
    if not isinstance(kind, exp.DataType):
        raise SqlTypeError(
            f"the type of {statement.excerpt(node.this)} is missing", place, f"the types are {TYPE_NAMES}"
        )
    parameters = [each.this for each in kind.expressions if isinstance(each, exp.DataTypeParam)]
    numbers = [int(each.name) for each in parameters if each.name.isdecimal() and len(each.name) < 10]
    word = statement.word(statement.span(node.this)[0] + 1)
    if not is_type_name(word) and kind.this in (*_TYPES, exp.DType.DECIMAL):  # a name of another dialect
        raise _unknown_type(statement, node, word, f"write {_TYPES.get(kind.this, 'DECIMAL')}")
    if kind.this == exp.DType.DECIMAL:
        precision, scale = (*numbers, *(10, 0)[len(numbers) :])[:2]
        fits = 0 <= scale <= precision <= MAX_PRECISION and precision > 0
        if len(kind.expressions) > 2 or len(numbers) != len(kind.expressions) or not fits:
            remedy = "write DECIMAL(p, s) with 0 <= s <= p <= 38 and p >= 1"
            raise SqlTypeError(f"{one_line(word)} with these parameters is not a type", place, remedy)
        return decimal(precision, scale)
    if kind.this in (exp.DType.VARCHAR, exp.DType.CHAR):
        if len(numbers) != 1 or len(kind.expressions) != 1:
            raise SqlTypeError(f"{one_line(word)} needs a length", place, "write STRING")
        return STRING
    if kind.this in _NESTED_TYPES:
        _mark_type(statement, statement.span(node.this)[0] + 1)
        return nested(kind.sql("spark"), kind.sql("duckdb"))
    if kind.this not in _TYPES:
        raise _unknown_type(
            statement, node, word, "write TIMESTAMP" if word.startswith("TIMESTAMP") else None
        )
    if kind.expressions:
        raise SqlTypeError(f"{one_line(word)} takes no parameters", place, f"write {_TYPES[kind.this]}")
    return _TYPES[kind.this]


def _mark_type(statement: Statement, first: int) -> None:
    """The words of a nested type, ``STRUCT<id: INT, …>``, belong to it."""
    depth, last = 0, first
    for index in range(first + 1, len(statement.tokens)):
        depth += statement.word(index).count("<") - statement.word(index).count(">")
        if depth == 0:
            last = index if ">" in statement.word(index) else first
            break
    statement.leaves.update(range(first, last + 1))


def _unknown_type(statement: Statement, node: exp.ColumnDef, word: str, remedy: str | None) -> SqlTypeError:
    index = statement.span(node.this)[0] + 1
    if is_type_name(word):  # INT UNSIGNED
        word = f"{word} {statement.word(index + 1)}"
    message = f"the type {one_line(word, 40)} is not supported"
    return SqlTypeError(message, statement.token_at(index), remedy or describe_types(word))


# --- clauses -----------------------------------------------------------------------------------------


def _read_clauses(statement: Statement, node: exp.Expr | None) -> _Clauses:
    clauses = _Clauses()
    for each in node.expressions if node else ():
        if isinstance(each, exp.StreamingTableProperty):
            clauses.streaming = True
        elif isinstance(each, exp.FileFormatProperty):
            accept_only(statement, each, "this")
            if clauses.format:
                raise SqlError("USING is given twice", statement.keyword_at(each, "USING"), "give it once")
            clauses.format = _read_key(statement, each.this)
        elif isinstance(each, exp.OptionsProperty):
            for option in each.expressions:
                _read_setting(statement, option, clauses.options)
        elif type(each) is exp.Property:
            key = _read_setting(statement, each, clauses.properties)
            _check_property(statement, each, key)
            clauses.values[key] = each.args["value"]
        elif not isinstance(each, exp.SchemaCommentProperty):
            raise unsupported_error(statement, each)
    if clauses.options and not clauses.format:
        place = statement.keyword_at(statement.tree, "OPTIONS")
        raise SqlError("OPTIONS without USING", place, "name the format, as in USING json OPTIONS (…)")
    return clauses


def _read_setting(statement: Statement, node: exp.Expr, settings: dict[str, str]) -> str:
    """Add a pair of OPTIONS or TBLPROPERTIES; the properties of ours ignore case."""
    accept_only(statement, node, "this", "value")
    key, value = _read_key(statement, node.this), node.args["value"]
    key = key.lower() if key.lower() in _PROPERTIES else key
    if key.lower() in {each.lower() for each in settings}:
        raise SqlError(f"{one_line(key, 40)} is given twice", statement.at(node), "give it once")
    sign = "-" if isinstance(value, exp.Neg) else ""
    inner = value.this if sign else value
    if not isinstance(inner, exp.Literal | exp.Boolean) or (sign and inner.is_string):
        raise SqlError(
            f"the value of {one_line(key, 40)} is not a constant", statement.at(node), "write it in quotes"
        )
    settings[key] = str(inner.this).lower() if isinstance(inner, exp.Boolean) else sign + inner.name
    return key


def _check_property(statement: Statement, node: exp.Expr, key: str) -> None:
    """Refuse a property that is not known: a misspelt one would be a promise that is not kept."""
    if key in _PROPERTIES or key.lower().startswith(_CARDINALITY):
        return
    if not any(statement.word(index) == "TBLPROPERTIES" for index in range(len(statement.tokens))):
        place = statement.keyword_at(node, "WITH")
        raise SqlError("WITH is not supported here", place, "write USING and OPTIONS")
    known = [*_PROPERTIES, f"{_CARDINALITY}COLUMN"]
    message = f"there is no property {one_line(key, 40)}"
    raise SqlNameError(message, statement.at(node), f"the properties are {list_names(key, known)}")


def _read_key(statement: Statement, node: exp.Expr) -> str:
    if isinstance(node, exp.Dot):
        return f"{_read_key(statement, node.this)}.{_read_key(statement, node.expression)}"
    if not isinstance(node, exp.Var | exp.Identifier | exp.Literal):
        raise SqlError(f"{statement.excerpt(node)} is not a name", statement.at(node), "write it in quotes")
    return node.name


def _find_time_column(statement: Statement, table: Table, clauses: _Clauses) -> str | None:
    """The application-time column."""
    candidates = [each.name for each in time_columns(table)]
    if "time" in clauses.values:
        _require_stream(statement, table, clauses.values, "time")
        return _find_named_time(statement, table, clauses)
    if not table.streaming:
        return None
    if len(candidates) > 1:
        names = " or ".join(one_line(each, 40) for each in candidates)
        message = f"stream {one_line(table.name)} has {len(candidates)} TIMESTAMP columns"
        remedy = f"name the application time with TBLPROPERTIES ('time' = '…'): {names}"
        raise SqlError(message, statement.at(statement.tree.this.this), remedy)
    return candidates[0] if candidates else None


def _find_named_time(statement: Statement, table: Table, clauses: _Clauses) -> str:
    wanted, place = clauses.properties["time"], statement.at(clauses.values["time"])
    for column in table.columns:
        if column.name.lower() == wanted.lower():
            if column not in time_columns(table):
                message = f"the time column {one_line(column.name)} is {column.type}, not TIMESTAMP"
                raise SqlTypeError(message, place, "name a TIMESTAMP column")
            return column.name
    known = list_names(wanted, (column.name for column in table.columns))
    raise SqlNameError(f"there is no column {one_line(wanted)}", place, f"the columns are {known}")


def _check_durations(statement: Statement, table: Table, clauses: _Clauses) -> None:
    """``watermark`` and ``idle`` are durations, and need a stream with application time."""
    for key in ("watermark", "idle"):
        if key not in clauses.values:
            continue
        _require_stream(statement, table, clauses.values, key)
        length, place = clauses.properties[key], statement.at(clauses.values[key])
        if table.time is None:
            message = f"stream {one_line(table.name)} has '{key}' but no TIMESTAMP column"
            raise SqlError(message, place, f"declare a TIMESTAMP column, or leave '{key}' out")
        if parse_duration(length) is None:
            message = f"'{key}' = '{one_line(length, 40)}' is not a duration"
            raise SqlError(message, place, "write '10 seconds' or '5 minutes'")


def _check_rate(statement: Statement, table: Table, clauses: _Clauses) -> None:
    """``rate`` is a number of rows per second, minute or hour, of a stream."""
    if "rate" not in clauses.values:
        return
    _require_stream(statement, table, clauses.values, "rate")
    rate, place = clauses.properties["rate"], statement.at(clauses.values["rate"])
    if not parse_rate(rate):
        message = f"'rate' = '{one_line(rate, 40)}' is not a rate"
        raise SqlError(message, place, "write '1000 per second' or '90 per minute'")


def _require_stream(statement: Statement, table: Table, values: Mapping[str, exp.Expr], key: str) -> None:
    if not table.streaming:
        message = f"'{key}' is a property of streams, but this is a static relation"
        raise SqlError(message, statement.at(values[key]), "leave it out, or write CREATE STREAMING TABLE")
