"""Reads arguments of aggregates over several tables: ``SUM(a.q * b.p)``, ``MAX(a.x + b.y)``.

Sums and products of columns split: they are read as they are, over columns of one table each.  What does not
split (``SUM(abs(a.x - b.y))``) is computed from the rows of the join first: the select then reads a block
(``lift_arguments``), as if it were ``SELECT SUM(v) FROM (SELECT abs(a.x - b.y) AS v FROM …)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from millpond.errors import SqlError, SqlNameError, SqlTypeError
from millpond.frontend.constants import Bound
from millpond.frontend.row_expressions import mark_as_read, read_row_predicate
from millpond.frontend.scope import KeepBlockError, Scope
from millpond.frontend.spark_names import name_expression
from millpond.frontend.statement import Statement
from millpond.query.expressions import Arithmetic, Choice, Expr, Literal, Negation
from millpond.query.split_products import NULL, list_terms, split_products
from millpond.query.trees import aliases_in
from millpond.query.types import DOUBLE, SqlType

if TYPE_CHECKING:
    from millpond.frontend.expressions import Reader

Bind = Callable[["Reader", exp.Expr], Bound]
FindType = Callable[[str, SqlType | None, SqlType | None], SqlType | None]

_OPERATORS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
# Aggregates of counts and sums; those of pairs are of products.
PAIRED = ("CORR", "COVAR_POP", "COVAR_SAMP")
_ADDED = ("COUNT", "SUM", "AVG", "VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP", *PAIRED)
_LIFTED, _BLOCK = "lifted", "rows of the join"


class JointArgumentError(Exception):
    """An argument over several tables that does not split, of an aggregate in this scope."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self.scope = scope


class JointReader:
    """Reads sums, products and CASE over several tables; ``bind`` reads what is over one table."""

    def __init__(self, reader: Reader, bind: Bind, find_type: FindType) -> None:
        self.reader = reader
        self.scope = reader.scope
        self.bind = bind
        self.find_type = find_type

    def read(self, function: str, node: exp.Expr) -> Bound:
        """The argument of a function; raises JointArgumentError if it does not split."""
        bound = self._read(node)
        if not self._is_split(function, bound.expression):
            raise JointArgumentError(self.scope)
        mark_as_read(self.reader.statement, node)
        return Bound(bound.expression, bound.type, name_expression(self.reader.statement, node))

    def _is_split(self, function: str, argument: Expr) -> bool:
        if function in _ADDED:
            return split_products(argument) is not None
        is_plain = all(o.table.streaming and o.table.time is None for o in self.scope.occurrences)
        return function in ("MIN", "MAX") and is_plain and list_terms(argument) is not None

    def _read(self, node: exp.Expr) -> Bound:
        while isinstance(node, exp.Paren):
            node = node.this
        owners = find_owners(self.scope, [node])
        if len(owners) <= 1:
            return self._bind_one(node, owners)
        if isinstance(node, exp.Column):  # an expression of a merged block
            bound = self.bind(self.reader, node)
            if isinstance(bound.expression, Arithmetic | Negation):
                return bound
        if isinstance(node, exp.Neg):
            operand = self._read(node.this)
            return Bound(Negation(operand.expression), operand.type, "")
        if type(node) in _OPERATORS:
            return self._read_arithmetic(node)
        if isinstance(node, exp.Case) and node.this is None:
            value = self._read(node.args["default"]) if node.args.get("default") else _NULL
            for branch in reversed(node.args["ifs"]):
                value = self._choose(branch.this, self._read(branch.args["true"]), value)
            return value
        if isinstance(node, exp.If):
            otherwise = node.args.get("false")
            value = self._read(otherwise) if otherwise else _NULL
            return self._choose(node.this, self._read(node.args["true"]), value)
        raise JointArgumentError(self.scope)

    def _bind_one(self, node: exp.Expr, owners: set[str]) -> Bound:
        try:
            return self.bind(self.reader, node)
        except (SqlTypeError, SqlNameError):
            raise
        except SqlError:
            if owners & self.scope.extended:  # an outer join can replace its row by NULLs
                raise JointArgumentError(self.scope) from None
            raise

    def _read_arithmetic(self, node: exp.Expr) -> Bound:
        left, right = self._read(node.this), self._read(node.expression)
        operator = _OPERATORS[type(node)]
        type_ = self.find_type(operator, left.type, right.type)
        if operator != "/":
            return Bound(Arithmetic(operator, left.expression, right.expression), type_, "")
        if type_ is not DOUBLE:  # decimals are rounded after the division
            raise JointArgumentError(self.scope)
        inverse = Arithmetic("/", Literal(1.0, DOUBLE), right.expression)
        return Bound(Arithmetic("*", left.expression, inverse), type_, "")

    def _choose(self, condition: exp.Expr, chosen: Bound, otherwise: Bound) -> Bound:
        """``CASE WHEN condition THEN chosen ELSE otherwise END``, a choice for each operand of AND and OR."""
        while isinstance(condition, exp.Paren):
            condition = condition.this
        if isinstance(condition, exp.And):
            inner = self._choose(condition.expression, chosen, otherwise)
            return self._choose(condition.this, inner, otherwise)
        if isinstance(condition, exp.Or):
            inner = self._choose(condition.expression, chosen, otherwise)
            return self._choose(condition.this, chosen, inner)
        found = read_row_predicate(self.scope, condition)
        if found is None:
            raise JointArgumentError(self.scope)
        type_ = self.find_type("+", chosen.type, otherwise.type) or chosen.type or otherwise.type
        choice = Choice(found.expression, chosen.expression, otherwise.expression)  # type: ignore[arg-type]
        return Bound(choice, type_, "")


