"""Reads queries from SELECT and UNION: FROM, the select list, grouping, names of output columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millpond.errors import Position, SqlError, SqlTypeError, one_line
from millpond.frontend.below_over import build_block_below, cut_columns
from millpond.frontend.block_tables import build_block_table
from millpond.frontend.conditions import (
    Rest,
    conjunction,
    read_row_condition,
)
from millpond.frontend.constants import Bound
from millpond.frontend.current_time import group_by_moment, join_current_time, split_by_moment
from millpond.frontend.derived_columns import list_window_filters, share_derived_columns, with_derived
from millpond.frontend.explode import list_explode_filters, read_lateral_views
from millpond.frontend.expressions import Reader, has_aggregate, strip_parentheses
from millpond.frontend.free_windows import list_free_window_filters
from millpond.frontend.grouping import find_aliases, find_windows, push_having, read_group_by, read_having
from millpond.frontend.joins import FromClause, MergedBlock, Surroundings, read_from
from millpond.frontend.joint_arguments import JointArgumentError, find_lifted, lift_arguments, lift_rows
from millpond.frontend.named_queries import strip_subquery
from millpond.frontend.over import (
    copy_select,
    has_group_aggregate,
    list_window_functions,
    read_window_functions,
    replace_aliases,
)
from millpond.frontend.projections import Computed, bind_item, bind_star_item, read_filter
from millpond.frontend.refusals import accept_only, unsettled_error, unsupported_error
from millpond.frontend.row_expressions import (
    derive_constant,
    is_row_expression,
    read_row_expression,
)
from millpond.frontend.scope import KeepBlockError, Path, Source, SourceColumn
from millpond.frontend.select_items import SelectItem, name_outputs, read_items, replace_earlier_aliases
from millpond.frontend.sessions import refuse_misplaced_sessions, split_session
from millpond.frontend.statement import Statement
from millpond.frontend.subqueries import read_where
from millpond.frontend.time_calls import add_bucket_ends, find_window_width, pick_edge
from millpond.query.expressions import TRUE, Literal, Ref
from millpond.query.merge_blocks import merge_blocks
from millpond.query.model import Exists, Item, JoinSide, Occurrence, OutputColumn, Query, Select, Term
from millpond.query.trees import aliases_in, item_refs, map_occurrences
from millpond.query.types import WINDOW, Family, SqlType

MAX_SELECTS = 100


class DistributeError(Exception):
    """A block is a UNION ALL of branches: the select that it is merged into is read once for each of them."""

    def __init__(self, path: Path, branches: int) -> None:
        super().__init__(path, branches)
        self.path = path
        self.branches = branches


@dataclass(frozen=True)
class TypedSelect:
    """A select and the types of its output columns; ``windows`` are as in ``Query``.

    If it shows the current time or a random value, ``unsettled`` is the error for any other use of that.
    """

    select: Select
    types: tuple[SqlType | None, ...]
    windows: tuple[tuple[int, str], ...]
    projection: tuple[OutputColumn, ...] = ()
    filter: OutputColumn | None = None
    unsettled: SqlError | None = None

    def require_settled(self) -> None:
        """Refuse the current time and random values, because the results are compared with others."""
        if self.unsettled is not None:
            raise self.unsettled


def read_terms(
    statement: Statement, tree: exp.Expr, around: Surroundings, reads: list[TypedSelect]
) -> tuple[Term, ...]:
    """The terms whose bag union is the query; UNION makes one set of the terms before it and the next."""
    chain: list[tuple[exp.Expr, bool, Surroundings]] = []
    node, around = strip_subquery(statement, tree, around)
    while isinstance(node, exp.Union):
        accept_only(statement, node, "this", "expression", "distinct", "with_", "order")
        chain.append((node.expression, bool(node.args.get("distinct")), around))
        node, around = strip_subquery(statement, node.this, around)
    if not isinstance(node, exp.Select):
        raise unsupported_error(statement, node)
    found = _read_branches(statement, node, around)
    reads += found
    if len(reads) > MAX_SELECTS:
        message = f"more than {MAX_SELECTS} selects in one UNION"
        raise SqlError(message, statement.at(node), "write several queries")
    terms: tuple[Term, ...] = tuple(Term((each.select,), False) for each in found)
    if node.args.get("distinct"):
        terms = (split_by_moment(Term(tuple(each.select for each in found), True)),)
    for right, distinct, seen in reversed(chain):
        terms += read_terms(statement, right, seen, reads)
        if distinct:
            terms = (Term(tuple(select for term in terms for select in term.selects), True),)
    return terms


def build_query(
    reads: Sequence[TypedSelect], terms: tuple[Term, ...], text: str, place: Position | None
) -> Query:
    """The query of some terms.

    Computed results that are compared with others, those of UNION and DISTINCT, are blocks of their own.
    """
    if any(term.distinct for term in terms):
        for each in reads:
            each.require_settled()
    if len(reads) > 1 or terms[0].distinct:
        made = [
            _make_block(read, number) if read.projection else read for number, read in enumerate(reads, 1)
        ]
        blocks = {id(read.select): each.select for read, each in zip(reads, made, strict=True)}
        terms = tuple(replace(t, selects=tuple(blocks[id(s)] for s in t.selects)) for t in terms)
        reads = made
    _check_union_columns(reads)
    first = reads[0]
    columns = tuple(item.name for item in first.select.items)
    terms = share_derived_columns(terms)
    query = Query(terms, columns, text, place, first.windows, first.projection, filter=first.filter)
    return merge_blocks(query)


def _make_block(read: TypedSelect, number: int) -> TypedSelect:
    """A select with computed results, as one that reads the block with these results."""
    if WINDOW in read.types:
        message = "a window beside an expression over aggregates is not supported in UNION and DISTINCT"
        raise SqlError(message, read.select.position)
    select = read.select
    query = build_query([read], (Term((select,), False),), select.text, select.position)
    made = build_block_table(f"computed results {number}", query, read.types, None)
    table = replace(made.table, derived=made.derived)
    names = [name for name, _, _ in made.shown]
    items = tuple(Item(Ref(table.name, name), name, name) for name in names)
    occurrence = Occurrence(table.name, table)
    plain = Select((occurrence,), items, text=select.text, position=select.position)
    return TypedSelect(plain, read.types, ())


def _read_branches(statement: Statement, node: exp.Select, around: Surroundings) -> list[TypedSelect]:
    """The select, or one for each combination of branches of the UNION ALL blocks that it reads."""
    ignores = _ignores_duplicates(node)
    around = replace(around, ignores_duplicates=ignores, taken=set(), derived={})
    try:
        return [_read_select(statement, find_lifted(node), around)]
    except JointArgumentError as joint:
        lift_arguments(statement, node, copy_select(statement, node), joint.scope)
        return _read_branches(statement, node, around)
    except DistributeError as union:
        if is_grouped(node):
            raise KeepBlockError(union.path) from None
        found: list[TypedSelect] = []
        for number in range(union.branches):
            found += _read_branches(statement, node, around.choose(union.path, number))
            if len(found) > MAX_SELECTS:
                raise KeepBlockError(union.path) from None
        return found


def _ignores_duplicates(node: exp.Select) -> bool:
    """Whether the result of a select does not change if a row that it reads is repeated."""
    if not is_grouped(node):
        return bool(node.args.get("distinct"))
    if list_window_functions(node) or any(node.args.get(key) for key in ("limit", "offset", "having")):
        return False
    found = [each for item in node.expressions for each in item.find_all(exp.AggFunc)]
    return bool(found) and all(isinstance(each, exp.Min | exp.Max) for each in found)


def is_grouped(node: exp.Select) -> bool:
    """Whether a select makes its rows from several rows, so that it is more than joins and a filter."""
    return has_groups(node) or bool(list_window_functions(node))


def has_groups(node: exp.Select) -> bool:
    """Whether a select has groups, aggregates over all rows, an order or a limit."""
    if any(node.args.get(key) for key in ("group", "having", "limit", "offset")):
        return True
    return any(has_group_aggregate(each) for each in node.expressions)


def _check_union_columns(reads: Sequence[TypedSelect]) -> None:
    """Refuse a UNION whose selects differ in the number of columns or in types that cannot be compared."""
    kinds = list(reads[0].types)
    for read in reads[1:]:
        if len(read.types) != len(kinds):
            message = f"the UNION starts with {len(kinds)} columns, this select has {len(read.types)}"
            raise SqlError(message, read.select.position, "select the same number of columns in each")
        for index, (first, kind) in enumerate(zip(kinds, read.types, strict=True)):
            if first is not None and kind is not None and first.family is not kind.family:
                name = one_line(read.select.items[index].name, 40)
                message = (
                    f"column {index + 1} of the UNION is {first} in an earlier select, but {name} is {kind}"
                )
                raise SqlTypeError(message, read.select.position, "select columns of the same type")
            kinds[index] = first or kind


def _read_select(statement: Statement, node: exp.Select, around: Surroundings) -> TypedSelect:
    clauses = ("distinct", "expressions", "from_", "joins", "where", "group", "having", "with_", "order")
    accept_only(statement, node, *clauses, "windows", "qualify", "laterals")
    if node.args.get("distinct"):
        accept_only(statement, node.args["distinct"])
    clause = _read_tables(statement, node, around)
    replace_earlier_aliases(clause.scope, node)
    node, clause = _read_over(statement, node, clause, around)
    scope = clause.scope
    items = read_items(statement, node, clause)
    group_by = read_group_by(scope, node.args.get("group"), items)
    is_grouped = group_by is not None or any(has_aggregate(item.node) for item in items)
    windows = find_windows(node, items)
    session, group_by = split_session(scope, group_by, node.args.get("group"))
    if is_grouped:
        group_by = group_by_moment(clause, group_by)
    grouped = {*(group_by or ()), *((session.start, session.end) if session else ())}
    reader = Reader(statement, scope, frozenset(grouped) if is_grouped else None, windows=windows)
    rest = clause.rest
    where, exists = read_where(scope, node.args.get("where"), around, rest)
    _read_as_block(clause, node, is_grouped or bool(node.args.get("distinct")), rest)
    bound = [
        bind_star_item(reader, i.node, i.column) if i.column else bind_item(reader, i.node) for i in items
    ]
    if node.args.get("distinct"):
        _refuse_nested(statement, items, bound)
    having = read_having(reader, node.args.get("having"), items, rest)
    pushed = [each for each, _ in rest if _is_over_groups(reader, each)]
    aliased = replace(reader, aliases=find_aliases(items)) if is_grouped else reader
    computed = [read_filter(aliased, each, refusal) for each, refusal in rest if each not in pushed]
    of_rows = [read_row_condition(Reader(statement, scope), each) for each in pushed]
    text, place = statement.slice(node), statement.at(node)
    named, packed, projection, filtered = name_outputs(reader, items, bound, computed)
    filters = () if clause.joins else (*list_window_filters(scope), *list_explode_filters(scope))
    filters += tuple(list_free_window_filters(scope))
    add_bucket_ends(scope, [*(group_by if group_by is not None else item_refs(named))])
    select = Select(
        clause.occurrences,
        named,
        conjunction(each for each in (clause.condition, where, *of_rows, *filters) if each != TRUE),
        group_by,
        having,
        text,
        place,
        session,
        joins=clause.joins,
        exists=(*clause.exists, *exists),
    )
    select = map_occurrences(select, lambda o: with_derived(o, list(scope.derived.get(o.alias, {}).values())))
    refuse_misplaced_sessions(select)
    unsettled = (i.node for i, b in zip(items, bound, strict=True) if isinstance(b, Computed) and b.unsettled)
    return TypedSelect(
        push_having(select),
        tuple(each.type for each in bound),
        packed,
        projection,
        filtered,
        next((unsettled_error(statement, each) for each in unsettled), None),
    )


def _read_tables(statement: Statement, node: exp.Select, around: Surroundings) -> FromClause:
    """FROM with LATERAL VIEWs, and with the current time if a condition names it."""
    clause = read_lateral_views(node, read_from(statement, node, around))
    return join_current_time(clause, node.args.get("where"), around)


def _refuse_nested(
    statement: Statement, items: Sequence[SelectItem], bound: Sequence[Bound | Computed]
) -> None:
    """Refuse DISTINCT values that cannot be compared."""
    for item, each in zip(items, bound, strict=True):
        if each.type is not None and each.type.family is Family.NESTED:
            message = f"DISTINCT {statement.excerpt(item.node)}, which is {each.type}, is not supported"
            raise SqlTypeError(message, statement.at(item.node), "select its fields or elements")


def _read_as_block(clause: FromClause, node: exp.Select, is_set: bool, rest: Rest) -> None:
    """Read the rows of a join as a block if groups or a set are made of them (``is_set``), where that helps.

    It does for conditions that are computed from whole rows of the join, and for relations that are joined
    with other relations by outer joins: each row of the one stream is then answered by itself.
    """
    if not is_set or any(each.is_star for each in node.expressions):
        if rest and is_set:
            raise rest[0][1]
        return
    if rest and len(clause.occurrences) < 2:
        raise rest[0][1]
    if rest or _joins_relations(clause):
        lift_rows(clause.scope)


def _joins_relations(clause: FromClause) -> bool:
    """Whether an outer join compares the columns of two relations."""
    relations = {o.alias for o in clause.occurrences if not o.table.streaming}
    if len(clause.occurrences) - len(relations) != 1:
        return False
    return any(
        join.side is not JoinSide.INNER and len(aliases_in(join.on) & relations) > 1 for join in clause.joins
    )


def _refuse_rest(clause: FromClause) -> None:
    """Refuse conditions of ON that can only be computed from the result of the whole query."""
    if clause.rest:
        raise clause.rest[0][1]


def _read_over(
    statement: Statement, node: exp.Select, clause: FromClause, around: Surroundings
) -> tuple[exp.Select, FromClause]:
    """The select and its FROM, with window functions as columns of a table; as they are without any."""
    if not list_window_functions(node):
        if node.args.get("qualify") or node.args.get("windows"):
            place = statement.keyword_at(node, "QUALIFY", "WINDOW")
            message = "QUALIFY and WINDOW need a function with OVER"
            raise SqlError(message, place, "put the condition in WHERE")
        return node, clause
    _refuse_rest(clause)
    copied = copy_select(statement, node)
    replace_aliases(clause.scope, copied)
    where, exists = read_where(clause.scope, node.args.get("where"), around)
    where = conjunction(each for each in (clause.condition, where) if each != TRUE)
    is_single = len(clause.occurrences) == 1 and not clause.joins and not clause.exists and not exists
    if not is_single or has_groups(copied):
        clause = _read_block_below(copied, replace(clause, condition=where), around, exists)
        where = TRUE
    return copied, read_window_functions(copied, clause, where)


def _read_block_below(
    node: exp.Select, clause: FromClause, around: Surroundings, exists: tuple[Exists, ...]
) -> FromClause:
    """FROM with the joins and groups below the window functions of a select as one block.

    What the select computes from the block are columns of it.  In the tree they are replaced, and the
    clauses that belong to the block are removed.
    """
    scope, statement = clause.scope, clause.scope.statement
    items = read_items(statement, node, clause)
    group_by = read_group_by(scope, node.args.get("group"), items)
    is_in_groups = group_by is not None or has_groups(node)
    session, group_by = split_session(scope, group_by, node.args.get("group"))
    if is_in_groups:
        group_by = group_by_moment(clause, group_by)
    grouped = {*(group_by or ()), *((session.start, session.end) if session else ())}
    known = frozenset(grouped) if is_in_groups else None
    reader = Reader(statement, scope, known, windows=find_windows(node, items))
    having = read_having(reader, node.args.get("having"), items)
    columns = cut_columns(reader, node, [(item.node, item.column) for item in items])
    filters = () if clause.joins else (*list_window_filters(scope), *list_explode_filters(scope))
    filters += tuple(list_free_window_filters(scope))
    add_bucket_ends(scope, [*(group_by or ())])
    select = Select(
        clause.occurrences,
        tuple(Item(column.bound.expression, column.name, column.name) for column in columns),
        conjunction(each for each in (clause.condition, *filters) if each != TRUE),
        group_by,
        having,
        statement.slice(node),
        statement.at(node),
        session,
        joins=clause.joins,
        exists=(*clause.exists, *exists),
    )
    select = map_occurrences(select, lambda o: with_derived(o, list(scope.derived.get(o.alias, {}).values())))
    typed = TypedSelect(select, tuple(column.bound.type for column in columns), ())
    query = build_query([typed], (Term((select,), False),), select.text, select.position)
    for key in ("group", "having", "where"):
        node.set(key, None)
    return build_block_below(node, clause, around, query, columns)


def read_plain(statement: Statement, node: exp.Select, around: Surroundings) -> MergedBlock:
    """A select of joins, filters and expressions, or with window functions, to be merged into its user."""
    clauses = ("distinct", "expressions", "from_", "joins", "where", "with_", "windows", "qualify", "order")
    accept_only(statement, node, *clauses, "laterals")
    if list_window_functions(node):
        around = replace(around, ignores_duplicates=False)
    try:
        clause = _read_tables(statement, node, around)
    except DistributeError as union:
        if list_window_functions(node):
            raise KeepBlockError(union.path) from None
        raise
    replace_earlier_aliases(clause.scope, node)
    node, clause = _read_over(statement, node, clause, around)
    where, exists = read_where(clause.scope, node.args.get("where"), around, clause.rest)
    if clause.rest:  # conditions that are computed from whole rows of the join
        raise KeepBlockError(around.path)
    items = read_items(statement, node, clause)
    reader = Reader(statement, clause.scope, windows=find_windows(node, items))
    columns = tuple(_read_source_column(reader, item) for item in items)
    filters = () if clause.joins else list_explode_filters(clause.scope)
    condition = conjunction(each for each in (clause.condition, where, *filters) if each != TRUE)
    return MergedBlock(
        Source("", columns, "", around.path),
        clause.occurrences,
        condition,
        clause.joins,
        (*clause.exists, *exists),
        frozenset(clause.scope.extended),
    )


def _read_source_column(reader: Reader, item: SelectItem) -> SourceColumn:
    """A column of a merged block: a column of one of its tables, derived if need be, or an expression."""
    if item.column is not None:
        return item.column
    scope, node = reader.scope, strip_parentheses(reader.statement, item.node)
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star) and scope.knows(node):
        return replace(scope.resolve(node)[1], name=item.alias or node.name)
    found = bind_item(reader, item.node)
    name = item.alias or found.name
    if isinstance(found, Bound) and found.type is WINDOW:
        edges = [pick_edge(scope, found, edge, False) for edge in ("start", "end")]
        start, end = map(_refer, edges)
        assert start.ref is not None
        width = find_window_width(scope.column(start.ref))
        return replace(_refer(found), name=name, edges=(start, end), width=width)
    if isinstance(found, Bound) and not isinstance(found.expression, Ref):
        constant = isinstance(found.expression, Literal)
        found = (
            derive_constant(scope, node, found) if constant else read_row_expression(scope, node)
        ) or found
    if isinstance(found, Bound) and isinstance(found.expression, Ref):
        return replace(_refer(found), name=name)
    return SourceColumn(name, None, found.type, found)


def _refer(bound: Bound) -> SourceColumn:
    assert isinstance(bound.expression, Ref)
    return SourceColumn(bound.name, bound.expression, bound.type)


def _is_over_groups(reader: Reader, node: exp.Expr) -> bool:
    """Whether a condition of HAVING holds for all rows of a group or for none, so that WHERE can have it."""
    columns = list(node.find_all(exp.Column))
    known = all(reader.scope.knows(column) for column in columns)
    if not known or has_aggregate(node) or not is_row_expression(node):
        return False
    found = [reader.scope.find_column(column)[0] for column in columns]
    return len({ref.occurrence for ref in found}) == 1 and (reader.grouped or frozenset()) >= set(found)
