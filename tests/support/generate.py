"""Random queries and random streams, reproducible from a ``random.Random``.

``random_case`` yields conjunctive queries over integers together with their structure, so that
``definition.decide`` can decide them; ``random_rich_case`` yields the rest of the language as text.
The distribution is biased: columns that must be bounded often are, and inequality joins come in
bunches, so that bounded and unbounded queries are both frequent.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Column = tuple[str, str]  # (alias, column)
Atom = tuple[Column, str, Column | int]
Aggregate = tuple[str, bool, Column | None]  # (function, distinct, argument); COUNT(*) has no argument
Value = int | float | str | bool | None
Row = dict[str, Value]
Catalog = dict[str, list[tuple[str, str]]]

OPERATORS = ("<", "<=", "=", ">=", ">", "<>")
AGGREGATES: tuple[tuple[str, bool], ...] = (
    ("COUNT", False),
    ("COUNT", True),
    ("SUM", False),
    ("AVG", False),
    ("MIN", False),
    ("MAX", False),
    ("MEDIAN", False),
)
NAMES = ("S", "T", "U", "V")
LETTERS = ("ABC", "DEF", "GHI", "JKL")


@dataclass(frozen=True)
class Case:
    """A query as text and as structure: ``WHERE`` is the conjunction of ``atoms``; all columns are INT.

    An empty projection without an aggregate is ``SELECT 1``.  With an aggregate the projection is the
    grouping columns and the select list is the grouping columns followed by the aggregate.
    """

    sql: str
    streams: Mapping[str, tuple[str, ...]]
    occurrences: Mapping[str, str]
    atoms: tuple[Atom, ...]
    projection: tuple[Column, ...]
    distinct: bool
    aggregate: Aggregate | None = None
    group_by: tuple[Column, ...] = ()

    @property
    def catalog(self) -> Catalog:
        return {name: [(column, "INT") for column in columns] for name, columns in self.streams.items()}


@dataclass(frozen=True)
class RichCase:
    """A query as text only.  ``ranges`` are the CHECK constraints, as a closed interval of a column."""

    sql: str
    streams: Mapping[str, tuple[tuple[str, str], ...]]
    ranges: Mapping[Column, tuple[int, int]] = field(default_factory=dict)

    @property
    def catalog(self) -> Catalog:
        return {name: list(columns) for name, columns in self.streams.items()}


# --- conjunctive queries ----------------------------------------------------------------------------


def case_from(
    streams: Mapping[str, Sequence[str] | str],
    occurrences: Mapping[str, str] | Sequence[str],
    atoms: Sequence[Atom],
    projection: Sequence[Column] = (),
    *,
    distinct: bool = False,
    aggregate: Aggregate | None = None,
    group_by: Sequence[Column] = (),
) -> Case:
    """A case from its structure; ``occurrences`` may be a list of streams, each under its own name."""
    tables = {name: tuple(columns) for name, columns in streams.items()}
    places = dict(occurrences) if isinstance(occurrences, Mapping) else {name: name for name in occurrences}
    columns = tuple(group_by) if aggregate else tuple(projection)
    items = [_name(c) for c in columns]
    if aggregate:
        function, unique, argument = aggregate
        inner = "*" if argument is None else ("DISTINCT " if unique else "") + _name(argument)
        items.append(f"{function}({inner})")
    sources = ", ".join(alias if alias == stream else f"{stream} {alias}" for alias, stream in places.items())
    text = f"SELECT {'DISTINCT ' if distinct else ''}{', '.join(items) or '1'} FROM {sources}"
    if atoms:
        text += " WHERE " + " AND ".join(_atom_text(atom) for atom in atoms)
    if group_by:
        text += " GROUP BY " + ", ".join(_name(c) for c in group_by)
    ddl = [
        f"CREATE STREAMING TABLE {n} ({', '.join(c + ' INT' for c in cols)});" for n, cols in tables.items()
    ]
    return Case(
        sql="\n".join([*ddl, text + ";"]),
        streams=tables,
        occurrences=places,
        atoms=tuple(atoms),
        projection=columns,
        distinct=distinct,
        aggregate=aggregate,
        group_by=tuple(group_by),
    )


def random_case(
    rng: random.Random,
    *,
    max_streams: int = 3,
    max_columns: int = 3,
    max_constants: int = 3,
    constants: Sequence[int] = tuple(range(-2, 5)),
    max_atoms: int = 6,
    operators: Sequence[str] = OPERATORS,
    distinct: float = 0.5,
    self_join: float = 0.15,
    aggregate: float = 0.3,
    aggregates: Sequence[tuple[str, bool]] = AGGREGATES,
    max_group: int = 2,
    bound: float = 0.7,
) -> Case:
    """A random conjunctive query; the float knobs are probabilities (``bound``: of an output column)."""
    width = rng.choices(range(1, max_streams + 1), weights=[2, 6, 3, 2][:max_streams])[0]
    streams = {
        NAMES[i]: tuple(
            LETTERS[i][: rng.choices(range(1, max_columns + 1), weights=[2, 4, 3][:max_columns])[0]]
        )
        for i in range(width)
    }
    occurrences = {name: name for name in streams}
    if rng.random() < self_join and max_streams > 1:
        doubled = rng.choice(sorted(streams))
        others = [n for n in streams if n != doubled][: max_streams - 2]
        copies = 2 if others or max_streams < 3 or rng.random() < 0.7 else 3
        streams = {n: streams[n] for n in (doubled, *others)}
        occurrences = {f"{doubled}{i + 1}": doubled for i in range(copies)} | {n: n for n in others}
    columns = [(alias, c) for alias, stream in occurrences.items() for c in streams[stream]]
    values = sorted(rng.sample(list(constants), rng.randint(0, min(max_constants, len(constants)))))

    function: Aggregate | None = None
    group: list[Column] = []
    projection: list[Column] = []
    if rng.random() < aggregate:
        name, unique = rng.choice(list(aggregates))
        star = name == "COUNT" and not unique and rng.random() < 0.5
        function = (name, unique, None if star else rng.choice(columns))
        group = _sample(
            rng, columns, rng.choices(range(max_group + 1), weights=[4, 3, 1][: max_group + 1])[0]
        )
    else:
        projection = _sample(rng, columns, rng.choices([0, 1, 2], weights=[4, 5, 1])[0])

    atoms: list[Atom] = []
    for column in [*group, *projection]:
        if values and rng.random() < bound:
            atoms += _bounding(rng, column, values, operators)
    wanted = rng.randint(0, max_atoms)
    for _ in range(4 * max_atoms):
        if len(atoms) >= wanted:
            break
        atoms += _motif(rng, occurrences, columns, values, operators)
    unique_atoms = list(dict.fromkeys(atoms))[:max_atoms]
    rng.shuffle(unique_atoms)
    return case_from(
        streams,
        occurrences,
        unique_atoms,
        projection,
        distinct=function is None and rng.random() < distinct,
        aggregate=function,
        group_by=group,
    )


def _sample(rng: random.Random, columns: Sequence[Column], count: int) -> list[Column]:
    return rng.sample(list(columns), min(count, len(columns)))


def _name(column: Column) -> str:
    return f"{column[0]}.{column[1]}"


def _atom_text(atom: Atom) -> str:
    left, operator, right = atom
    return f"{_name(left)} {operator} {right if isinstance(right, int) else _name(right)}"


def _bounding(
    rng: random.Random, column: Column, values: Sequence[int], operators: Sequence[str]
) -> list[Atom]:
    """Atoms that bound the column: a pin, a range, or the integer squeeze."""
    low, high = values[0], values[-1]
    kind = rng.random()
    if "=" in operators and (kind < 0.4 or low == high):
        return [(column, "=", rng.choice(list(values)))]
    lower = rng.choice([o for o in (">", ">=") if o in operators] or [">"])
    upper = rng.choice([o for o in ("<", "<=") if o in operators] or ["<"])
    return [(column, lower, low), (column, upper, high)]


def _motif(
    rng: random.Random,
    occurrences: Mapping[str, str],
    columns: Sequence[Column],
    values: Sequence[int],
    operators: Sequence[str],
) -> list[Atom]:
    """A few atoms that mean something together."""
    inequalities = [o for o in operators if o in ("<", "<=", ">", ">=")] or list(operators)
    pairs = [(x, y) for x in columns for y in columns if x[0] < y[0]]
    kind = rng.random()
    if pairs and kind < 0.45:
        x, y = rng.choice(pairs)
        if rng.random() < 0.75:
            return [(x, rng.choice(inequalities), y)]
        return [(x, rng.choice(list(operators)), y)]
    if pairs and kind < 0.6:  # two joins between the same two occurrences
        x, y = rng.choice(pairs)
        near = [p for p in pairs if (p[0][0], p[1][0]) == (x[0], y[0])]
        (x1, y1), (x2, y2) = rng.choice(near), rng.choice(near)
        return [(x1, rng.choice(inequalities), y1), (x2, rng.choice(inequalities), y2)]
    if pairs and kind < 0.64:  # an implied equality
        x, y = rng.choice(pairs)
        if "<=" in operators and ">=" in operators:
            return [(x, "<=", y), (x, ">=", y)]
    if values and kind < 0.92:
        x = rng.choice(list(columns))
        if rng.random() < 0.3:
            return _bounding(rng, x, values, operators)
        choice = rng.choice(inequalities if rng.random() < 0.8 else list(operators))
        return [(x, choice, rng.choice(list(values)))]
    x = rng.choice(list(columns))
    same = [c for c in columns if c[0] == x[0] and c != x]
    return [(x, rng.choice(list(operators)), rng.choice(same))] if same else []


# --- the rest of the language -----------------------------------------------------------------------

_TYPES = ("INT", "INT", "INT", "INT", "BIGINT", "DOUBLE", "STRING", "BOOLEAN", "TINYINT")
_NUMBERS = ("INT", "BIGINT", "TINYINT", "DOUBLE")
_STRINGS = ("a", "b", "c", "d")


@dataclass(frozen=True)
class _Scope:
    rng: random.Random
    types: Mapping[Column, str]
    values: Sequence[int]

    def family(self, column: Column) -> str:
        kind = self.types[column]
        return "NUMBER" if kind in _NUMBERS else kind

    def literal(self, column: Column) -> str:
        rng, kind = self.rng, self.types[column]
        if kind == "STRING":
            return f"'{rng.choice(_STRINGS)}'"
        if kind == "BOOLEAN":
            return rng.choice(["TRUE", "FALSE"])
        if kind == "DOUBLE" and rng.random() < 0.5:
            return f"{rng.choice(list(self.values)) + 0.5}"
        return str(rng.choice(list(self.values)))

    def condition(self, depth: int) -> str:
        rng = self.rng
        kind = rng.random()
        if depth > 0 and kind < 0.2:
            return f"({self.condition(depth - 1)} OR {self.condition(depth - 1)})"
        if depth > 0 and kind < 0.27:
            return f"NOT ({self.condition(depth - 1)})"
        if depth > 0 and kind < 0.35:
            return f"({self.condition(depth - 1)} AND {self.condition(depth - 1)})"
        column = rng.choice(sorted(self.types))
        family = self.family(column)
        negation = "NOT " if rng.random() < 0.15 else ""
        if kind < 0.45 and family != "BOOLEAN":
            a, b = sorted([self.literal(column), self.literal(column)], key=_sort_key)
            return f"{_name(column)} {negation}BETWEEN {a} AND {b}"
        if kind < 0.55:
            members = sorted({self.literal(column) for _ in range(rng.randint(1, 3))})
            return f"{_name(column)} {negation}IN ({', '.join(members)})"
        operators = ("=", "<>") if family == "BOOLEAN" else OPERATORS
        others = [c for c in sorted(self.types) if c != column and self.family(c) == family]
        if kind < 0.75 or not others:
            return f"{_name(column)} {rng.choice(operators)} {self.literal(column)}"
        other = rng.choice([c for c in others if c[0] != column[0]] or others)
        offset = ""
        if family == "NUMBER" and rng.random() < 0.2:
            offset = rng.choice([" + 1", " + 2", " - 1", " - 3"])
        return f"{_name(column)} {rng.choice(operators)} {_name(other)}{offset}"


def _sort_key(literal: str) -> tuple[float, str]:
    return (0.0, literal) if literal.startswith("'") else (float(literal), "")


def random_rich_case(
    rng: random.Random,
    *,
    max_streams: int = 3,
    max_conditions: int = 4,
    self_join: float = 0.1,
    aggregate: float = 0.3,
    union: float = 0.2,
    check: float = 0.25,
    types: Sequence[str] = _TYPES,
    expressions: float = 0.1,
) -> RichCase:
    """A random query with OR, IN, NOT, BETWEEN, UNION, CHECK, HAVING, offsets and all kinds of types."""
    values = sorted(rng.sample(range(-2, 6), 3))
    width = rng.choices(range(1, max_streams + 1), weights=[3, 5, 2, 1][:max_streams])[0]
    streams: dict[str, tuple[tuple[str, str], ...]] = {}
    ranges: dict[Column, tuple[int, int]] = {}
    ddl = []
    for i in range(width):
        columns = [(c, rng.choice(list(types))) for c in LETTERS[i][: rng.randint(1, 3)]]
        streams[NAMES[i]] = tuple(columns)
        parts = []
        for column, kind in columns:
            text = f"{column} {kind}"
            if kind in _NUMBERS and rng.random() < check:
                low = rng.randint(-2, 2)
                high = low + rng.randint(0, 4)
                ranges[NAMES[i], column] = (low, high)
                text += rng.choice([f" CHECK ({column} BETWEEN {low} AND {high})",
                                    f" CHECK ({column} >= {low} AND {column} <= {high})"])  # fmt: skip
            parts.append(text)
        ddl.append(f"CREATE STREAMING TABLE {NAMES[i]} ({', '.join(parts)});")

    def scope() -> tuple[str, _Scope]:
        occurrences = {name: name for name in streams if len(streams) < 2 or rng.random() < 0.85}
        occurrences = occurrences or {"S": "S"}
        if rng.random() < self_join and len(occurrences) < 3:
            doubled = rng.choice(sorted(occurrences))
            del occurrences[doubled]
            occurrences |= {f"{doubled.lower()}{i}": doubled for i in (1, 2)}
        sources = [a if a == s else f"{s} {a}" for a, s in occurrences.items()]
        joined = ", ".join(sources) if rng.random() < 0.8 else " CROSS JOIN ".join(sources)
        known = {(a, c): kind for a, s in occurrences.items() for c, kind in streams[s]}
        return joined, _Scope(rng, known, values)

    def where(inner: _Scope, outputs: Sequence[Column]) -> str:
        conditions = [inner.condition(2) for _ in range(rng.randint(0, max_conditions))]
        for column in outputs:
            if rng.random() < 0.7:
                conditions.append(_rich_bound(inner, column))
        rng.shuffle(conditions)
        return " WHERE " + " AND ".join(conditions) if conditions else ""

    if rng.random() < aggregate:
        joined, inner = scope()
        everything = sorted(inner.types)
        numbers = [c for c in everything if inner.family(c) == "NUMBER"]
        group = _sample(rng, everything, rng.choices([0, 1, 2], weights=[4, 3, 1])[0])
        calls = [_call(rng, everything, numbers) for _ in range(rng.choice([1, 1, 1, 2]))]
        text = f"SELECT {', '.join([_name(c) for c in group] + calls)} FROM {joined}{where(inner, group)}"
        if group:
            text += " GROUP BY " + ", ".join(_name(c) for c in group)
        if rng.random() < 0.3:
            text += f" HAVING {rng.choice(['COUNT(*)', _call(rng, everything, [])])} > {rng.randint(0, 3)}"
    else:
        parts = []
        arity = rng.choice([0, 1, 1, 2])
        for _ in range(2 if rng.random() < union else 1):
            joined, inner = scope()
            integers = [c for c in sorted(inner.types) if inner.types[c] == "INT"]
            pool = integers if rng.random() < 0.6 or parts else sorted(inner.types)
            if parts or not pool:
                pool = integers
            if arity and not pool:
                arity = 0 if not parts else arity
            outputs = [rng.choice(pool) for _ in range(arity)] if pool else []
            items = [
                f"{_name(c)} + 1" if inner.types[c] == "INT" and rng.random() < expressions else _name(c)
                for c in outputs
            ]
            items += ["1"] * (max(arity, 1) - len(items))
            unique = "DISTINCT " if rng.random() < 0.5 else ""
            parts.append(f"SELECT {unique}{', '.join(items)} FROM {joined}{where(inner, outputs)}")
            if any(inner.types[c] != "INT" for c in outputs):
                break  # a union's columns are integers, so that both sides have the same type
        text = rng.choice([" UNION ", " UNION ALL "]).join(parts)
    return RichCase("\n".join([*ddl, text + ";"]), streams, ranges)


def _rich_bound(scope: _Scope, column: Column) -> str:
    rng = scope.rng
    if scope.family(column) == "NUMBER" and rng.random() < 0.5:
        low, high = sorted([rng.choice(list(scope.values)), rng.choice(list(scope.values))])
        return f"{_name(column)} BETWEEN {low} AND {high}"
    members = sorted({scope.literal(column) for _ in range(rng.randint(1, 3))})
    return f"{_name(column)} IN ({', '.join(members)})"


def _call(rng: random.Random, everything: Sequence[Column], numbers: Sequence[Column]) -> str:
    if numbers and rng.random() < 0.6:
        return f"{rng.choice(['SUM', 'AVG', 'MIN', 'MAX', 'MEDIAN'])}({_name(rng.choice(list(numbers)))})"
    column = _name(rng.choice(list(everything)))
    return rng.choice(["COUNT(*)", f"COUNT({column})", f"COUNT(DISTINCT {column})"])


# --- rows -------------------------------------------------------------------------------------------


def random_rows(
    rng: random.Random,
    case: Case | RichCase,
    n: int,
    *,
    nulls: float = 0.0,
    far: float = 0.1,
    spread: int = 2,
) -> list[tuple[str, Row]]:
    """``n`` rows, the streams interleaved: values near the query's constants, sometimes far out, or NULL."""
    ranges: Mapping[Column, tuple[int, int]] = case.ranges if isinstance(case, RichCase) else {}
    constants = [r for _, _, r in case.atoms if isinstance(r, int)] if isinstance(case, Case) else [-2, 5]
    low, high = min(constants, default=0) - spread, max(constants, default=2) + spread
    catalog = case.catalog

    def value(stream: str, column: str, kind: str) -> Value:
        if rng.random() < nulls:
            return None
        if kind == "STRING":
            return rng.choice(_STRINGS) if rng.random() > far else f"z{rng.randint(0, 99)}"
        if kind == "BOOLEAN":
            return rng.random() < 0.5
        bounds = ranges.get((stream, column))
        if bounds is None:
            bounds = (low, high)
            if rng.random() < far:
                bounds = (-128, 127) if kind == "TINYINT" else (-1000, 1000)
        number = rng.randint(*bounds)
        half = kind == "DOUBLE" and number < bounds[1] and rng.random() < 0.3
        return (number + 0.5 if half else float(number)) if kind == "DOUBLE" else number

    return [
        (stream, {column: value(stream, column, kind) for column, kind in catalog[stream]})
        for stream in (rng.choice(sorted(catalog)) for _ in range(n))
    ]


