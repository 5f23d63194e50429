"""What Spark SQL has and this language does not: refused by name, with its place and a remedy.

Nothing is ignored.  Every reader of a node lists the arguments that it reads (``accept_only``), and every
word of a statement must be in the tree or be a keyword of the language (``refuse_unread_words``).

A remedy never changes the meaning of the query; where nothing equivalent can be written there is none.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.errors import Position, SqlError, one_line
from millpond.frontend.statement import Statement
from millpond.frontend.suggestions import suggest_function, suggest_name
from millpond.query.durations import INTERVAL_WORDS

_NO_END = "the answer never ends; limit the rows where you read them"
_NO_ORDER = "rows are written as they arrive; sort the output where you read it"
UPSTREAM = "compute it before the data reaches the stream, as a column of its own"
_EACH_GROUPING = "write one query for each grouping and put UNION ALL between them"
_SUBQUERY = "without GROUP BY, aggregate or DISTINCT: list its tables in FROM and its conditions in WHERE"
_STATEMENTS_ARE = "the statements are CREATE STREAMING TABLE, CREATE TABLE, CREATE VIEW, SELECT and WITH"
_NO_CONSTRAINT = "leave it out; CHECK (…) and NOT NULL are supported"
_NO_VALUE = "leave it out; a column holds what arrives"
_LEAVE = "leave it out"
_USING = "write USING and OPTIONS"
_NULLS = "leave it out; aggregates skip NULL"
_NAME_COLUMNS = "name the columns"
_ROWS = "write LATERAL VIEW stack(2, 'a', a, 'b', b) t AS name, value, and leave out NULLs in WHERE"
_PLAIN_STRING = "write it as '…'"
_TYPED_CONSTANT = "write a constant as DATE '…' or TIMESTAMP '…'; cast a column before it reaches the stream"

# By the class of sqlglot's node: the construct (its first word says where it is) and the remedy.
_NODES: dict[str, tuple[str, str | None]] = {
    "Limit": ("LIMIT", _NO_END),
    "Offset": ("OFFSET", _NO_END),
    "Fetch": ("FETCH", _NO_END),
    "Order": ("ORDER BY", _NO_ORDER),
    "Sort": ("SORT BY", _NO_ORDER),
    "Cluster": ("CLUSTER BY", _NO_ORDER),
    "Distribute": ("DISTRIBUTE BY", _NO_ORDER),
    "Window": ("OVER here", "compute it in a subquery in FROM"),
    "Star": ("*", _NAME_COLUMNS),
    "Qualify": ("QUALIFY", None),
    "Filter": ("FILTER", None),
    "WithinGroup": ("WITHIN GROUP", None),
    "IgnoreNulls": ("IGNORE NULLS", _NULLS),
    "RespectNulls": ("RESPECT NULLS", _NULLS),
    "Intersect": ("INTERSECT", None),
    "Except": ("EXCEPT or MINUS", None),
    "With": ("WITH (a common table expression)", _SUBQUERY),
    "Lateral": (
        "LATERAL",
        "LATERAL (SELECT … WHERE x = t.y [AND z <= t.w] ORDER BY z DESC LIMIT 1) is supported",
    ),
    "Pivot": ("PIVOT", "write an aggregate with FILTER (WHERE …) for each value"),
    "TableSample": ("TABLESAMPLE", None),
    "Version": ("AS OF", None),
    "Lock": ("FOR UPDATE or SHARE", _LEAVE),
    "Into": ("INTO", "leave it out; `millpond run --output DIR` says where the rows go"),
    "Hint": ("a hint", _LEAVE),
    "Like": ("LIKE", UPSTREAM),
    "ILike": ("ILIKE", UPSTREAM),
    "RegexpLike": ("RLIKE", UPSTREAM),
    "RegexpILike": ("RLIKE", UPSTREAM),
    "SimilarTo": ("SIMILAR TO", UPSTREAM),
    "Escape": ("ESCAPE", UPSTREAM),
    "Collate": ("COLLATE", "strings are compared by their bytes"),
    "Case": ("CASE", UPSTREAM),
    "If": ("IF", UPSTREAM),
    "Exists": ("EXISTS", None),
    "Any": ("ANY", "write = ANY (…) as IN (…)"),
    "All": ("ALL", "write one comparison for each value"),
    "Interval": ("INTERVAL", "use it only to add to or subtract from a date or timestamp"),
    "Subquery": ("a subquery", _SUBQUERY),
    "Select": ("a subquery", _SUBQUERY),
    "Union": ("a subquery", _SUBQUERY),
    "Values": ("VALUES", "declare a static relation with CREATE TABLE"),
    "Rollup": ("ROLLUP", _EACH_GROUPING),
    "Cube": ("CUBE", _EACH_GROUPING),
    "GroupingSets": ("GROUPING SETS", _EACH_GROUPING),
    "NullSafeEQ": ("<=> or IS NOT DISTINCT FROM", "write a = b OR (a IS NULL AND b IS NULL)"),
    "NullSafeNEQ": (
        "IS DISTINCT FROM",
        "write a <> b OR (a IS NULL AND b IS NOT NULL) OR (a IS NOT NULL AND b IS NULL)",
    ),
    "DPipe": ("||", UPSTREAM),
    "IntDiv": ("DIV", UPSTREAM),
    "Lambda": ("->", UPSTREAM),
    "Bracket": ("[ ]", UPSTREAM),
    "Dot": ("a nested field", UPSTREAM),
    "Tuple": ("a row of several values", "write one comparison for each column"),
    "Placeholder": ("a parameter", "write the value itself"),
    "Parameter": ("a parameter", "write the value itself"),
    "Concat": ("a string directly after a string", "write one string; \\' stands for a quote"),
    "HexString": ("a binary constant", "write a number or a string"),
    "BitString": ("a binary constant", "write a number or a string"),
    "RawString": ("a raw string", _PLAIN_STRING),
    "National": ("a national string", _PLAIN_STRING),
    "TryCast": ("CAST or ::", _TYPED_CONSTANT),
    "Cast": ("CAST or ::", _TYPED_CONSTANT),
    "Aliases": ("an alias with several names", "give each item one alias"),
    "PrimaryKeyColumnConstraint": ("PRIMARY KEY", _NO_CONSTRAINT),
    "PrimaryKey": ("PRIMARY KEY", _NO_CONSTRAINT),
    "ForeignKey": ("FOREIGN KEY", _NO_CONSTRAINT),
    "Reference": ("REFERENCES", _NO_CONSTRAINT),
    "UniqueColumnConstraint": ("UNIQUE", _NO_CONSTRAINT),
    "DefaultColumnConstraint": ("DEFAULT", _NO_VALUE),
    "ComputedColumnConstraint": ("GENERATED", _NO_VALUE),
    "GeneratedAsIdentityColumnConstraint": ("GENERATED", _NO_VALUE),
    "LocationProperty": ("LOCATION", "write OPTIONS (path '…')"),
    "PartitionedByProperty": ("PARTITIONED BY", _LEAVE),
    "ClusteredByProperty": ("CLUSTERED BY", _LEAVE),
    "RowFormatDelimitedProperty": ("ROW FORMAT", _USING),
    "RowFormatSerdeProperty": ("ROW FORMAT", _USING),
    "LikeProperty": ("LIKE", "list the columns"),
    "TemporaryProperty": ("TEMPORARY", _LEAVE),
    "ExternalProperty": ("EXTERNAL", _LEAVE),
}
# The keywords to look for where the name of a construct does not contain them.
_KEYWORDS = {"a hint": ("/*+",), "a parameter": ("?", ":", "$", "@", "{"), "a subquery": ("SELECT",)}
# Arguments of nodes that are not nodes themselves, by class and name.
_FLAGS: dict[tuple[str, str], tuple[str, str | None]] = {
    ("Create", "replace"): ("OR REPLACE", _LEAVE),
    ("Create", "refresh"): ("OR REFRESH", _LEAVE),
    ("Union", "by_name"): ("BY NAME", "list the columns in the same order"),
    ("With", "recursive"): ("RECURSIVE", None),
    ("Group", "all"): ("GROUP BY ALL", _NAME_COLUMNS),
    ("Distinct", "on"): ("DISTINCT ON", None),
    ("Table", "joins"): ("JOIN inside JOIN", "write ON after each JOIN"),
    ("TableAlias", "columns"): (
        "an alias with a list of columns",
        "name the columns where they are declared",
    ),
    ("Max", "expressions"): ("MAX of several values", None),
    ("Min", "expressions"): ("MIN of several values", None),
    ("Star", "replace"): ("* REPLACE", _NAME_COLUMNS),
    ("Star", "rename"): ("* RENAME", _NAME_COLUMNS),
    ("Between", "symmetric"): ("SYMMETRIC", "write the smaller bound first"),
    ("TryCast", "safe"): ("TRY_CAST", _TYPED_CONSTANT),
    ("WindowSpec", "exclude"): ("EXCLUDE", None),
    ("CheckColumnConstraint", "enforced"): ("ENFORCED", _LEAVE),
    ("FileFormatProperty", "hive_format"): ("STORED AS", _USING),
}
_FUNCTIONS = {
    "TUMBLE": "write window(ts, '10 minutes')",
    "HOP": "write window(ts, '10 minutes', '5 minutes'), with the width before the slide",
    "SESSION": "write session_window(ts, '10 minutes')",
    **dict.fromkeys(("DATE", "TO_DATE"), "write a constant as DATE '…'"),
    **dict.fromkeys(("TIMESTAMP", "TO_TIMESTAMP"), "write a constant as TIMESTAMP '…'"),
}
# Functions whose value does not follow from the row, by what it follows from.
CLOCK_FUNCTIONS = (
    *(exp.CurrentDate, exp.CurrentDatetime, exp.CurrentTime, exp.CurrentTimestamp, exp.CurrentTimestampLTZ),
    *(exp.Localtime, exp.Localtimestamp, exp.Systimestamp, exp.UtcDate, exp.UtcTime, exp.UtcTimestamp),
)
_OVER_ONLY = (
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile, exp.Lag, exp.Lead),
    exp.NthValue,
)
RANDOM_FUNCTIONS = (exp.Rand, exp.Randn, exp.Randstr, exp.Uniform, exp.Uuid, exp.Shuffle)
_CLOCK_WORDS = ("CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME")  # these need no parentheses
_CLOCK_NAMES = ("NOW", "GETDATE", "SYSDATE", "CURRENT_WATERMARK", "PROCTIME")
# Those that may be shown: their value is that of the moment at which a row is written.
_UNSETTLED_NAMES = ("NOW", "MONOTONICALLY_INCREASING_ID")
_RANDOM_NAMES = ("MONOTONICALLY_INCREASING_ID", "SPARK_PARTITION_ID", "INPUT_FILE_NAME")
_CLOCK = "is the current time, which is supported only in the select list and in conditions of WHERE and ON"
_RANDOM = "is not supported: its value does not follow from the row"
_SEVERAL_ROWS = "is not supported: it makes several rows of one"
# Statements that start with something else than CREATE or SELECT.
_STATEMENTS: dict[str, tuple[str, str | None]] = {
    "FROM": ("FROM before SELECT", "start with SELECT"),
    "VALUES": _NODES["Values"],
}
_TYPES = frozenset(
    """
    BOOLEAN TINYINT BYTE SMALLINT SHORT INT INTEGER BIGINT LONG DECIMAL DEC NUMERIC FLOAT REAL DOUBLE STRING
    VARCHAR CHAR CHARACTER DATE TIMESTAMP
    """.split()  # noqa: SIM905 (a list of words reads better)
)
_WORDS = _TYPES | frozenset(
    """
    SELECT DISTINCT ALL FROM AS JOIN INNER CROSS ON WHERE AND OR NOT GROUP BY HAVING UNION BETWEEN IN IS NULL
    LEFT RIGHT FULL NATURAL OUTER SEMI ANTI TRUE FALSE CAST TRY_CAST CASE WHEN THEN ELSE END FILTER ::
    WITH VIEW REPLACE TEMPORARY TEMP ORDER ASC DESC NULLS FIRST LAST LIMIT LATERAL
    INTERSECT EXCEPT MINUS ROLLUP CUBE GROUPING SETS LIKE ILIKE ANY
    CREATE STREAMING TABLE IF EXISTS CHECK CONSTRAINT USING OPTIONS TBLPROPERTIES COMMENT
    CURRENT_TIMESTAMP CURRENT_DATE CURRENT_TIME
    ( ) , . * + - / % = == < <= > >= <> != ! ~
    """.split()  # noqa: SIM905 (a list of words reads better)
)
_AFTER_COMMA = frozenset((")", ",", "FROM", "WHERE", "GROUP BY", "HAVING", "UNION", ""))


def unsupported_error(statement: Statement, node: exp.Expr) -> SqlError:
    """The error for a node that is not supported."""
    name = type(node).__name__
    if isinstance(node, exp.Pivot) and node.args.get("unpivot"):
        return _construct_error(statement, node, "UNPIVOT", _ROWS)
    if name in _NODES:
        construct, remedy = _NODES[name]
        if remedy is _SUBQUERY and node.find_ancestor(exp.Where, exp.Having):
            remedy = None  # as a table in FROM it could repeat rows
        return _construct_error(statement, node, construct, remedy)
    if isinstance(node, exp.Func):
        return _function_error(statement, node)
    words = "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()
    return SqlError(f"{words} ({statement.excerpt(node)}) is not supported", statement.at(node), UPSTREAM)


def _function_error(statement: Statement, node: exp.Func) -> SqlError:
    """The error for a function, by its name as the user wrote it."""
    called, place = _find_call(statement, node)
    name = one_line(called, 40)
    if isinstance(node.parent, exp.Dot) and node is node.parent.expression:
        return SqlError(f"the function {name} after a dot is not supported", place)
    if isinstance(node, CLOCK_FUNCTIONS) or called in _CLOCK_NAMES:
        return SqlError(f"{name} {_CLOCK}", place)
    if isinstance(node, RANDOM_FUNCTIONS) or called in _RANDOM_NAMES:
        return SqlError(f"the function {name} {_RANDOM}", place)
    if isinstance(node, exp.UDTF):
        return SqlError(f"the function {name} {_SEVERAL_ROWS}", place)
    if isinstance(node, _OVER_ONLY) and not isinstance(node.parent, exp.Window):
        return SqlError(f"{name} needs a window", place, f"write {name}(…) OVER (… ORDER BY …)")
    remedy = _FUNCTIONS.get(called)
    if isinstance(node, exp.Anonymous):
        remedy = remedy or suggest_function(called)
    return SqlError(f"the function {name} is not supported", place, remedy)


def _find_call(statement: Statement, node: exp.Func) -> tuple[str, Position]:
    """The name of a function in upper case, and its place."""
    if isinstance(node, CLOCK_FUNCTIONS) and "start" not in node.meta:
        called = "UNIX_TIMESTAMP" if isinstance(node.parent, exp.StrToUnix) else node.sql_name()
        return called, statement.keyword_at(node, *_CLOCK_WORDS)
    called = statement.excerpt(node).partition("(")[0].strip() or type(node).__name__
    called = (node.name if isinstance(node, exp.Anonymous) else called).upper()
    first, _ = statement.span(node)
    if statement.word(first + 1) != "(" and statement.word(first - 1) == "(":
        # sqlglot records no position for the name of this function.
        return statement.word(first - 2), statement.token_at(first - 2)
    return called, statement.at(node)


def _construct_error(statement: Statement, node: exp.Expr, construct: str, remedy: str | None) -> SqlError:
    keywords = _KEYWORDS.get(construct) or [each.split()[0] for each in construct.split(" or ")]
    place = statement.keyword_at(node, *keywords)
    return SqlError(f"{construct} is not supported", place, remedy)


def is_unsettled(node: exp.Expr) -> bool:
    """Whether a node is the current time or a random value, which does not follow from the row."""
    if isinstance(node, exp.Anonymous):
        return node.name.upper() in _UNSETTLED_NAMES
    return isinstance(node, (*CLOCK_FUNCTIONS, exp.Rand, exp.Randn, exp.Uuid))


def unsettled_error(statement: Statement, node: exp.Expr) -> SqlError:
    """The error for the current time or a random value that is used for more than to be shown."""
    message = (
        f"{statement.excerpt(node)} does not follow from the row: the result can show it, but it cannot be"
        " compared, grouped by or aggregated"
    )
    return SqlError(message, statement.at(node))


def is_type_name(word: str) -> bool:
    """Whether a word in upper case is a type of the language."""
    return word in _TYPES


def describe_unsupported_statement(word: str) -> tuple[str, str | None]:
    """The construct and the remedy for a statement that starts with this word."""
    meant = suggest_name(word, ("SELECT", "WITH", "CREATE"))
    return _STATEMENTS.get(word.upper(), (one_line(word, 40), meant or _STATEMENTS_ARE))


def accept_only(statement: Statement, node: exp.Expr, *known: str) -> None:
    """Refuse a node that has an argument besides those that its reader knows."""
    for key, value in node.args.items():
        if key in known or not value:
            continue
        first = value[0] if isinstance(value, list) else value
        flag = type(node).__name__, key
        if isinstance(first, exp.Expr) and flag not in _FLAGS:
            raise unsupported_error(statement, first)
        raise _construct_error(statement, node, *_FLAGS.get(flag, (f"{key} in {type(node).__name__}", None)))


def refuse_unread_words(statement: Statement) -> None:
    """Refuse a statement with a word that the parser has skipped.

    Called after the whole tree has been read: a word that is neither in the tree nor a keyword of the
    language has been skipped.
    """
    names = {var.name.upper() for var in statement.tree.find_all(exp.Var)}
    is_create = isinstance(statement.tree, exp.Create)
    words = _WORDS | INTERVAL_WORDS if statement.tree.find(exp.Interval) else _WORDS
    for index in range(len(statement.tokens)):
        word, before = statement.word(index), statement.word(index - 1)
        if index in statement.leaves or (is_create and word in names):
            continue
        misplaced = word in ("DISTINCT", "ALL") and before not in ("SELECT", "UNION", "(", "GROUP BY")
        if misplaced or not words.issuperset(word.split()):
            message = f"{one_line(word, 40)} is not supported here"
            remedy = _USING if is_create and word == "WITH" else _FUNCTIONS.get(word)
            raise SqlError(message, statement.token_at(index), remedy)
        if word == "," and index + 1 not in statement.leaves and statement.word(index + 1) in _AFTER_COMMA:
            raise SqlError("nothing follows this comma", statement.token_at(index), "leave the comma out")
