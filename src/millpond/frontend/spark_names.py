"""The names that Spark gives to expressions without an alias: ``upper(B)``, ``((A / 2) % 3)``.

Names of common forms are Spark's own.  Others are the expression as sqlglot writes it for Spark.
"""

from __future__ import annotations

from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from millpond.frontend.statement import Statement

# The key of a node's name, if it stands for something that the text has in its place.
NAME = "name"
_INFIX: dict[type[exp.Expr], str] = {
    **{
        exp.Add: "+",
        exp.Sub: "-",
        exp.Mul: "*",
        exp.Div: "/",
        exp.Mod: "%",
        exp.BitwiseAnd: "&",
        exp.IntDiv: "div",
    },
    **{exp.LT: "<", exp.LTE: "<=", exp.EQ: "=", exp.GTE: ">=", exp.GT: ">", exp.NullSafeEQ: "<=>"},
    **{exp.And: "AND", exp.Or: "OR"},
}


def name_expression(statement: Statement, node: exp.Expr) -> str:
    """The name of the output column of an expression."""

    def name(each: exp.Expr) -> str:
        return name_expression(statement, each)

    given = node.meta.get(NAME)
    if isinstance(given, str):
        return given
    match node:
        case exp.Paren():
            return name(node.this)
        case exp.Column() | exp.Literal():
            return node.name
        case exp.Neg():
            return f"(- {name(node.this)})"
        case exp.Not():
            return f"(NOT {name(node.this)})"
        case exp.NEQ():
            return f"(NOT ({name(node.this)} = {name(node.expression)}))"
        case exp.Is() if isinstance(node.expression, exp.Null):
            return f"({name(node.this)} IS NULL)"
        case exp.Like():
            return f"{name(node.this)} LIKE {name(node.expression)}"
        case exp.RegexpLike():
            return f"RLIKE({name(node.this)}, {name(node.expression)})"
        case exp.DPipe():
            return f"concat({', '.join(name(each) for each in node.flatten())})"
        case exp.Case() if node.this is None:
            branches = [f"WHEN {name(i.this)} THEN {name(i.args['true'])}" for i in node.args["ifs"]]
            default = node.args.get("default")
            return " ".join(["CASE", *branches, *([f"ELSE {name(default)}"] if default else []), "END"])
        case exp.Cast():
            return f"CAST({name(node.this)} AS {node.to.sql('spark')})"
        case exp.Binary() if type(node) in _INFIX:
            return f"({name(node.this)} {_INFIX[type(node)]} {name(node.expression)})"
        case exp.Func():
            return _name_call(statement, node)
    return _plain(node)


def _name_call(statement: Statement, node: exp.Func) -> str:
    """``upper(B)``: the function as called, and its arguments in their order, if they are all there."""
    first, last = statement.span(node)
    if statement.word(first + 1) != "(" or statement.word(last) != ")" or len(node.args) == 0:
        return _plain(node)
    arguments = [each for each in node.iter_expressions() if isinstance(each, exp.Condition | exp.Paren)]
    spans = [statement.span(each)[0] for each in arguments]
    commas = statement.slice(node).count(",") - sum(statement.slice(each).count(",") for each in arguments)
    if spans != sorted(spans) or commas != len(arguments) - 1:
        return _plain(node)
    called = statement.word(first).lower()
    return f"{called}({', '.join(name_expression(statement, each) for each in arguments)})"


def _plain(node: exp.Expr) -> str:
    shown = node.copy()
    for column in shown.find_all(exp.Column):
        column.set("table", None)
    for identifier in shown.find_all(exp.Identifier):
        identifier.set("quoted", False)
    return shown.sql("spark", normalize_functions="lower")


def quote_name(name: str) -> str:
    """A name as SQL text, in backquotes where it would be read as something else.

    >>> quote_name("id"), quote_name("timestamp"), quote_name("count(1)")
    ('id', '`timestamp`', '`count(1)`')
    """
    try:
        tokens = Spark().tokenize(name)
    except SqlglotError:
        tokens = []
    if len(tokens) == 1 and tokens[0].token_type is TokenType.VAR and tokens[0].text == name:
        return name
    return "`" + name.replace("`", "``") + "`"