def by_stream(case: Case | RichCase, rows: Sequence[tuple[str, Row]]) -> dict[str, list[Row]]:
    """The rows of every stream, in order: a case for ``oracle.answers``."""
    return {stream: [row for name, row in rows if name == stream] for stream in case.catalog}


# --- joins on a bounded key ---------------------------------------------------------------------------

_KEYED_CALLS = (
    "COUNT(*)",
    "COUNT(DISTINCT S.B)",
    "SUM(S.B)",
    "AVG(T.E)",
    "MIN(S.B)",
    "MAX(T.E)",
    "MEDIAN(S.B)",
)


def random_keyed_case(rng: random.Random) -> RichCase:
    """An equality join on a key with many values, by which large synopses are partitioned."""
    streams: dict[str, tuple[tuple[str, str], ...]] = {
        "S": (("A", "INT"), ("B", "TINYINT")),
        "T": (("D", "INT"), ("E", "TINYINT")),
    }
    low = rng.randint(-5, 5)
    high = low + rng.randint(8, 20)
    offset = rng.choice(["", "", " + 3", " - 2"])
    joined, conditions = "S, T", [f"S.A = T.D{offset}", f"S.A BETWEEN {low} AND {high}"]
    if rng.random() < 0.3:
        streams["U"] = (("G", "BIGINT"),)
        joined += ", U"
        conditions.append("U.G = T.D")
    elif rng.random() < 0.2:
        joined, conditions = "S, T, S Z", [*conditions, "Z.A = S.A"]
    if rng.random() < 0.3:
        conditions.append(rng.choice(["S.B < T.E", "S.B <> T.E", "S.B + 1 <= T.E"]))
    where = " AND ".join(conditions)
    kind = rng.random()
    if kind < 0.35:
        text = f"SELECT {rng.choice(['S.A', 'S.A, T.E', 'T.D + 1, S.B', 'S.B'])} FROM {joined} WHERE {where}"
    elif kind < 0.6:
        text = (
            f"SELECT DISTINCT {rng.choice(['S.A', 'T.D, S.B', 'S.B', 'S.A + 1'])} FROM {joined} WHERE {where}"
        )
    else:
        calls = ", ".join(rng.sample(_KEYED_CALLS, rng.randint(1, 3)))
        group = rng.choice(["S.A", "T.D", "S.A, S.B"])
        text = f"SELECT {group}, {calls} FROM {joined} WHERE {where} GROUP BY {group}"
        if rng.random() < 0.3:
            text += rng.choice([" HAVING COUNT(*) > 1", " HAVING SUM(S.B) < 5", " HAVING MAX(T.E) >= 0"])
    ddl = [
        f"CREATE STREAMING TABLE {name} ({', '.join(' '.join(c) for c in columns)});"
        for name, columns in streams.items()
    ]
    return RichCase("\n".join([*ddl, f"{text};"]), streams, {})
