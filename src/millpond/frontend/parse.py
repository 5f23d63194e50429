"""Parses SQL text into queries.

sqlglot parses the text in its Spark dialect; its tree is then resolved against the catalog, and whatever
is not supported is refused.  Every mistake in the text is an ``SqlError`` with its position and a remedy.
Time and stack are bounded for any text.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from threading import RLock

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from millpond.errors import Position, SqlError, SqlNameError, describe_os_error, one_line
from millpond.frontend.aggregate_calls import name_aggregates
from millpond.frontend.blocks import check_view, read_query
from millpond.frontend.catalog import read_table
from millpond.frontend.common_columns import expand_common_columns
from millpond.frontend.grouped_subqueries import lift_groups
from millpond.frontend.guards import guard_statements, guard_text
from millpond.frontend.intervals import split_intervals
from millpond.frontend.lateral_views import rewrite_lateral_views
from millpond.frontend.laterals import rewrite_laterals
from millpond.frontend.limits import rewrite_limits
from millpond.frontend.named_queries import read_view
from millpond.frontend.partner_flags import rewrite_partner_tests
from millpond.frontend.refusals import describe_unsupported_statement, refuse_unread_words
from millpond.frontend.rewrites import rewrite_set_operations
from millpond.frontend.scalar_subqueries import rewrite_scalar_subqueries
from millpond.frontend.scope import NamedQuery, Names
from millpond.frontend.shorthands import expand_shorthands
from millpond.frontend.statement import READ, Statement, position
from millpond.frontend.subquery_refusals import refuse_values
from millpond.frontend.syntax_errors import describe_syntax_error, describe_unclosed
from millpond.frontend.targets import find_target
from millpond.query.model import Query, Script, Table

# Stack frames to add: sqlglot makes about 20 nested calls for a level of parentheses.
_FRAMES = 6_000
_LOCK = RLock()


def parse(text: str, declared: Names | None = None) -> list[Query]:
    """Parse a text with CREATE statements and queries; the queries are returned.

    They may also use the tables that are ``declared`` elsewhere.

    >>> [query] = parse("CREATE STREAMING TABLE S (A INT, B INT); SELECT DISTINCT A FROM S WHERE B < 3")
    >>> query.columns, query.selects[0].where.text
    (('A',), 'B < 3')
    """
    text, declared = text.removeprefix("\ufeff"), declared or {}
    with _deep_stack():
        tables, queries = _read_statements(text, declared)
        if not queries:
            raise SqlError(
                "there is no query in the text", remedy="write a SELECT after the CREATE statements"
            )
        return [
            replace(_read_query(statement, tables), script=Script(text, number, declared))
            for number, statement in enumerate(queries)
        ]


def parse_again(script: Script, text: str) -> Query:
    """The query of a script whose text has been changed."""
    if not script.creates:
        return parse_query(text, script.declared, script.time_zone)
    return parse(text, script.declared)[script.number]


def read_declarations(text: str) -> Names:
    """The tables and views that a text declares; it has no query.

    >>> list(read_declarations("CREATE STREAMING TABLE S (A INT); CREATE VIEW V AS SELECT A FROM S"))
    ['S', 'V']
    """
    with _deep_stack():
        tables, queries = _read_statements(text.removeprefix("\ufeff"), {})
        if queries:
            place = position(text, queries[0].tokens[0].start)
            raise SqlError("a query is not a declaration", place, "give CREATE statements only")
        return tables


def _read_statements(text: str, declared: Names) -> tuple[dict[str, Table | NamedQuery], list[Statement]]:
    """The tables of a text, with those that are declared elsewhere, and its queries."""
    tables, queries = dict(declared), []
    for tokens in split_statements(text):
        target = find_target(text, tokens)
        query = tokens[target.query :] if target is not None else tokens
        statement = Statement(text, query, _parse_tree(text, query, tables))
        if statement.word(0) == "CREATE":
            _declare(statement, tables)
            continue
        queries.append(statement)
        if target is not None and target.name is not None:
            written = Statement(text, query, _parse_tree(text, query, tables))
            named = NamedQuery(target.name, written, written.tree, target.columns, dict(tables))
            _add_name(tables, named, position(text, tokens[0].start))
    return tables, queries


def parse_query(text: str, tables: Mapping[str, Table], time_zone: str = "UTC") -> Query:
    """Parse one SELECT (or UNION) over tables that are already known, by name.

    ``time_zone`` is that of the session in which the query runs.

    >>> [declared] = parse("CREATE STREAMING TABLE S (A INT); SELECT A FROM S")
    >>> parse_query("SELECT MAX(A) FROM s", declared.tables).columns
    ('max(A)',)
    """
    with _deep_stack():
        text = text.removeprefix("\ufeff")
        statements = split_statements(text)
        if not statements:
            raise SqlError("there is no query in the text", remedy="write a SELECT")
        if statements[0][0].text.upper() == "CREATE":
            place = position(text, statements[0][0].start)
            raise SqlError("CREATE is not supported here", place, "write one SELECT over the session's views")
        if len(statements) > 1:
            place = position(text, statements[1][0].start)
            raise SqlError("a second statement starts here", place, "write one SELECT")
        tree = _parse_tree(text, statements[0], tables)
        query = _read_query(Statement(text, statements[0], tree, time_zone=time_zone), tables)
        return replace(query, script=Script(text, 0, tables, time_zone, creates=False))


def find_table_names(text: str) -> list[tuple[str, str | None]]:
    """The tables that a SELECT names, each with its qualified name in Spark SQL if it has a qualifier.

    A text that does not parse has none; ``parse_query`` then raises the error.

    >>> find_table_names("SELECT 1 FROM clicks c, web.`orders`")
    [('clicks', None), ('orders', 'web.`orders`')]
    >>> find_table_names("SELECT COUNT(*) FROM clicks GROUP BY window(at, '1 minute')")
    [('clicks', None)]
    >>> find_table_names("WITH slow AS (SELECT * FROM clicks), s AS (SELECT * FROM slow) SELECT * FROM s")
    [('clicks', None)]
    """
    text = text.removeprefix("\ufeff")
    try:
        with _deep_stack():
            trees = [_parse_tree(text, tokens, {}) for tokens in split_statements(text)]
    except SqlError:
        return []
    tables = (table for tree in trees for table in tree.find_all(exp.Table))
    return [
        (table.name, table.sql(dialect="spark") if table.db else None)
        for table in tables
        if table.db or not _is_query_of_with(table)
    ]


def _is_query_of_with(table: exp.Table) -> bool:
    """Whether a name refers to a query of a WITH clause around it, which has to be defined before."""
    inside: list[exp.Expr] = [table]
    while inside[-1].parent is not None:
        inside.append(inside[-1].parent)
    for node in inside:
        clause = node.args.get("with_")
        names = []
        for query in clause.expressions if clause is not None else ():
            if any(query is each for each in inside):
                break
            names.append(query.alias.lower())
        if table.name.lower() in names:
            return True
    return False


def read_text(path: str | PathLike[str]) -> str:
    """The text of a file; SqlError if the file does not exist or is not UTF-8 text."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SqlError("the file is not UTF-8 text", remedy="give a file with SQL text") from None
    except FileNotFoundError:
        raise SqlError("there is no such file", remedy="correct the path") from None
    except IsADirectoryError:
        pattern = one_line(str(Path(path) / "**" / "*.sql"), 200)
        raise SqlError("this is a folder", remedy=f"give a file with SQL text, or '{pattern}'") from None
    except OSError as error:
        raise SqlError(f"the file cannot be read: {describe_os_error(error)}") from None
    except ValueError as error:  # a path with a null character
        raise SqlError(f"the file cannot be read: {one_line(str(error))}") from None


