"""A second checker for windows that is the definition: the quotient query, judged as a query in time.

Streams within a window of each other (both differences of their timestamps are bounded) are one stream, and a
stream that comes at most so much after another comes before it.  What shows timestamps, or groups by
them, is judged by the last class alone.  Written apart from the product's checker.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from tests.support import time_definition
from tests.support.definition import BOUNDED, UNBOUNDED, UNKNOWN
from tests.support.generate import Atom, Column
from tests.support.time_generate import TimeAtom, TimeCase, time_case_from
from tests.support.window_generate import WindowCase

SECOND = 1_000_000


def decide(case: WindowCase) -> str:
    """Whether the query is computable in bounded memory, by definition."""
    distances = time_distances(case)
    if distances is None or time_definition.time_query(quotient(case, distances, case.projection)) is None:
        return BOUNDED
    last = last_class(case, distances)
    if any(alias not in last for alias in case.closing):
        return UNBOUNDED  # a timestamp or time bucket of a class that is not last
    if case.aggregate is not None and case.closing:
        return _decide_groups(case, distances, last)
    if case.distinct and case.closing:
        columns = [c for c in case.projection if c[0] not in last]
        return time_definition.decide(quotient(case, distances, columns))
    return _decide_asked(case, quotient(case, distances, case.projection, aggregated=True))


def _is_time(case: WindowCase, argument: Column | None) -> bool:
    """The aggregated column is the timestamp of its stream."""
    return argument is not None and argument[1] == case.times[case.occurrences[argument[0]]]


def _decide_asked(case: WindowCase, asked: TimeCase) -> str:
    """The verdict on MIN or MAX; a timestamp is a column of its stream that rises with time."""
    if case.aggregate is None or not _is_time(case, case.aggregate[2]):
        return time_definition.decide(asked)
    function, _, argument = case.aggregate
    return time_definition.decide(
        asked,
        late=argument if function == "MAX" else None,
        early=argument if function == "MIN" else None,
    )


def _decide_groups(case: WindowCase, distances: Mapping[tuple[str, str], float], last: frozenset[str]) -> str:
    """Groups that close with a timestamp of the last class."""
    assert case.aggregate is not None
    function, unique, argument = case.aggregate
    groups = [c for c in case.projection if c[0] not in last]
    inside = argument is None or argument[0] in last
    if unique or function in ("MIN", "MAX"):
        plain = quotient(
            case, distances, groups if inside else [*groups, argument or ("", "")], distinct=True
        )
        verdict = time_definition.decide(plain)
        if inside or unique or verdict == BOUNDED:
            return verdict
        assert argument is not None
        if time_definition.decide(quotient(case, distances, groups, distinct=True)) == UNBOUNDED:
            return UNBOUNDED
        asked = _asked(case, distances, groups, argument, function == "MAX", min(last))
        return _decide_asked(case, asked)
    if function == "MEDIAN" and not inside:
        assert argument is not None
        groups = [*groups, argument]
    verdict = time_definition.decide(quotient(case, distances, groups))
    if verdict == UNBOUNDED and function in ("AVG", "MEDIAN"):
        return UNKNOWN  # what is repeated equally often need not be counted
    if verdict == UNBOUNDED and function == "SUM" and argument is not None:
        plain = quotient(case, distances, groups, distinct=True)
        if time_definition.is_always_zero(plain, argument):  # the sum only tells whether there was a row
            return time_definition.decide(plain)
    return verdict


def _asked(
    case: WindowCase,
    distances: Mapping[tuple[str, str], float],
    groups: list[Column],
    argument: Column,
    largest: bool,
    home: str,
) -> TimeCase:
    """Is there a result beyond x?  The last class asks, with a column of its own."""
    question = (home, "Z")
    atom: Atom = (question, "<", argument) if largest else (question, ">", argument)
    return quotient(case, distances, groups, distinct=True, question=question, more=(atom,))


def time_distances(case: WindowCase) -> dict[tuple[str, str], float] | None:
    """The closure of the differences between timestamps, None where they contradict each other."""
    names = list(case.occurrences)
    d = {(a, b): 0.0 if a == b else inf for a in names for b in names}
    for alias, operator, other, seconds in case.windows:
        if operator in ("<", "<=", "="):
            d[alias, other] = min(d[alias, other], seconds * SECOND - (operator == "<"))
        if operator in (">", ">=", "="):
            d[other, alias] = min(d[other, alias], -seconds * SECOND - (operator == ">"))
    for alias, other, function in case.equal:
        if function.closes:  # both lie in one stretch of time
            d[alias, other] = min(d[alias, other], function.width * SECOND - 1)
            d[other, alias] = min(d[other, alias], function.width * SECOND - 1)
    for k in names:
        for i in names:
            for j in names:
                d[i, j] = min(d[i, j], d[i, k] + d[k, j])
    return None if any(d[a, a] < 0 for a in names) else d


def last_class(case: WindowCase, distances: Mapping[tuple[str, str], float]) -> frozenset[str]:
    """The streams that no other comes more than so much after; empty if there is no such class."""
    names = list(case.occurrences)
    return frozenset(m for m in names if all(distances[o, m] < inf for o in names))


def quotient(
    case: WindowCase,
    distances: Mapping[tuple[str, str], float],
    projection: list[Column] | tuple[Column, ...],
    *,
    aggregated: bool = False,
    distinct: bool | None = None,
    question: Column | None = None,
    more: tuple[Atom, ...] = (),
) -> TimeCase:
    """The query without windows: one timestamp a class, and ``<`` where one class comes before another."""
    atoms: list[TimeAtom] = []
    names = list(case.occurrences)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            before, after = distances[a, b] < inf, distances[b, a] < inf
            if before and after:
                atoms.append((a, "=", b))
            elif before or after:
                atoms.append((a, "<", b) if before else (b, "<", a))
    streams = {name: tuple(columns) for name, columns in case.streams.items()}
    if case.aggregate is not None and case.aggregate[2] is not None and _is_time(case, case.aggregate[2]):
        of = case.occurrences[case.aggregate[2][0]]
        streams[of] = (*streams[of], case.times[of])
    if question is not None:
        home = case.occurrences[question[0]]
        streams[home] = (*streams[home], question[1])
    use = case.aggregate if aggregated else None
    return time_case_from(
        streams,
        [*case.atoms, *more],
        atoms,
        [] if use else list(projection),
        times=case.times,
        occurrences=case.occurrences,
        distinct=(case.distinct if distinct is None else distinct) and not use,
        aggregate=use,
        group_by=list(projection) if use else (),
    )
