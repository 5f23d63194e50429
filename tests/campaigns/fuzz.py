"""Mutated queries through ``millpond check``: an exit code from 0 to 3 within 5 s, and never a traceback.

    python -m tests.campaigns.fuzz --cases 10000 [--queries FOLDER]

The mutants are made of the auction queries, of the examples in ``tests/fixtures``, and of the ``.sql`` files
in FOLDER.  Two thirds of them replace names, operators and functions by others, so that many stay valid.  In
the others, tokens are deleted, repeated, swapped and replaced, queries are spliced or cut off, and
expressions get unusual characters, deep nesting or huge constants.  The limit is on the CPU time, so that it
does not depend on what else the machine does.  Each seed is one mutant, which ``--seed N --cases 1 --show``
prints.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.auction.compare import read_queries
from millpond.cli.main import main as run_command
from tests.support.verdict_fixtures import read_examples

LIMIT = 5.0  # seconds
EXIT_CODES = (0, 1, 2, 3)
BAD = Path(__file__).parents[1] / "fixtures" / "bad"
_TOKEN = re.compile(
    r"\s+|--[^\n]*|'(?:[^'\\]|\\.|'')*'|`[^`]*`|\d+(?:\.\d+)?|\w+|<=>|<=|>=|<>|!=|\|\||::|.", re.DOTALL
)
_WORDS = """
    SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT DISTINCT ALL UNION INTERSECT EXCEPT JOIN LEFT
    RIGHT FULL OUTER SEMI ANTI CROSS NATURAL ON USING AS WITH OVER PARTITION ROWS RANGE BETWEEN AND
    OR NOT IN EXISTS IS NULL TRUE CASE WHEN THEN ELSE END CAST INTERVAL FILTER WINDOW window
    session_window date_trunc COUNT SUM AVG MIN MAX MEDIAN ROW_NUMBER RANK LAG LEAD COALESCE
    UNBOUNDED PRECEDING FOLLOWING CURRENT ROW LATERAL VIEW CREATE TABLE STREAMING CHECK
    TBLPROPERTIES OPTIONS INT STRING TIMESTAMP DECIMAL DESC ASC NULLS FIRST LIKE RLIKE ANY VALUES
    EXPLODE QUALIFY ( ) , . ; * + - / % = < > <= >= <> != <=> || :: [ ] { } ? : -> ' " ` /* */ -- 0
    1 -1 1e400 1e-400 .5 0x1F 1L 1.5BD 99999999999999999999999999999999999999999 '' 'x'
