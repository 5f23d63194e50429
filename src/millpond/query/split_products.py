"""Splits the argument of an aggregate over several tables into products of one factor for each table.

``a.q * b.p - a.c`` is the sum of the products (a.q, b.p) and (-a.c, 1).  A sum over all pairs of rows of two
classes is then known from sums over the rows of each: of the factors, and of ones.  A value that is NULL is
no value, so a row counts only if none of its columns in the argument is NULL.  CASE divides the rows into
cases, each of which is split by itself.  What compares columns of two tables (``abs(a.x - b.y)``) has no such
form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from millpond.query.expressions import (
    Arithmetic,
    Choice,
    Comparison,
    Condition,
    Expr,
    IsNull,
    Literal,
    Negation,
    Not,
    NotTrue,
    Op,
    Ref,
)
from millpond.query.trees import aliases_in, refs, walk
from millpond.query.types import BOOLEAN, INT

# Products multiply when sums are multiplied; arguments that people write have a few.
_MAX_PRODUCTS = 64

NULL = Literal(None, None)
_ONE = Literal(1, INT)
_Factors = dict[str, Expr]
_Conditions = tuple[Condition, ...]


@dataclass(frozen=True)
class Product:
    """A product of factors, each over the columns of one table, of rows for which all ``given`` hold.

    There is a factor and at least one condition or column for each table of its case.  The products of a
    case count the same rows; the first one ``leads``.
    """

    factors: tuple[tuple[str, Expr], ...]
    given: tuple[Condition, ...]
    leads: bool


def split_products(argument: Expr) -> tuple[Product, ...] | None:
    """The products whose sum is the argument; None if it is no such sum, or one of too many."""
    products: list[Product] = []
    for conditions, value in _list_cases(argument, ()):
        sums = _expand(value)
        if sums is None:
            return None
        known = refs(value).union(*map(refs, conditions))
        aliases = sorted({ref.occurrence for ref in known})
        for number, factors in enumerate(sums):
            complete = tuple((alias, factors.get(alias, _ONE)) for alias in aliases)
            if "" in factors:  # a constant goes with the first table
                first = aliases[0] if aliases else ""
                scaled = _multiply(factors.get(first, _ONE), factors[""]) if first else factors[""]
                complete = ((first, scaled), *complete[1:])
            shown = frozenset[Ref]().union(*(refs(factor) for _, factor in complete))
            missing = sorted(refs(value) - shown, key=str)
            given = (*conditions, *(Not(IsNull(ref)) for ref in missing))
            products.append(Product(complete, given, leads=number == 0))
        if len(products) > _MAX_PRODUCTS:
            return None
    return tuple(products)


def list_terms(argument: Expr) -> tuple[tuple[str, Expr], ...] | None:
    """The terms, each over one table, whose sum is the argument; None if it is no such sum.

    Terms of one table are added up, and constants are left out.  If the argument is a CASE with one value, a
    term is NULL in rows that do not fulfil the condition on their table.
    """
    conditions: list[Ref] = []
    while isinstance(argument, Choice) and argument.otherwise == NULL:
        conditions.append(argument.condition)
        argument = argument.chosen
    sums = None if any(isinstance(each, Choice) for each in walk(argument)) else _expand(argument)
    found: _Factors = {}
    for factors in sums or ():
        if len(factors) != 1:
            return None
        ((alias, term),) = factors.items()
        if alias:
            found[alias] = Arithmetic("+", found[alias], term) if alias in found else term
    for condition in conditions:
        found[condition.occurrence] = Choice(condition, found.get(condition.occurrence, _ONE), NULL)
    return tuple(found.items()) if sums is not None else None


# --- cases -------------------------------------------------------------------------------------------------


def _list_cases(expr: Expr, conditions: _Conditions) -> Iterator[tuple[_Conditions, Expr]]:
    """The cases in which an expression has a value: disjoint conditions, each with a value without CASE."""
    match expr:
        case Literal(value=None):
            return
        case Choice(condition=condition, chosen=chosen, otherwise=otherwise):
            is_true = Comparison(condition, Op.EQ, Literal(True, BOOLEAN))
            yield from _list_cases(chosen, (*conditions, is_true))
            yield from _list_cases(otherwise, (*conditions, NotTrue(is_true)))
        case Negation(operand=operand):
            for known, value in _list_cases(operand, conditions):
                yield known, Negation(value)
        case Arithmetic(operator=operator, left=left, right=right):
            for known, one in _list_cases(left, conditions):
                for both, other in _list_cases(right, known):
                    yield both, Arithmetic(operator, one, other)
        case _:
            yield conditions, expr


# --- sums of products --------------------------------------------------------------------------------------


def _expand(expr: Expr) -> list[_Factors] | None:
    """The factors of each product by table; constants have no table.  None if there is no such sum."""
    aliases = sorted(aliases_in(expr))
    if len(aliases) <= 1:
        return [{aliases[0] if aliases else "": expr}]
    match expr:
        case Negation(operand=operand):
            return _negate(_expand(operand))
        case Arithmetic(operator="+" | "-" as operator, left=left, right=right):
            one, other = _expand(left), _expand(right)
            other = _negate(other) if operator == "-" else other
            return None if one is None or other is None else one + other
        case Arithmetic(operator="*", left=left, right=right):
            one, other = _expand(left), _expand(right)
            if one is None or other is None or len(one) * len(other) > _MAX_PRODUCTS:
                return None
            return [_join(x, y) for x in one for y in other]
    return None


def _negate(products: list[_Factors] | None) -> list[_Factors] | None:
    if products is None:
        return None
    out = []
    for factors in products:
        (alias, factor), *others = factors.items()
        out.append({alias: Negation(factor), **dict(others)})
    return out


def _join(one: _Factors, other: _Factors) -> _Factors:
    keys = dict.fromkeys((*one, *other))
    return {key: reduce(_multiply, [side[key] for side in (one, other) if key in side]) for key in keys}


def _multiply(one: Expr, other: Expr) -> Expr:
    return other if one == _ONE else Arithmetic("*", one, other)