def _declare(statement: Statement, tables: dict[str, Table | NamedQuery]) -> None:
    is_view = isinstance(statement.tree, exp.Create) and statement.tree.args.get("kind") == "VIEW"
    table = read_view(statement, tables) if is_view else read_table(statement)
    if isinstance(table, NamedQuery):
        refuse_values(statement, tables)
        check_view(table)
    refuse_unread_words(statement)
    _add_name(tables, table, statement.at(statement.tree.this))


def _add_name(tables: dict[str, Table | NamedQuery], table: Table | NamedQuery, place: Position) -> None:
    if table.name.lower() in {name.lower() for name in tables}:
        raise SqlNameError(f"table {one_line(table.name)} is declared twice", place, "declare it once")
    tables[table.name] = table


def _read_query(statement: Statement, tables: Names) -> Query:
    refuse_values(statement, tables)
    query = read_query(statement, tables)
    refuse_unread_words(statement)
    return query


# --- statements ------------------------------------------------------------------------------------------


@contextmanager
def _deep_stack() -> Iterator[None]:
    """Raise the recursion limit for a text of the allowed depth, and silence sqlglot's log."""
    log = logging.getLogger("sqlglot")
    with _LOCK:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + _FRAMES)
        log.addFilter(_drop_record)
        try:
            yield
        except RecursionError:
            raise SqlError(
                "the text is nested too deep", remedy="leave out parentheses that are not needed"
            ) from None
        finally:
            log.removeFilter(_drop_record)
            sys.setrecursionlimit(limit)