""".split()  # noqa: SIM905 (a list of words reads better)
# Tokens that can stand for each other in a text that stays valid.
_ALIKE = tuple(
    group.split()
    for group in (
        "< <= = >= > <> <=>",
        "+ - * / % ||",
        "AND OR",
        "COUNT SUM AVG MIN MAX MEDIAN STDDEV COUNT_IF FIRST LAST COLLECT_SET MAX_BY PERCENTILE",
        "ROW_NUMBER RANK DENSE_RANK LAG LEAD NTILE",
        "LEFT RIGHT FULL INNER CROSS",
        "INT BIGINT STRING DOUBLE BOOLEAN TIMESTAMP DATE TINYINT DECIMAL(10,2)",
        "'10 minutes' '1 hour' '30 seconds' '1 day' '0 seconds' '-5 minutes' '1 month'",
        "0 1 2 3 5 10 100 1.5 -1 NULL",
        "hour day minute month year second date_trunc to_date unix_timestamp",
        "DESC ASC",
        "UNION INTERSECT EXCEPT",
        "window session_window",
    )
)
_CHARACTERS = "\u00a0\u200b\u202e\ufeff\u2028\x00\x1a\r\v\\é漢𝒳🙂\ud7ff\uffff\u0301"


class CaseTimeout(BaseException):
    """A case took longer than its limit; not an Exception, so that nothing handles it."""


@dataclass(frozen=True)
class Checked:
    """What became of a mutant: its exit code, or what is wrong."""

    code: int | None
    seconds: float
    problem: str = ""


# --- mutants -------------------------------------------------------------------------------------------


def read_corpus(folder: Path | None) -> list[str]:
    """The queries that are mutated, each with its catalog."""
    texts = [query.sql for query in read_queries()]
    texts += [example.sql for example in read_examples()][::7]
    texts += [file.read_text() for file in sorted(BAD.glob("outside_*.sql"))][::3]
    if folder is not None:
        texts += [file.read_text() for file in sorted(folder.glob("*.sql"))] * 3
    return texts


def make_mutant(seed: int, corpus: Sequence[str]) -> str:
    """The mutant of a seed: one to four mutations of a query."""
    rng = random.Random(seed)
    tokens = _TOKEN.findall(rng.choice(corpus)) or [" "]
    other = _TOKEN.findall(rng.choice(corpus)) or [" "]
    is_gentle = rng.random() < 0.7
    mutations = _GENTLE if is_gentle else _MUTATIONS
    for _ in range(rng.choice((1, 1, 1, 2) if is_gentle else (1, 1, 2, 3, 4))):
        tokens = rng.choice(mutations)(rng, tokens, other) or [" "]
    return "".join(tokens)


def _place(rng: random.Random, tokens: Sequence[str]) -> int:
    """A token that is not white space, mostly of the last statement."""
    last = max((i for i, token in enumerate(tokens[:-2]) if token == ";"), default=0)
    places = [
        i for i, token in enumerate(tokens) if not token.isspace() and (i >= last or rng.random() < 0.2)
    ]
    return rng.choice(places or [0])


def _delete(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    at = _place(rng, tokens)
    return tokens[:at] + tokens[at + rng.choice((1, 1, 1, 3, 8)) :]


def _repeat(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    at, length = _place(rng, tokens), rng.choice((1, 2, 5, 20))
    return (
        tokens[: at + length]
        + [" ", *tokens[at : at + length]] * rng.choice((1, 1, 2, 50))
        + tokens[at + length :]
    )


def _swap(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    a, b = _place(rng, tokens), _place(rng, tokens)
    swapped = list(tokens)
    swapped[a], swapped[b] = swapped[b], swapped[a]
    return swapped


def _replace(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    at = _place(rng, tokens)
    new = rng.choice((rng.choice(_WORDS), tokens[_place(rng, tokens)], other[_place(rng, other)]))
    return [*tokens[:at], " ", new, " ", *tokens[at + 1 :]]


def _insert(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    at, source = _place(rng, tokens), _place(rng, other)
    new = other[source : source + rng.choice((1, 3, 10))] if rng.random() < 0.5 else [rng.choice(_WORDS)]
    return [*tokens[:at], " ", *new, " ", *tokens[at:]]


def _splice(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    return tokens[: _place(rng, tokens)] + other[_place(rng, other) :]


def _append(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    return [*tokens, *rng.choice(([";"], [" UNION "], [" UNION ALL "], [])), *other]


def _cut(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    text = "".join(tokens)
    return _TOKEN.findall(text[: rng.randrange(len(text) + 1)])


def _disturb(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    at = _place(rng, tokens)
    inside = rng.randrange(len(tokens[at]) + 1)
    new = tokens[at][:inside] + rng.choice(_CHARACTERS) + tokens[at][inside:]
    return [*tokens[:at], new, *tokens[at + 1 :]]


def _nest(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    at, depth = _place(rng, tokens), rng.choice((2, 20, 90, 200, 3000))
    opening, closing = rng.choice(
        (
            ("(", ")"),
            ("NOT ", ""),
            ("- ", ""),
            ("abs(", ")"),
            ("CASE WHEN ", " THEN 1 END"),
            ("(SELECT ", ")"),
            ("SELECT * FROM (", ")"),
            ("1 + ", ""),
            ("CAST(", " AS INT)"),
        )
    )
    return [*tokens[:at], opening * depth, tokens[at], closing * depth, *tokens[at + 1 :]]


def _inflate(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    at, size = _place(rng, tokens), rng.choice((30, 300, 5_000, 100_000))
    new = rng.choice(
        (
            "9" * size,
            f"1.{'0' * size}1",
            f"'{'x' * size}'",
            "a" * size,
            f"1e{'9' * min(size, 300)}",
            "1,1" * size,
        )
    )
    return [*tokens[:at], " ", new, " ", *tokens[at + 1 :]]


def _vary(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    """Replace a token by one of the same kind."""
    upper = {token.upper(): group for group in _ALIKE for token in group}
    places = [i for i, token in enumerate(tokens) if token.upper() in upper]
    if not places:
        return tokens
    at = rng.choice(places)
    return [*tokens[:at], rng.choice(upper[tokens[at].upper()]), *tokens[at + 1 :]]


def _rename(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    """Replace a name by another name of the text."""
    names = [i for i, token in enumerate(tokens) if token.islower() and token.isidentifier()]
    if not names:
        return tokens
    at = rng.choice(names)
    return [*tokens[:at], tokens[rng.choice(names)], *tokens[at + 1 :]]


def _wrap(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    """Apply a function to a name."""
    names = [i for i, token in enumerate(tokens) if token.islower() and token.isidentifier()]
    if not names:
        return tokens
    at = rng.choice(names)
    forms = (
        *("({})", "abs({})", "lower({})", "-{}", "{} + 1", "{} || 'x'", "COALESCE({}, 0)", "{}::STRING"),
        *("CASE WHEN {0} IS NULL THEN 1 ELSE {0} END", "MAX({})", "COUNT(DISTINCT {})", "{} IS NULL"),
        *(
            "NOT {}",
            "(SELECT MAX({}))",
            "LAG({}) OVER (ORDER BY 1)",
            "window({}, '1 hour')",
            "date_trunc('day', {})",
        ),
        *(
            "{} AS {}",
            "split({}, ',')[0]",
            "{}.x",
            "{} IN (1, 2)",
            "{} BETWEEN 1 AND 2",
            "from_json({}, 'a INT').a",
        ),
    )
    return [*tokens[:at], rng.choice(forms).format(tokens[at], tokens[at]), *tokens[at + 1 :]]


def _drop_clause(rng: random.Random, tokens: list[str], other: list[str]) -> list[str]:
    """Delete from one comma or clause to the next."""
    ends = [
        i
        for i, t in enumerate(tokens)
        if t.upper() in (",", "WHERE", "GROUP", "HAVING", "ORDER", ";", "AND", "JOIN")
    ]
    if len(ends) < 2:
        return tokens
    chosen = rng.randrange(len(ends) - 1)
    return tokens[: ends[chosen]] + tokens[ends[chosen + 1] :]


Mutation = Callable[[random.Random, list[str], list[str]], list[str]]
_MUTATIONS: tuple[Mutation, ...] = (
    *(_delete, _delete, _repeat, _swap, _swap, _replace, _replace, _replace, _insert, _insert),
    *(_splice, _append, _cut, _disturb, _nest, _inflate, _vary, _rename, _wrap),
)
_GENTLE: tuple[Mutation, ...] = (_vary, _vary, _vary, _rename, _wrap, _wrap, _drop_clause)


# --- checking ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise CaseTimeout in this thread when the time is over."""

    def end(*_: object) -> None:
        raise CaseTimeout

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def check_mutant(text: str, file: Path, as_json: bool) -> Checked:
    """Check one text with the command, which prints to strings."""
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    output, errors = io.StringIO(), io.StringIO()
    began, problem, code = time.process_time(), "", None
    try:
        with time_limit(LIMIT), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = run_command(["check", str(file), *(["--json"] if as_json else [])])
    except CaseTimeout:
        problem = f"no answer within {LIMIT:.0f} s\n{traceback.format_exc()[-1500:]}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        problem = traceback.format_exc()[-3000:]
    printed = errors.getvalue()
    if not problem and code not in EXIT_CODES:
        problem = f"exit code {code}"
    if not problem and code == 2 and (printed.count("\n") != 1 or len(printed) > 1500):
        problem = f"the error is not one line: {printed[:300]!r}"
    return Checked(code, time.process_time() - began, problem)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--queries", type=Path, help="a folder with further queries")
    parser.add_argument("--show", action="store_true", help="print each mutant")
    options = parser.parse_args(argv)
    corpus = read_corpus(options.queries)
    began = time.monotonic()
    codes: Counter[int | None] = Counter()
    problems = 0
    slowest = (0.0, 0)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.cases):
            text = make_mutant(seed, corpus)
            if options.show:
                print(text)
            checked = check_mutant(text, Path(folder, "mutant.sql"), seed % 4 == 0)
            codes[checked.code] += 1
            slowest = max(slowest, (checked.seconds, seed))
            if checked.problem:
                problems += 1
                print(f"seed {seed}: {checked.problem}", flush=True)
    for code, count in codes.most_common():
        print(f"{count:>7,} exit code {code}")
    print(f"slowest: {slowest[0]:.2f} s, seed {slowest[1]}")
    print(f"{options.cases:,} mutants, {problems} problems, {time.monotonic() - began:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
