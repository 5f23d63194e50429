"""What Spark SQL knows and this language does not: named, placed, and with what to write instead.

Nothing is ignored: a node is read with the arguments its reader knows (``only``), and every word of the
statement is either in the tree or a word of the language (``all_read``).
"""

from __future__ import annotations

from sqlglot import exp

from millpond.errors import SqlError, one_line
from millpond.frontend.statement import Statement
from millpond.query.durations import INTERVAL_WORDS

_JOIN = "write JOIN … ON …, or list the tables in FROM and put the condition in WHERE"
_NO_ORDER = "leave it out: rows are written as they arrive"
_NO_LAST = "leave it out: a stream has no last row; MIN or MAX find the extremes"
_PATTERN = "compare with =, IN, < or >="
_GROUP = "write one query for each grouping and put UNION ALL between them"
_SUBQUERY = "list its tables in FROM and put its conditions in WHERE"
_BEFORE = "compute it before the data reaches the stream"
_ONLY = "write CREATE STREAMING TABLE, CREATE TABLE or SELECT"
_NO_CONSTRAINT = "leave it out, or write CHECK (…)"
_NO_VALUE = "leave it out: a column holds what arrives"
_LEAVE = "leave it out"
_CASE = "write one query for each case and put UNION ALL between them"
_USING = "write USING and OPTIONS"
_NULLS = "leave it out: aggregates skip NULL"

