"""Where the clauses of a text are, so that a change can be written into it.

The outline is made from tokens alone.  It is for texts that parse; nothing is resolved or rewritten.  All
places are offsets in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import Token, TokenType

from millpond.frontend.parse import split_statements
from millpond.frontend.targets import find_target

# The words that start a clause of a SELECT, or end it.
_CLAUSES = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "WINDOW", "QUALIFY", "LATERAL VIEW"),
    *("ORDER BY", "SORT BY", "CLUSTER BY", "DISTRIBUTE BY", "LIMIT", "OFFSET"),
    *("UNION", "EXCEPT", "INTERSECT", "MINUS"),
)
_JOIN_WORDS = ("JOIN", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "NATURAL")
_OUTER_WORDS = {"LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "NATURAL"}
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)


@dataclass(frozen=True)
class Span:
    """A piece of the text, ``[start, end)``."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """The piece itself."""
        return text[self.start : self.end]


@dataclass(frozen=True)
class ColumnOutline:
    """The declaration of a column."""

    name: str
    span: Span


@dataclass(frozen=True)
class TableOutline:
    """A CREATE TABLE statement.

    ``streaming`` is the word STREAMING with the space after it, ``properties`` the TBLPROPERTIES clause with
    its parentheses.
    """

    name: str
    span: Span
    columns: tuple[ColumnOutline, ...]
    streaming: Span | None
    properties: Span | None


@dataclass(frozen=True)
class SourceOutline:
    """An entry of FROM: a name, or None for a subquery, and its alias as written.

    ``span`` reaches from the comma or the word JOIN in front of it to the end of its ON condition, which is
    ``on``; ``named`` is the table with its alias.  ``inner`` is false for outer joins, semijoins and USING.
    """

    table: str | None
    alias: str
    span: Span
    named: Span
    on: Span | None = None
    on_is_disjunction: bool = False
    inner: bool = True


@dataclass(frozen=True)
class NameOutline:
    """A column in an expression, with the alias in front of it, if there is one."""

    alias: str | None
    column: str
    span: Span


@dataclass(frozen=True)
class SelectOutline:
    """A SELECT, wherever it stands.

    ``head`` is the end of the word SELECT, ``from_end`` that of the FROM clause, ``where`` the condition,
    which may be a disjunction.  ``counts`` are the calls COUNT(DISTINCT x), each with its argument;
    ``partitions`` the lists of PARTITION BY.  ``compared`` are the columns in FROM and WHERE.
    """

    span: Span
    head: int
    distinct: bool
    items: tuple[Span, ...]
    sources: tuple[SourceOutline, ...]
    from_end: int
    where: Span | None
    is_disjunction: bool
    group_by: tuple[Span, ...]
    group_clause: Span | None
    counts: tuple[tuple[Span, Span], ...]
    partitions: tuple[tuple[Span, ...], ...]
    compared: tuple[NameOutline, ...]


@dataclass(frozen=True)
class Outline:
    """The declarations of a text, the selects of its views, and those of each query."""

    tables: tuple[TableOutline, ...]
    views: tuple[SelectOutline, ...]
    queries: tuple[tuple[SelectOutline, ...], ...]


def outline_text(text: str) -> Outline:
    """The outline of a text that parses.

    >>> outline = outline_text("CREATE STREAMING TABLE S (A INT, B INT); SELECT A FROM S x WHERE B < 3")
    >>> [column.name for column in outline.tables[0].columns], outline.queries[0][0].sources[0].alias
    (['A', 'B'], 'x')
    """
    tables: list[TableOutline] = []
    views: list[SelectOutline] = []
    queries: list[tuple[SelectOutline, ...]] = []
    for every in split_statements(text):
        target = find_target(text, every)
        tokens = every[target.query :] if target is not None else every
        statement = _Statement(text, tokens)
        selects = tuple(statement.list_selects())
        if statement.word(0) != "CREATE":
            queries.append(selects)
        elif selects:
            views += selects
        else:
            tables.append(statement.outline_table())
    return Outline(tuple(tables), tuple(views), tuple(queries))


class _Statement:
    """The tokens of a statement; places in it are numbers of tokens, ranges are ``[first, end)``."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text, self.tokens = text, tokens
        self.depths: list[int] = []
        depth = 0
        for token in tokens:
            depth -= token.token_type is TokenType.R_PAREN
            self.depths.append(depth)
            depth += token.token_type is TokenType.L_PAREN

    def word(self, index: int) -> str:
        """A token in upper case; empty for quoted names, for strings, and beyond the ends."""
        if not 0 <= index < len(self.tokens):
            return ""
        token = self.tokens[index]
        if token.token_type is TokenType.STRING or self.text[token.start] in "`\"'":
            return ""
        return " ".join(token.text.upper().split())

    def span(self, first: int, end: int) -> Span:
        return Span(self.tokens[first].start, self.tokens[end - 1].end + 1)

    def split(self, first: int, end: int) -> list[tuple[int, int]]:
        """The elements of a list that commas separate."""
        depth = self.depths[first] if first < end else 0
        commas = [i for i in range(first, end) if self.word(i) == "," and self.depths[i] == depth]
        edges = [first - 1, *commas, end]
        return [(a + 1, b) for a, b in pairwise(edges) if a + 1 < b]

    def close(self, opened: int) -> int:
        """The closing parenthesis of an opening one."""
        depth = self.depths[opened]
        return next(i for i in range(opened + 1, len(self.tokens)) if self.depths[i] == depth)

    # --- CREATE TABLE ------------------------------------------------------------------------------------

    def outline_table(self) -> TableOutline:
        opened = next(i for i in range(len(self.tokens)) if self.word(i) == "(")
        columns = []
        for first, end in self.split(opened + 1, self.close(opened)):
            if self.word(first) not in ("CHECK", "CONSTRAINT"):
                columns.append(ColumnOutline(self.tokens[first].text, self.span(first, end)))
        streaming = next((i for i in range(opened) if self.word(i) == "STREAMING"), None)
        clause = next((i for i in range(opened, len(self.tokens)) if self.word(i) == "TBLPROPERTIES"), None)
        return TableOutline(
            self.tokens[opened - 1].text,
            self.span(0, len(self.tokens)),
            tuple(columns),
            None
            if streaming is None
            else Span(self.tokens[streaming].start, self.tokens[streaming + 1].start),
            None if clause is None else self.span(clause, self.close(clause + 1) + 1),
        )

    # --- SELECT ------------------------------------------------------------------------------------------

    def list_selects(self) -> Iterator[SelectOutline]:
        for index in range(len(self.tokens)):
            if self.word(index) == "SELECT":
                yield self._outline_select(index)

    def _outline_select(self, start: int) -> SelectOutline:
        clauses = self._find_clauses(start)
        end = max(last for _, last in clauses.values())
        distinct = self.word(start + 1) == "DISTINCT"
        items = self.split(start + 1 + distinct, clauses["SELECT"][1])
        sources = self._list_sources(*clauses["FROM"]) if "FROM" in clauses else []
        where, group = clauses.get("WHERE"), clauses.get("GROUP BY")
        own = [i for first, last in items for i in range(first, last) if not self._is_inside(start, i)]
        from_end = clauses["FROM" if "FROM" in clauses else "SELECT"][1]
        return SelectOutline(
            self.span(start, end),
            self.tokens[start].end + 1,
            distinct,
            tuple(self.span(*item) for item in items),
            tuple(sources),
            self.tokens[from_end - 1].end + 1,
            None if where is None else self.span(where[0] + 1, where[1]),
            where is not None and self._has_or(*where),
            () if group is None else tuple(self.span(*each) for each in self.split(group[0] + 1, group[1])),
            None if group is None else self.span(*group),
            tuple(self._list_counts([*own, *range(*clauses.get("HAVING", (0, 0)))])),
            tuple(self._list_partitions([*own, *range(*clauses.get("WINDOW", (0, 0)))])),
            tuple(
                name
                for clause in ("FROM", "WHERE")
                for at, name in self._list_names(*clauses.get(clause, (0, 0)))
                if not self._is_inside(start, at)
            ),
        )

    def _find_clauses(self, start: int) -> dict[str, tuple[int, int]]:
        """The clauses of a select: from the word that starts one to the next."""
        depth = self.depths[start]
        found: dict[str, tuple[int, int]] = {}
        current, first = "SELECT", start
        for index in range(start + 1, len(self.tokens) + 1):
            at_end = index == len(self.tokens) or self.depths[index] < depth
            word = "" if at_end or self.depths[index] != depth else self.word(index)
            if word == "WINDOW" and self.tokens[index].token_type is not TokenType.WINDOW:
                word = ""
            if word == "FROM" and (current != "SELECT" or self._is_distinct_from(start, index)):
                word = ""
            if at_end or word in _CLAUSES:
                found.setdefault(current, (first, index))
                if at_end or word in ("UNION", "EXCEPT", "INTERSECT", "MINUS"):
                    break
                current, first = word, index
        return found

    def _is_distinct_from(self, start: int, index: int) -> bool:
        return self.word(index - 1) == "DISTINCT" and index - 1 != start + 1

    def _is_inside(self, start: int, index: int) -> bool:
        """Whether a token belongs to a subquery of the select."""
        inner = [i for i in range(start + 1, index) if self.word(i) == "SELECT"]
        return any(self.depths[i] <= min(self.depths[i : index + 1]) for i in inner)

    def _has_or(self, first: int, end: int) -> bool:
        depth = self.depths[first]
        return any(self.word(i) == "OR" and self.depths[i] == depth for i in range(first, end))

    def _list_counts(self, indexes: Sequence[int]) -> Iterator[tuple[Span, Span]]:
        for i in indexes:
            if [self.word(i + k) for k in range(3)] == ["COUNT", "(", "DISTINCT"]:
                end = self.close(i + 1)
                if len(self.split(i + 3, end)) == 1:
                    yield self.span(i, end + 1), self.span(i + 3, end)

    def _list_partitions(self, indexes: Sequence[int]) -> Iterator[tuple[Span, ...]]:
        for i in indexes:
            if self.word(i) == "PARTITION BY":
                depth, end = self.depths[i], i + 1
                while self.depths[end] >= depth and self.word(end) not in ("ORDER BY", "ROWS", "RANGE"):
                    end += 1
                yield tuple(self.span(*each) for each in self.split(i + 1, end))

    def _list_names(self, first: int, end: int) -> Iterator[tuple[int, NameOutline]]:
        """The names, each with its token; also names of tables, which are columns of nothing."""
        index = first
        while index < end:
            if self.tokens[index].token_type not in _NAMES or self.word(index + 1) == "(":
                index += 1
            elif self.word(index + 1) == "." and index + 2 < end:
                alias, column = self.tokens[index].text, self.tokens[index + 2].text
                yield index, NameOutline(alias, column, self.span(index, index + 3))
                index += 3
            else:
                yield index, NameOutline(None, self.tokens[index].text, self.span(index, index + 1))
                index += 1

    # --- FROM --------------------------------------------------------------------------------------------

    def _list_sources(self, first: int, end: int) -> Iterator[SourceOutline]:
        depth = self.depths[first]
        starts = [first]
        for i in range(first + 1, end):
            is_join = self.word(i) in _JOIN_WORDS and self.word(i - 1) not in _JOIN_WORDS
            if self.depths[i] == depth and (self.word(i) == "," or is_join):
                starts.append(i)
        for start, stop in zip(starts, [*starts[1:], end], strict=True):
            yield self._outline_source(start, stop)

    def _outline_source(self, start: int, end: int) -> SourceOutline:
        depth, at, words = self.depths[start], start, set()
        while self.word(at) in (*_JOIN_WORDS, "FROM", ",", "LATERAL"):
            words.add(self.word(at))
            at += 1
        ends = (i for i in range(at, end) if self.depths[i] == depth and self.word(i) in ("ON", "USING"))
        condition = next(ends, end)
        last = condition - 1
        is_subquery = self.word(at) == "("
        has_name = self.tokens[last].token_type in _NAMES or self.word(last).isidentifier()
        alias = self.tokens[last] if has_name else self.tokens[at]
        table = None if is_subquery else self._find_table_name(at, condition)
        written = self.text[alias.start : alias.end + 1]
        word = self.word(condition) if condition < end else ""
        return SourceOutline(
            table,
            written,
            self.span(start, end),
            self.span(at, condition),
            self.span(condition + 1, end) if word == "ON" else None,
            word == "ON" and self._has_or(condition, end),
            not (words & _OUTER_WORDS) and word != "USING",
        )

    def _find_table_name(self, at: int, end: int) -> str:
        while at + 2 < end and self.word(at + 1) == ".":
            at += 2
        return self.tokens[at].text
