"""The rows of a declared table, each marked with what is wrong with it.

Spark by itself turns a value that it cannot read into NULL, and looks only at the columns that a query
uses.  Here every declared column of every row is read and checked, whatever the query uses: the expression
of the reason refers to all of them, and stands behind a barrier that the optimiser does not move.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType, StringType, StructField, StructType

from millpond.errors import MillpondError, one_line
from millpond.query import model
from millpond.query.model import Condition, Expr, Op, Table, Truth
from millpond.query.trees import walk
from millpond.query.types import DATE, INTEGERS, TIMESTAMP, Family, SqlType
from millpond.spark.failure import cause_of

REASON, RECORD = "_reason", "_record"

_CORRUPT, _PARSED, _WHOLE = "_millpond_corrupt", "_millpond_parsed", "_millpond_whole"
# Formats that make NULLs of what they cannot read, unless they are given a column for the record.
_LENIENT = ("json", "csv", "xml")
_FILES = (*_LENIENT, "parquet", "orc", "avro", "text", "binaryfile")
_RESERVED = ("mode", "columnnameofcorruptrecord")
_RECODING = ("encoding", "charset")
# Options for cutting a file into records; a function over one record does without them.
_CUTTING = ("path", "header", "linesep", "multiline", *_RECODING)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_GLOB = re.compile(r"([\\\[\]{}*?])")
_WIDTH = 60  # of a value shown in a reason
_SPARE = 16  # fields beyond the declared ones that are counted one by one
_UNKNOWN = "a value is not of its declared type"
_ENDS = ("0001-01-01", "9999-12-31 23:59:59.999999")
_SAFE = (("tinyint", "smallint", "int", "bigint"), ("float", "double"), ("date", "timestamp"))


@dataclass(frozen=True)
class Source:
    """The declared columns in order; with ``rejects`` also REASON and RECORD.

    REASON says what is wrong with a row, and is NULL for a good one.  RECORD is then the record as it came,
    or the row as JSON where Spark does not keep it; it is NULL for a good row.  A rejected row has NULL in
    the columns that could not be read.
    """

    frame: DataFrame
    rejects: bool

    @property
    def good(self) -> DataFrame:
        """The rows with nothing wrong."""
        return self.frame.where(f"{REASON} IS NULL") if self.rejects else self.frame


@dataclass(frozen=True)
class _Rows:
    """What a format yields: ``damage`` says why a record could not be read, ``record`` is its text."""

    frame: DataFrame
    columns: Sequence[Column]
    damage: Column | None = None
    record: Column | None = None


@dataclass(frozen=True)
class _Opening:
    """A table on its way to rows."""

    spark: SparkSession
    table: Table
    format: str
    options: Mapping[str, str]  # by names in lower case

    def load(self, format: str, schema: StructType | None, **extra: str) -> DataFrame:
        reader = self.spark.readStream if self.table.streaming else self.spark.read
        reader = reader.format(format).options(**{**self.options, **extra})
        return (reader if schema is None else reader.schema(schema)).load()

    @property
    def multiline(self) -> bool:
        return self.options.get("multiline", "").lower() == "true"


def open_source(spark: SparkSession, table: Table, folder: Path, strict: bool = False) -> Source:
    """The rows of a table; a relative path in its options starts from the folder.

    With ``strict`` there are no rejected rows: the first one fails the query, whatever the query uses of it.
    """
    opening = _opening(spark, table, folder)
    try:
        rows = _rows(opening)
    except (PySparkException, Py4JError) as error:
        raise _explained(opening, error) from None
    return _judged(table, rows, strict)


def spark_schema(table: Table) -> StructType:
    """The declared columns as Spark types, all of them nullable: a rejected row holds NULLs."""
    return StructType([StructField(column.name, spark_type(column.type)) for column in table.columns])


def spark_type(type_: SqlType) -> DataType:
    """A type of the language as Spark has it."""
    made: DataType = type_.names.spark.call(T)
    return made


# --- what was declared ---------------------------------------------------------------------------------


def _opening(spark: SparkSession, table: Table, folder: Path) -> _Opening:
    name = one_line(table.name)
    for column in table.columns:
        if column.name.lower() in (REASON, RECORD, _CORRUPT):
            raise MillpondError(f"{name}: the column name {column.name} is taken", remedy="choose another")
    if table.source is None:
        remedy = f"add USING … OPTIONS (path '…') to CREATE TABLE {name}"
        raise MillpondError(f"{name} does not say where its rows come from", remedy=remedy)
    # Spark also knows its own formats by old names such as org.apache.spark.sql.json.
    last = table.source.format.rpartition(".")[2].lower()
    format_ = last if last in _LENIENT else table.source.format
    options = {key.lower(): value for key, value in table.source.options.items()}
    for key in table.source.options:
        if last in _LENIENT and key.lower() in _RESERVED:
            message = f"{name}: the option {key} is about malformed rows"
            raise MillpondError(message, remedy="leave it out; they are found, counted and kept apart")
    if last in _FILES and not options.get("path"):
        raise MillpondError(f"{name} does not say where its files are", remedy="add OPTIONS (path '…')")
    if "path" in options:
        options["path"] = _located(options["path"], folder)
    return _Opening(spark, table, format_, options)


def _located(path: str, folder: Path) -> str:
    """A path as Spark takes it: a glob pattern, in which the folder stands for itself.

    >>> _located("data/*", Path("/a[1]")), _located("s3a://b/c", Path("/a")), _located("/d", Path("/a"))
    ('/a\\\\[1\\\\]/data/*', 's3a://b/c', '/d')
    """
    if _SCHEME.match(path) or Path(path).is_absolute():
        return path
    return _GLOB.sub(r"\\\1", folder.absolute().as_posix()) + "/" + path


def _explained(opening: _Opening, error: Exception) -> MillpondError:
    """What Spark says when it does not open a source, in our words where they are clearer."""
    name, text = one_line(opening.table.name), str(error)
    if "PATH_NOT_FOUND" in text:
        message = f"{name}: there is nothing at {one_line(opening.options.get('path', ''), 200)}"
        return MillpondError(message, remedy="create the folder, or correct the path in OPTIONS")
    if "DATA_SOURCE_NOT_FOUND" in text or "DATA_SOURCE_NOT_ENABLED" in text:
        message = f"{name}: Spark has no format {one_line(opening.format, 40)}"
        return MillpondError(message, remedy="correct it, or add the package that brings it to Spark")
    cause = one_line(cause_of(error), 200)
    return MillpondError(f"{name}: Spark does not open it: {cause}", remedy="correct its USING and OPTIONS")


# --- good and bad rows ---------------------------------------------------------------------------------


def _judged(table: Table, rows: _Rows, strict: bool) -> Source:
    """The rows with the first thing that is wrong with each, or guarded by it."""
    names = [_column(column.name) for column in table.columns]
    nothing = F.lit(None).cast("string")
    damage = nothing if rows.damage is None else rows.damage
    record = nothing if rows.record is None else rows.record
    read = rows.frame.select(*rows.columns, damage.alias(REASON), record.alias(RECORD))
    reasons = [] if rows.damage is None else [F.col(REASON)]
    for column in table.columns:
        if not column.nullable:
            missing = f"{column.name} is NULL but declared NOT NULL"
            reasons.append(F.when(_column(column.name).isNull(), missing))
    for check in table.checks:
        if check not in (Truth(True), Truth(None)):
            broken = f"CHECK ({one_line(_spelled(check), 200)}) is broken"
            reasons.append(F.when(~_truth(table, check), broken))
    if not reasons:
        return Source(read.select(*names), False)
    reason = F.coalesce(*reasons)
    shown = F.coalesce(F.col(RECORD), F.to_json(F.struct(*names), {"ignoreNullFields": "false"}))
    if strict:
        told = F.concat(F.lit(f"malformed row in {table.name}: "), reason, F.lit(": "), shown)
        guard = F.when(_barrier() & reason.isNull(), True).otherwise(F.raise_error(told).cast("boolean"))
        return Source(read.where(guard).select(*names), False)
    judged = read.select(*names, F.when(_barrier(), reason).alias(REASON), F.col(RECORD))
    record = F.when(F.col(REASON).isNotNull(), shown).alias(RECORD)
    return Source(judged.select(*names, F.col(REASON), record), True)


def _barrier() -> Column:
    """True, but not to the optimiser: it neither moves a filter through it nor computes it twice."""
    return F.spark_partition_id() >= 0


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


# --- formats -------------------------------------------------------------------------------------------


def _rows(opening: _Opening) -> _Rows:
    if opening.format == "json" and opening.options.keys().isdisjoint(_RECODING) and not opening.multiline:
        return _json_lines(opening)
    if opening.format in _LENIENT:
        return _lenient(opening)
    schema = spark_schema(opening.table)
    try:
        return _Rows(opening.load(opening.format, schema), [_column(name) for name in schema.names])
    except PySparkException as error:
        if "user-specified schema" not in str(error):
            raise
    return _fitted(opening.table, opening.load(opening.format, None))


def _json_lines(opening: _Opening) -> _Rows:
    """One JSON object a line; an array is for files that are read whole, with ``multiLine``.

    Spark's own reader stops after the first value of a line: of two objects that have run together it drops
    the second, without a word.  So lines are read as text, and a line has to be one object to its end.
    """
    lines = opening.load("text", None)
    # What a folder's name says, as in day=2024-01-31, Spark has made a column already.
    folders = {name.lower() for name in lines.columns} - {"value"}
    given = [column.name for column in opening.table.columns if column.name.lower() in folders]
    schema = StructType([field for field in _read_schema(opening) if field.name not in given])
    line = _column("value")
    wide = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {**_record_options(opening), "columnNameOfCorruptRecord": _CORRUPT}
    parsed = F.from_json(F.when(_barrier(), line), wide, options)
    # Where the only brace that closes is the last character, nothing can follow the object.
    is_plain = line.endswith("}") & (F.octet_length(F.replace(line, F.lit("}"))) == F.octet_length(line) - 1)
    is_whole = (is_plain | _is_json(opening, line)).alias(_WHOLE)
    frame = lines.select(*map(_column, given), line.alias(RECORD), parsed.alias(_PARSED), is_whole)
    frame = frame.where(F.col(_PARSED).isNotNull())  # NULL is a blank line
    frame = frame.select("*", *(F.col(_PARSED).getField(name).alias(name) for name in schema.names))
    is_bad = F.col(_PARSED).getField(_CORRUPT).isNotNull() | ~F.col(_WHOLE)
    damage = F.when(is_bad, F.coalesce(_json_damage(opening, F.col(RECORD)), F.lit(_UNKNOWN)))
    return _fitted(opening.table, frame, damage, F.col(RECORD))


def _lenient(opening: _Opening) -> _Rows:
    """Files read by Spark's own reader, which keeps the text of a record that it cannot read.

    All columns are in the expression of the damage, so that none is left out when the files are read.  Of a
    JSON file with ``multiLine``, what follows its first value is not read.
    """
    schema = _read_schema(opening)
    wide = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    frame = opening.load(opening.format, wide, mode="PERMISSIVE", columnNameOfCorruptRecord=_CORRUPT)
    record = F.col(_CORRUPT)
    if opening.format == "json":
        damage = _json_damage(opening, record)
    elif opening.format == "csv":
        damage = _csv_damage(opening, record)
    else:
        told = "not valid XML, or a value is not of its declared type; NULL are: "
        damage = F.concat(F.lit(told), F.array_join(_empty(opening.table), ", "))
    damage = F.when(record.isNotNull(), F.coalesce(damage, F.lit(_UNKNOWN)))
    return _fitted(opening.table, frame, damage, record)


def _read_schema(opening: _Opening) -> StructType:
    """The declared columns; of JSON, TINYINT is read in a wider type, as Spark makes -128 of 128."""
    wider: dict[DataType, DataType] = {T.ByteType(): T.ShortType()} if opening.format == "json" else {}
    declared = spark_schema(opening.table)
    return StructType([StructField(f.name, wider.get(f.dataType, f.dataType)) for f in declared])


def _fitted(
    table: Table, frame: DataFrame, damage: Column | None = None, record: Column | None = None
) -> _Rows:
    """The declared columns from those of a frame, cast where the types differ.

    Where values have been read from text (``damage``), dates have to lie between the ends of their type.
    """
    columns: list[Column] = []
    damages = [] if damage is None else [damage]
    fields = {field.name.lower(): field for field in frame.schema}
    for column, wanted in zip(table.columns, (field.dataType for field in spark_schema(table)), strict=True):
        field = fields.get(column.name.lower())
        if field is None:
            message = f"{one_line(table.name)}: its source has no column {one_line(column.name)}"
            shown = ", ".join(f"{f.name} {f.dataType.simpleString().upper()}" for f in fields.values())
            raise MillpondError(message, remedy=f"it has {one_line(shown, 200)}")
        given = value = _column(field.name)
        is_sure = _is_safe(field.dataType, wanted)
        if field.dataType != wanted:
            value = given.try_cast(wanted)
            _guard_cast(table, column, frame.select(given), value)
        if damage is not None and column.type in (DATE, TIMESTAMP):
            is_sure = False
            low, high = (F.lit(end).cast(wanted) for end in _ENDS)
            value = F.when(value.between(low, high), value)
        columns.append(value.alias(column.name))
        if not is_sure:
            is_lost, text = given.isNotNull() & value.isNull(), given.cast("string")
            if isinstance(field.dataType, T.NumericType) and column.type.family is Family.NUMBER:
                is_lost |= value.try_cast(field.dataType) != given
            else:
                text = _quoted(text)
            damages.append(F.when(is_lost, _misfit(F.lit(column.name), text, F.lit(column.type.name))))
    return _Rows(frame, columns, F.coalesce(*damages) if damages else None, record)


def _guard_cast(table: Table, column: model.Column, given: DataFrame, cast: Column) -> None:
    try:
        given.select(cast)
    except PySparkException:
        message = f"{one_line(table.name)}: {one_line(column.name)} is declared {column.type}"
        kind = given.schema.fields[0].dataType.simpleString().upper()
        raise MillpondError(message, remedy=f"its source has {kind}, which makes no {column.type}") from None


def _is_safe(given: DataType, wanted: DataType) -> bool:
    """Every value of the one type is a value of the other."""
    if given == wanted or isinstance(wanted, StringType):
        return True
    names = given.simpleString(), wanted.simpleString()
    return any(set(names) <= set(chain) and chain.index(names[0]) < chain.index(names[1]) for chain in _SAFE)


# --- what is wrong with a record -----------------------------------------------------------------------


def _json_damage(opening: _Opening, record: Column) -> Column:
    """Why a record is not an object of the declared types."""
    texts, values = (
        F.from_json(record, T.MapType(StringType(), type_), _record_options(opening)).alias(name)
        for name, type_ in (("texts", StringType()), ("values", T.VariantType()))
    )

    def found(read: Column) -> Column:
        def told(name: Column) -> Column:
            text = F.try_element_at(read.getField("texts"), name)
            kind = F.schema_of_variant(F.try_element_at(read.getField("values"), name))
            shown = F.when(kind == "STRING", _quoted(text)).otherwise(_cut(text))
            return _misfit(name, shown, _type_of(opening.table, name))

        fields = read.getField("texts")
        lost = F.filter(_empty(opening.table), lambda name: F.try_element_at(fields, name).isNotNull())
        other = "an array with a wrong value in it" if opening.multiline else "not a JSON object"
        return F.when(fields.isNull(), other).otherwise(_let(F.get(lost, F.lit(0)), told))

    return F.when(_is_json(opening, record), _let(F.struct(texts, values), found)).otherwise("not valid JSON")


def _csv_damage(opening: _Opening, record: Column) -> Column:
    """Which field of a line is wrong, or how many there are."""
    names = [column.name for column in opening.table.columns]
    declared, most = len(names), len(names) + _SPARE
    # An empty field is NULL, as is one that is not there; a mark at the end of the last one tells them apart.
    mark = F.lit("\ue000")

    def split(text: Column) -> Column:
        line = F.from_csv(text, ", ".join(f"f{i} STRING" for i in range(most)), _record_options(opening))
        return _let(line, lambda line: F.array(*(line.getField(f"f{i}") for i in range(most))))

    def counted(fields: Column) -> Column:
        place = F.array_position(F.transform(fields, lambda field: field.endswith(mark)), True)
        return F.when(place > 0, place).otherwise(most)

    def found(read: Column) -> Column:
        def told(name: Column) -> Column:
            place = F.array_position(F.array(*map(F.lit, names)), name) - 1
            shown = _quoted(F.get(fields, place.cast("int")))
            return _misfit(name, shown, _type_of(opening.table, name))

        fields, count = read.getField("fields"), read.getField("count")
        number = F.when(count == most, f"{most} or more fields").when(count == 1, "1 field")
        number = number.otherwise(F.concat(count.cast("string"), F.lit(" fields")))
        miscounted = F.concat(number, F.lit(f" where {declared} are declared"))
        lost = F.filter(_empty(opening.table), lambda name: told(name).isNotNull())
        misfit = F.when(count <= declared, _let(F.get(lost, F.lit(0)), told))
        return F.coalesce(misfit, F.when(count != declared, miscounted))

    count = _let(split(F.concat(record, mark)), counted)
    return _let(F.struct(split(record).alias("fields"), count.alias("count")), found)


def _is_json(opening: _Opening, record: Column) -> Column:
    """The record is one JSON value, to its end: a parser that finds more in this place fails."""
    inside = F.concat(F.lit('[{"_":'), record, F.lit("\n}]"))
    schema = T.ArrayType(StructType([StructField("none", StringType())]))
    return F.from_json(inside, schema, _record_options(opening)).isNotNull()


def _record_options(opening: _Opening) -> dict[str, str]:
    kept = {key: value for key, value in opening.options.items() if key not in _CUTTING}
    return {**kept, "mode": "PERMISSIVE"}


def _empty(table: Table) -> Column:
    """The names of the columns that are NULL."""
    return F.array_compact(F.array(*(F.when(_column(c.name).isNull(), c.name) for c in table.columns)))


def _type_of(table: Table, name: Column) -> Column:
    types = F.create_map(*(F.lit(text) for c in table.columns for text in (c.name, c.type.name)))
    return F.try_element_at(types, name)


def _misfit(name: Column, shown: Column, type_: Column) -> Column:
    return F.concat(name, F.lit(": "), shown, F.lit(" is not "), type_)


def _quoted(text: Column) -> Column:
    return F.concat(F.lit("'"), _cut(text), F.lit("'"))


def _cut(text: Column) -> Column:
    short = F.concat(F.left(text, F.lit(_WIDTH - 1)), F.lit("…"))
    return F.when(F.length(text) > _WIDTH, short).otherwise(text)


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """An expression over a value that is computed once, not once for each mention.

    Spark makes no Java code of ``zip_with``, which keeps rare work out of the method that sees every row:
    Java compiles no method beyond a certain size.
    """
    return F.zip_with(F.array(value), F.array(F.lit(0)), lambda each, _: body(each))[0]


# --- conditions ----------------------------------------------------------------------------------------

_COMPARE: dict[Op, Callable[[Column, Column], Column]] = {
    Op.LT: lt, Op.LE: le, Op.EQ: eq, Op.GE: ge, Op.GT: gt, Op.NE: ne,
}  # fmt: skip


def _truth(table: Table, condition: Condition) -> Column:
    """A condition over the table's columns, three-valued."""
    match condition:
        case Truth(value=value):
            return F.lit(value).cast("boolean")
        case model.Comparison(left=left, operator=operator, right=right):
            return _COMPARE[operator](_value(table, left), _value(table, right))
        case model.IsNull(operand=operand):
            return _value(table, operand).isNull()
        case model.Not(operand=operand):
            return ~_truth(table, operand)
        case model.NotTrue(operand=operand):
            return ~F.coalesce(_truth(table, operand), F.lit(False))
        case model.And(operands=operands):
            return reduce(and_, (_truth(table, each) for each in operands))
        case model.Or(operands=operands):
            return reduce(or_, (_truth(table, each) for each in operands))