# By the class of sqlglot's node: the construct (its first word says where it is) and the remedy.
_NODES: dict[str, tuple[str, str]] = {
    "Limit": ("LIMIT", _NO_LAST),
    "Offset": ("OFFSET", _NO_LAST),
    "Fetch": ("FETCH", _NO_LAST),
    "Order": ("ORDER BY", _NO_ORDER),
    "Sort": ("SORT BY", _NO_ORDER),
    "Cluster": ("CLUSTER BY", _NO_ORDER),
    "Distribute": ("DISTRIBUTE BY", _NO_ORDER),
    "Window": ("OVER", "aggregate with GROUP BY instead"),
    "Qualify": ("QUALIFY", "filter with WHERE or HAVING"),
    "Filter": ("FILTER", "put its condition in WHERE"),
    "WithinGroup": ("WITHIN GROUP", "write MEDIAN(x)"),
    "IgnoreNulls": ("IGNORE NULLS", _NULLS),
    "RespectNulls": ("RESPECT NULLS", _NULLS),
    "Intersect": ("INTERSECT", "join the two queries' tables by equality and select DISTINCT"),
    "Except": ("EXCEPT or MINUS", "put the opposite condition in WHERE"),
    "With": ("WITH (a common table expression)", _SUBQUERY),
    "Lateral": ("LATERAL", "list the tables in FROM, a row for each element"),
    "Pivot": ("PIVOT", "aggregate with GROUP BY, or write one query for each column and UNION ALL"),
    "TableSample": ("TABLESAMPLE", _LEAVE),
    "Version": ("AS OF", _LEAVE),
    "Lock": ("FOR UPDATE or SHARE", _LEAVE),
    "Into": ("INTO", _LEAVE),
    "Hint": ("a hint", _LEAVE),
    "Like": ("LIKE", _PATTERN),
    "ILike": ("ILIKE", _PATTERN),
    "RegexpLike": ("RLIKE", _PATTERN),
    "RegexpILike": ("RLIKE", _PATTERN),
    "SimilarTo": ("SIMILAR TO", _PATTERN),
    "Escape": ("ESCAPE", _PATTERN),
    "Collate": ("COLLATE", "leave it out: strings compare by their bytes"),
    "Case": ("CASE", _CASE),
    "If": ("IF", _CASE),
    "Exists": ("EXISTS", _SUBQUERY),
    "Any": ("ANY", "write IN (…)"),
    "All": ("ALL", "write one comparison for each value"),
    "Interval": ("INTERVAL", "compare TIMESTAMP columns with each other or with TIMESTAMP '…'"),
    "Subquery": ("a subquery", _SUBQUERY),
    "Select": ("a subquery", _SUBQUERY),
    "Union": ("a subquery", _SUBQUERY),
    "Values": ("VALUES", "declare a static relation with CREATE TABLE"),
    "Rollup": ("ROLLUP", _GROUP),
    "Cube": ("CUBE", _GROUP),
    "GroupingSets": ("GROUPING SETS", _GROUP),
    "NullSafeEQ": ("<=> or IS NOT DISTINCT FROM", "write =, and IS NULL where NULLs are to match"),
    "NullSafeNEQ": ("IS DISTINCT FROM", "write <>, and IS NULL where NULLs are to match"),
    "DPipe": ("||", _BEFORE),
    "IntDiv": ("DIV", "write / or %"),
    "Lambda": ("->", _BEFORE),
    "Bracket": ("[ ]", "select a plain column"),
    "Dot": ("a nested field", "select a plain column"),
    "Tuple": ("a row of several values", "write one comparison for each column"),
    "Placeholder": ("a parameter", "write the value itself"),
    "Parameter": ("a parameter", "write the value itself"),
    "Concat": ("two strings in a row", "write one string; \\' stands for a quote"),
    "HexString": ("a binary constant", "write a number or a string"),
    "BitString": ("a binary constant", "write a number or a string"),
    "RawString": ("a raw string", "write it as '…'"),
    "National": ("a national string", "write it as '…'"),
    "TryCast": ("CAST or ::", "write DATE '…' or TIMESTAMP '…', or leave the cast out"),
    "Cast": ("CAST or ::", "write DATE '…' or TIMESTAMP '…', or leave the cast out"),
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
# What to look for where the name of a construct does not say it.
_KEYWORDS = {"a hint": ("/*+",), "a parameter": ("?", ":", "$", "@", "{"), "a subquery": ("SELECT",)}
# Arguments that are no nodes, by class and name.
_FLAGS: dict[tuple[str, str], tuple[str, str]] = {
    ("Create", "replace"): ("OR REPLACE", _LEAVE),
    ("Create", "refresh"): ("OR REFRESH", _LEAVE),
    ("Union", "by_name"): ("BY NAME", "list the columns in the same order"),
    ("Group", "all"): ("GROUP BY ALL", "name the columns"),
    ("Distinct", "on"): ("DISTINCT ON", "write SELECT DISTINCT, or MIN or MAX with GROUP BY"),
    ("Join", "using"): ("USING", "write ON with the condition"),
    ("Table", "joins"): ("JOIN inside JOIN", "write ON after each JOIN"),
    ("TableAlias", "columns"): (
        "an alias with a list of columns",
        "name the columns where they are declared",
    ),
    ("Max", "expressions"): ("MAX of several values", "write it for each column"),
    ("Min", "expressions"): ("MIN of several values", "write it for each column"),
    ("Star", "except_"): ("* EXCEPT", "name the columns"),
    ("Star", "replace"): ("* REPLACE", "name the columns"),
    ("Star", "rename"): ("* RENAME", "name the columns"),
    ("Between", "symmetric"): ("SYMMETRIC", "write the smaller bound first"),
    ("TryCast", "safe"): ("TRY_CAST", "write DATE '…' or TIMESTAMP '…'"),
    ("CheckColumnConstraint", "enforced"): ("ENFORCED", _LEAVE),
    ("FileFormatProperty", "hive_format"): ("STORED AS", _USING),
}
_FUNCTIONS = {
    "MEAN": "write AVG",
    "EVERY": "write MIN",
    "PERCENTILE": "write MEDIAN for the middle one",
    "APPROX_COUNT_DISTINCT": "write COUNT(DISTINCT x)",
    "MOD": "write %",
    "ISNULL": "write IS NULL",
    "ISNOTNULL": "write IS NOT NULL",
    **dict.fromkeys(("DATE", "TO_DATE", "CURRENT_DATE"), "write DATE '…'"),
    **dict.fromkeys(("TIMESTAMP", "TO_TIMESTAMP", "CURRENT_TIMESTAMP", "NOW"), "write TIMESTAMP '…'"),
    **dict.fromkeys(("WINDOW", "SESSION_WINDOW"), "group by columns"),
}
# Where a statement starts with something else than CREATE or SELECT.
_STATEMENTS = {
    "WITH": _NODES["With"],
    "FROM": ("FROM before SELECT", "start with SELECT"),
    "VALUES": _NODES["Values"],
}
_WORDS = frozenset(
    """
    SELECT DISTINCT ALL FROM AS JOIN INNER CROSS ON WHERE AND OR NOT GROUP BY HAVING UNION BETWEEN IN IS NULL
    TRUE FALSE CAST CREATE STREAMING TABLE IF EXISTS CHECK CONSTRAINT USING OPTIONS TBLPROPERTIES COMMENT
    BOOLEAN TINYINT BYTE SMALLINT SHORT INT INTEGER BIGINT LONG DECIMAL DEC NUMERIC FLOAT REAL DOUBLE STRING
    VARCHAR CHAR CHARACTER DATE TIMESTAMP ( ) , . * + - / % = == < <= > >= <> != !
    """.split()  # noqa: SIM905 (a list of words reads better)
)
_AFTER_COMMA = frozenset((")", ",", "FROM", "WHERE", "GROUP BY", "HAVING", "UNION", ""))


def refuse(statement: Statement, node: exp.Expr) -> SqlError:
    """The refusal of a node."""
    name = type(node).__name__
    if name in _NODES:
        construct, remedy = _NODES[name]
        return _refusal(statement, node, construct, remedy)
    if isinstance(node, exp.Func):
        called = statement.excerpt(node).partition("(")[0].strip() if statement.slice(node) else name
        called = (node.name if isinstance(node, exp.Anonymous) else called).upper()
        remedy = _FUNCTIONS.get(called, "the functions are COUNT, SUM, AVG, MIN, MAX and MEDIAN")
        return SqlError(
            f"the function {one_line(called, 40)} is outside the language",
            statement.at(node),
            remedy,
        )
    words = "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()
    return SqlError(
        f"{words} ({statement.excerpt(node)}) is outside the language",
        statement.at(node),
        _BEFORE,
    )


def describe_unsupported_statement(word: str) -> tuple[str, str]:
    """The construct and the remedy for a statement that starts with this word."""
    return _STATEMENTS.get(word.upper(), (one_line(word, 40), _ONLY))


def accept_only(statement: Statement, node: exp.Expr, *known: str) -> None:
    """Refuse a node that has an argument its reader does not know."""
    for key, value in node.args.items():
        if key in known or not value:
            continue
        first = value[0] if isinstance(value, list) else value
        if isinstance(first, exp.Expr) and (type(node).__name__, key) not in _FLAGS:
            raise refuse(statement, first)
        fallback = (f"{key} in {type(node).__name__}", _LEAVE)
        raise _refusal(statement, node, *_FLAGS.get((type(node).__name__, key), fallback))


def refuse_unread_words(statement: Statement) -> None:
    """Refuse a statement of which the parser has passed over a word.

    Called when everything in the tree is known; what is left are words that have no place in it.
    """
    names = {var.name.upper() for var in statement.tree.find_all(exp.Var)}
    is_create = isinstance(statement.tree, exp.Create)
    words = _WORDS | INTERVAL_WORDS if statement.tree.find(exp.Interval) else _WORDS
    for index in range(len(statement.tokens)):
        word, place = statement.word(index), statement.token_at
        if index in statement.leaves or (is_create and word in names):
            continue
        misplaced = word in ("DISTINCT", "ALL") and statement.word(index - 1) not in (
            "SELECT",
            "UNION",
            "(",
        )
        if misplaced or not words.issuperset(word.split()):
            remedy = _FUNCTIONS.get(word, _LEAVE)
            raise SqlError(f"{one_line(word, 40)} is outside the language here", place(index), remedy)
        if word == "," and index + 1 not in statement.leaves and statement.word(index + 1) in _AFTER_COMMA:
            raise SqlError("nothing follows this comma", place(index), "leave the comma out")


def _refusal(statement: Statement, node: exp.Expr, construct: str, remedy: str) -> SqlError:
    keywords = _KEYWORDS.get(construct) or [each.split()[0] for each in construct.split(" or ")]
    place = statement.keyword_at(node, *keywords)
    return SqlError(f"{construct} is outside the language", place, remedy)