def _drop_record(_: logging.LogRecord) -> bool:
    return False


def split_statements(text: str) -> list[list[Token]]:
    """The tokens of each statement; SqlError if there are too many to be read in reasonable time."""
    guard_text(text)
    statements: list[list[Token]] = [[]]
    for token in _tokenize(text):
        if token.token_type is TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    statements = [split_intervals(text, _merge_tokens(text, tokens)) for tokens in statements if tokens]
    guard_statements(text, statements)
    return statements


# --- sqlglot -----------------------------------------------------------------------------------------


def _tokenize(text: str) -> list[Token]:
    try:
        return list(Spark().tokenize(text))
    except SqlglotError:
        raise describe_unclosed(text) from None


def _parse_tree(text: str, tokens: list[Token], names: Names) -> exp.Expr:
    """sqlglot's tree of one statement over known tables."""
    first = tokens[0].text
    if first.upper() not in ("CREATE", "SELECT", "WITH", "("):
        construct, remedy = describe_unsupported_statement(first)
        raise SqlError(f"{construct} is not supported", position(text, tokens[0].start), remedy)
    try:
        trees = Spark().parser().parse(tokens, text)
    except ParseError as error:
        raise describe_syntax_error(text, tokens, error) from None
    except RecursionError:
        raise
    except Exception:  # sqlglot may raise anything; the cause is the text
        trees = []
    if len(trees) != 1 or trees[0] is None:
        raise SqlError("this statement is not understood", position(text, tokens[0].start), "simplify it")
    tree, left_out = expand_shorthands(name_aggregates(trees[0]))
    left_out |= expand_common_columns(tree, names) | lift_groups(tree, names)
    left_out |= rewrite_partner_tests(tree, names) | rewrite_scalar_subqueries(tree, names)
    left_out |= rewrite_laterals(tree, names)
    tree = rewrite_limits(rewrite_set_operations(tree))
    rewrite_lateral_views(tree)
    tree.meta[READ] |= left_out
    return tree


def _merge_tokens(text: str, tokens: list[Token]) -> list[Token]:
    """The tokens, merged where Spark sees one token and sqlglot several.

    ``USING org.example.Source`` names one format, and ``'it''s'`` is one string with a quote in it.
    ``window`` is a name unless it starts a WINDOW clause: ``WINDOW w AS (…)``.
    ``STREAM(t)`` in FROM is ``t``.  Hints are left out.
    """
    mended: list[Token] = []
    in_format = False
    left_out = _find_stream_words(tokens)
    for index, token in enumerate(tokens):
        if index in left_out or token.token_type is TokenType.HINT:  # a hint does not change the answer
            continue
        if token.token_type is TokenType.WINDOW and not _starts_window_clause(tokens, index):
            token = Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end)
        last = mended[-1] if mended else token
        is_touching = token.start == last.end + 1 and token is not last
        in_format = last.token_type is TokenType.USING or (in_format and is_touching)
        kinds = {token.token_type, last.token_type}
        quote = text[token.start]
        if kinds == {TokenType.STRING} and is_touching and quote == text[last.start] == text[last.end]:
            mended[-1] = _merge_two(last, token, TokenType.STRING, quote)
        elif in_format and is_touching and (token.text == "." or last.text.endswith(".")):
            mended[-1] = _merge_two(last, token, TokenType.IDENTIFIER, "")
        else:
            mended.append(token)
    return mended


def _find_stream_words(tokens: list[Token]) -> set[int]:
    """The places of ``STREAM(`` and ``)`` around the name of a table in FROM, as in Databricks SQL."""
    found: set[int] = set()
    for index in range(1, len(tokens) - 3):
        before, (word, opening, _, closing) = tokens[index - 1], tokens[index : index + 4]
        is_source = before.token_type in (TokenType.FROM, TokenType.JOIN, TokenType.COMMA)
        if is_source and (word.text.upper(), opening.text, closing.text) == ("STREAM", "(", ")"):
            found |= {index, index + 1, index + 3}
    return found


def _starts_window_clause(tokens: list[Token], index: int) -> bool:
    """Whether the word WINDOW is followed by ``name AS (``."""
    after = [token.token_type for token in tokens[index + 1 : index + 4]]
    is_name = bool(after) and after[0] in (TokenType.VAR, TokenType.IDENTIFIER)
    return is_name and after[1:] == [TokenType.ALIAS, TokenType.L_PAREN]


def _merge_two(first: Token, second: Token, kind: TokenType, between: str) -> Token:
    text = first.text + between + second.text
    return Token(kind, text, second.line, second.col, first.start, second.end)