def _value(table: Table, expression: Expr) -> Column:
    match expression:
        case model.Literal(value=value, type=type_):
            text = F.lit(None if value is None else str(value))
            return text if type_ is None else text.cast(spark_type(type_))
        case model.Ref(column=name):
            return _column(name)
        case model.Arithmetic(operator=operator, left=model.Ref(column=name), right=right):
            # A whole number plus a constant does not overflow in this type.
            is_whole = table.column(name).type in INTEGERS
            left = _column(name).cast("decimal(20,0)") if is_whole else _column(name)
            return (F.try_add if operator == "+" else F.try_subtract)(left, _value(table, right))
        case model.Arithmetic() | model.Negation() | model.Aggregate():
            raise ValueError("a CHECK compares columns, shifted columns and constants")


def _spelled(condition: Condition) -> str:
    """A condition as it was written; ``BETWEEN`` and ``IN`` have become several comparisons."""
    match condition:
        case model.Comparison(text=text) | model.IsNull(text=text):
            return text
        case model.And(operands=operands) | model.Or(operands=operands):
            word = " AND " if isinstance(condition, model.And) else " OR "
            inner = [(_spelled(each), isinstance(each, model.And | model.Or)) for each in operands]
            return word.join(dict.fromkeys(f"({text})" if is_joined else text for text, is_joined in inner))
        case model.Not(operand=operand):
            told = _spelled(operand)
            predicates = {getattr(each, "text", "") for each in walk(operand)} - {""}
            is_negated = re.search(r"\bNOT\s+(IN|BETWEEN|NULL)\b", told, re.IGNORECASE)
            return told if is_negated and len(predicates) == 1 else f"NOT ({told})"
        case model.NotTrue(operand=operand):
            return f"({_spelled(operand)}) IS NOT TRUE"
        case Truth(value=value):
            return "NULL" if value is None else str(value).upper()