_NULL = Bound(NULL, None, "")


def find_owners(scope: Scope, nodes: Sequence[exp.Expr]) -> set[str]:
    """The aliases of the tables whose columns some nodes name."""
    owners: set[str] = set()
    for column in (column for node in nodes for column in node.find_all(exp.Column)):
        _, found = scope.resolve(column)
        if found.ref is not None:
            owners.add(found.ref.occurrence)
        elif isinstance(found.value, Bound):
            owners |= aliases_in(found.value.expression)
        else:
            scope.find_column(column)  # raises KeepBlockError
    return owners


def refuse_lifted(scope: Scope, nodes: Sequence[exp.Expr]) -> None:
    """Keep the block of an argument that has been lifted already, instead of merging it."""
    for column in (column for node in nodes for column in node.find_all(exp.Column)):
        source, _ = scope.resolve(column)
        if source.alias == _BLOCK:
            raise KeepBlockError(source.path)


def lift_rows(scope: Scope) -> NoReturn:
    """Let the select of a scope read the rows of its join as a block, which is not merged."""
    for source in scope.visible:
        if source.alias == _BLOCK:
            raise KeepBlockError(source.path)
    raise JointArgumentError(scope)


# --- blocks ------------------------------------------------------------------------------------------------


def find_lifted(node: exp.Select) -> exp.Select:
    """The select that reads the rows of its join as a block, if it has been lifted; else the select."""
    lifted = node.meta.get(_LIFTED)
    return lifted if isinstance(lifted, exp.Select) else node


def lift_arguments(statement: Statement, node: exp.Select, copied: exp.Select, scope: Scope) -> None:
    """Let a select read the rows of its join as a block, with the arguments of its aggregates as columns.

    ``copied`` is a copy of the select with its positions.
    """
    lifter = _Lifter(statement, scope)
    for item in [*copied.expressions]:
        lifter.name_item(item)
    for place in (*copied.expressions, *(copied.args.get(key) for key in ("group", "having", "order"))):
        if place is not None:
            lifter.lift(place)
    inner = exp.Select(expressions=lifter.columns or [exp.Literal.number(1)])
    for key in ("from_", "joins", "where", "laterals"):
        inner.set(key, copied.args.get(key))
        copied.set(key, None)
    block = exp.Subquery(this=inner, alias=exp.TableAlias(this=_identifier(_BLOCK)))
    source = exp.From(this=block)
    for made in (inner, block, source, *inner.expressions):
        statement.place(made, node)
    copied.set("from_", source)
    node.meta[_LIFTED] = copied


class _Lifter:
    """Replaces arguments of aggregates, and other columns, by columns of the block."""

    def __init__(self, statement: Statement, scope: Scope) -> None:
        self.statement = statement
        self.scope = scope
        self.columns: list[exp.Expr] = []
        self._names: dict[str, str] = {}

    def name_item(self, item: exp.Expr) -> None:
        """Give a select item the name that it has without the block."""
        if isinstance(item, exp.Alias | exp.Column | exp.Star):
            return
        name = name_expression(self.statement, item)
        alias = exp.Alias(this=self.statement.copy(item), alias=_identifier(name))
        self.statement.place(alias, item)
        item.replace(alias)

    def lift(self, node: exp.Expr) -> None:
        """Replace everything below a node that is computed from rows of the join."""
        if isinstance(node, exp.AggFunc):
            for argument in [*node.iter_expressions()]:
                if isinstance(argument, exp.Distinct):
                    for each in [*argument.expressions]:
                        self._replace(each)
                elif argument.find(exp.Column) is not None:
                    self._replace(argument)
        elif isinstance(node, exp.Column):
            if not isinstance(node.this, exp.Star) and self.scope.knows(node):
                self._replace(node)
        elif isinstance(node, exp.Filter):
            self.lift(node.this)
            self._replace(node.expression.this)
        else:
            for each in [*node.iter_expressions()]:
                self.lift(each)

    def _replace(self, node: exp.Expr) -> None:
        text = node.sql("spark")
        name = self._names.get(text)
        if name is None:
            name = node.name if isinstance(node, exp.Column) else self.statement.slice(node)
            while name.lower() in (known.lower() for known in self._names.values()):
                name += "'"
            self._names[text] = name
            self.columns.append(exp.Alias(this=self.statement.copy(node), alias=_identifier(name)))
        column = exp.Column(this=_identifier(name))
        for made in (column, column.this):
            self.statement.place(made, node)
        node.replace(column)


def _identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)
