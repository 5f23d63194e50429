"""Random queries with EXISTS, NOT EXISTS and LEFT JOIN over streams with application time.

A case has *outer* streams, the first of which is tested for partners among the *inner* ones.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.support.generate import Atom, Catalog, Column
from tests.support.time_generate import TimeRow, at_second
from tests.support.window_generate import WindowAtom

KINDS = ("EXISTS", "NOT EXISTS", "LEFT JOIN")
STREAMS = {"S": ("A", "B"), "T": ("D", "E"), "U": ("G", "H"), "V": ("N", "O")}
TIMES = {"S": "I", "T": "J", "U": "K", "V": "L"}


@dataclass(frozen=True)
class PartnerCase:
    """A query as text and as structure; ``outer`` and ``inner`` are the names of its streams.

    Conditions are conjunctions of atoms and windows; those of the inner streams also mention the first outer
    one.  An empty projection is COUNT(*) or, with ``distinct``, DISTINCT 1.
    """

    sql: str
    kind: str
    outer: tuple[str, ...]
    inner: tuple[str, ...]
    outer_atoms: tuple[Atom, ...]
    inner_atoms: tuple[Atom, ...]
    outer_windows: tuple[WindowAtom, ...]
    inner_windows: tuple[WindowAtom, ...]
    projection: tuple[Column, ...]
    distinct: bool

    @property
    def tested(self) -> str:
        return self.outer[0]

    @property
    def catalog(self) -> Catalog:
        return {
            name: [*((c, "INT") for c in STREAMS[name]), (TIMES[name], "TIMESTAMP")]
            for name in (*self.outer, *self.inner)
        }


def random_partner_case(rng: random.Random, waiting: bool = False) -> PartnerCase:
    """A random query; a little more than half of them are bounded.

    ``waiting``: with EXISTS and duplicates, and the partner may come any time.
    """
    kind = rng.choice(("EXISTS",) if waiting else KINDS)
    outer = ("S", "U") if rng.random() < 0.35 else ("S",)
    inner = ("T", "V") if kind != "LEFT JOIN" and rng.random() < 0.25 else ("T",)
    inner_windows = _random_windows(rng, "T", "S", last=0.0 if waiting else 0.9)
    for name in inner[1:]:
        inner_windows += _random_windows(rng, name, rng.choice(["S", "T"]), last=0.9)
    outer_windows = [w for name in outer[1:] for w in _random_windows(rng, name, "S", last=0.5)]
    inner_atoms = _random_atoms(rng, ("S", *inner), rng.choice([1, 1, 2, 3]))
    outer_atoms = _random_atoms(rng, outer, rng.choice([0, 1, 1, 2]) + len(outer) - 1)
    columns = [(name, c) for name in outer for c in STREAMS[name]]
    if kind == "LEFT JOIN":
        columns += [("T", "D")]
    projection = tuple(dict.fromkeys(rng.choices(columns, k=rng.choice([0, 1, 1, 2]))))
    distinct = not waiting and rng.random() < 0.4
    return build_partner_case(
        kind, outer, inner, (outer_atoms, inner_atoms), (outer_windows, inner_windows), projection, distinct
    )


def build_partner_case(
    kind: str,
    outer: Sequence[str],
    inner: Sequence[str],
    atoms: tuple[Sequence[Atom], Sequence[Atom]],
    windows: tuple[Sequence[WindowAtom], Sequence[WindowAtom]],
    projection: Sequence[Column],
    distinct: bool,
) -> PartnerCase:
    """The case with its SQL text; ``atoms`` and ``windows`` are pairs: of the outer, of the inner streams."""
    where, on = (_render(*pair) for pair in zip(atoms, windows, strict=True))
    items = ", ".join(f"{a}.{c} AS c{i}" for i, (a, c) in enumerate(projection))
    items = ("DISTINCT " if distinct else "") + (items or ("1" if distinct else "COUNT(*)"))
    if kind == "LEFT JOIN":
        sources = " CROSS JOIN ".join(outer) + f" LEFT JOIN {inner[0]} ON {' AND '.join(on) or 'TRUE'}"
    else:
        sources = ", ".join(outer)
        subquery = f"SELECT 1 FROM {', '.join(inner)}" + (f" WHERE {' AND '.join(on)}" if on else "")
        where.append(f"{kind} ({subquery})")
    text = f"SELECT {items} FROM {sources}" + (f" WHERE {' AND '.join(where)}" if where else "")
    ddl = [
        f"CREATE STREAMING TABLE {n} ({', '.join(f'{c} INT' for c in STREAMS[n])}, {TIMES[n]} TIMESTAMP);"
        for n in (*outer, *inner)
    ]
    return PartnerCase(
        "\n".join([*ddl, text + ";"]),
        kind,
        tuple(outer),
        tuple(inner),
        tuple(atoms[0]),
        tuple(atoms[1]),
        tuple(windows[0]),
        tuple(windows[1]),
        tuple(projection),
        distinct,
    )


def _random_windows(rng: random.Random, name: str, other: str, *, last: float) -> list[WindowAtom]:
    """How two streams lie in time; with probability ``last`` the first comes at most so much after."""
    seconds = rng.choice([-1, 0, 0, 1, 2, 3])
    if rng.random() >= last:
        return [] if rng.random() < 0.5 else [(other, "<=", name, seconds)]
    upper: WindowAtom = (name, rng.choice(["<=", "<=", "<"]), other, seconds)
    if rng.random() < 0.6:
        return [upper, (other, "<=", name, rng.choice([0, 1, 2, 3]) - min(seconds, 0))]
    return [upper]


def _random_atoms(rng: random.Random, names: Sequence[str], count: int) -> list[Atom]:
    """Joins of the streams, and conditions that bound columns."""
    columns = [(name, c) for name in names for c in STREAMS[name]]
    atoms: list[Atom] = []
    for _ in range(count):
        if len(names) > 1 and rng.random() < 0.75:
            a, b = rng.sample(list(names), 2)
            left, right = (a, rng.choice(STREAMS[a])), (b, rng.choice(STREAMS[b]))
            atoms.append((left, rng.choice(["=", "=", "<", "<", "<=", ">"]), right))
        else:
            atoms.append((rng.choice(columns), rng.choice(["<", ">", "<=", "="]), rng.randint(0, 3)))
    if rng.random() < 0.5:
        column = rng.choice(columns)
        atoms += [(column, ">=", 0), (column, "<=", 2)]
    return atoms


def _render(atoms: Sequence[Atom], windows: Sequence[WindowAtom]) -> list[str]:
    texts = [
        f"{'.'.join(left)} {operator} {right if isinstance(right, int) else '.'.join(right)}"
        for left, operator, right in atoms
    ]
    for name, operator, other, seconds in windows:
        sign = "-" if seconds < 0 else "+"
        after = f" {sign} INTERVAL {abs(seconds)} SECONDS" if seconds else ""
        texts.append(f"{name}.{TIMES[name]} {operator} {other}.{TIMES[other]}{after}")
    return texts


def random_partner_rows(rng: random.Random, case: PartnerCase, count: int) -> list[tuple[str, TimeRow]]:
    """Rows in time order, with NULLs and pauses."""
    rows: list[tuple[str, TimeRow]] = []
    second = 0
    for _ in range(count):
        second += rng.choice([0, 0, 0, 1, 1, 2, 2, 9])
        name = rng.choice([*case.outer, *case.inner])
        values: Mapping[str, int | None] = {
            c: None if rng.random() < 0.05 else rng.randint(-1, 4) for c in STREAMS[name]
        }
        rows.append((name, {**values, TIMES[name]: at_second(second)}))
    return rows
