"""Reads queries from SELECT and UNION: FROM, the select list, grouping, names of output columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millpond.errors import Position, SqlError, SqlTypeError, one_line
from millpond.frontend.block_tables import build_block_table
from millpond.frontend.conditions import (
    Rest,
    conjunction,
    read_group_condition,
    read_in_part,
    read_row_condition,
)
from millpond.frontend.constants import Bound, read_constant
from millpond.frontend.derived_columns import list_window_filters, share_derived_columns, with_derived
from millpond.frontend.explode import list_explode_filters, read_lateral_views
from millpond.frontend.expressions import Reader, has_aggregate, strip_parentheses
from millpond.frontend.joins import FromClause, MergedBlock, Surroundings, read_from
from millpond.frontend.limits import is_hidden
from millpond.frontend.named_queries import strip_subquery
from millpond.frontend.over import (
    build_block_below,
    copy_select,
    cut_columns,
    has_group_aggregate,
    list_window_functions,
    read_window_functions,
    replace_aliases,
)
from millpond.frontend.projections import Computed, bind_item, bind_star_item, join_filters, read_filter
from millpond.frontend.refusals import UPSTREAM, accept_only, unsupported_error
from millpond.frontend.row_expressions import (
    derive_constant,
    find_obstacle,
    is_row_expression,
    read_row_expression,
)
from millpond.frontend.scope import KeepBlockError, Path, Scope, Source, SourceColumn, read_name
from millpond.frontend.sessions import refuse_misplaced_sessions, split_session
from millpond.frontend.statement import Statement
from millpond.frontend.subqueries import read_where
from millpond.frontend.time_calls import add_bucket_ends, is_window_call, pick_edge, read_time_call
from millpond.query.merge_blocks import merge_blocks
from millpond.query.model import (
    TRUE,
    Condition,
    Exists,
    Item,
    Literal,
    Occurrence,
    OutputColumn,
    Query,
    Ref,
    Select,
    Term,
)
from millpond.query.trees import item_refs, map_occurrences, refs
from millpond.query.types import WINDOW, Family, SqlType

MAX_SELECTS = 100
MAX_ITEMS = 10_000


class DistributeError(Exception):
    """A block is a UNION ALL of branches: the select that it is merged into is read once for each of them."""

    def __init__(self, path: Path, branches: int) -> None:
        super().__init__(path, branches)
        self.path = path
        self.branches = branches


@dataclass(frozen=True)
class TypedSelect:
    """A select and the types of its output columns; ``windows`` are as in ``Query``."""

    select: Select
    types: tuple[SqlType | None, ...]
    windows: tuple[tuple[int, str], ...]
    projection: tuple[OutputColumn, ...] = ()
    filter: OutputColumn | None = None


@dataclass(frozen=True)
class _SelectItem:
    """A select item; ``column`` is set if the item comes from ``*``."""

    node: exp.Expr
    alias: str | None
    text: str
    column: SourceColumn | None = None


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
        terms = (Term(tuple(each.select for each in found), True),)
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
        return [_read_select(statement, node, around)]
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
    clause = read_lateral_views(node, read_from(statement, node, around))
    node, clause = _read_over(statement, node, clause, around)
    scope = clause.scope
    items = _read_items(statement, node, clause)
    group_by = _read_group_by(scope, node.args.get("group"), items)
    is_grouped = group_by is not None or any(has_aggregate(item.node) for item in items)
    windows = _find_windows(node, items)
    session, group_by = split_session(scope, group_by, node.args.get("group"))
    grouped = {*(group_by or ()), *((session.start, session.end) if session else ())}
    reader = Reader(statement, scope, frozenset(grouped) if is_grouped else None, windows=windows)
    rest = clause.rest
    where, exists = read_where(scope, node.args.get("where"), around, rest)
    if rest and (is_grouped or node.args.get("distinct")):
        raise rest[0][1]
    bound = [
        bind_star_item(reader, i.node, i.column) if i.column else bind_item(reader, i.node) for i in items
    ]
    if node.args.get("distinct"):
        _refuse_nested(statement, items, bound)
    having = _read_having(reader, node.args.get("having"), items, rest)
    pushed = [each for each, _ in rest if _is_over_groups(reader, each)]
    aliased = replace(reader, aliases=_find_aliases(items)) if is_grouped else reader
    computed = [read_filter(aliased, each, refusal) for each, refusal in rest if each not in pushed]
    of_rows = [read_row_condition(Reader(statement, scope), each) for each in pushed]
    text, place = statement.slice(node), statement.at(node)
    named, packed, projection, filtered = _name_outputs(reader, items, bound, computed)
    filters = () if clause.joins else (*list_window_filters(scope), *list_explode_filters(scope))
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
    return TypedSelect(select, tuple(each.type for each in bound), packed, projection, filtered)


def _refuse_nested(
    statement: Statement, items: Sequence[_SelectItem], bound: Sequence[Bound | Computed]
) -> None:
    """Refuse DISTINCT values that cannot be compared."""
    for item, each in zip(items, bound, strict=True):
        if each.type is not None and each.type.family is Family.NESTED:
            message = f"DISTINCT {statement.excerpt(item.node)}, which is {each.type}, is not supported"
            raise SqlTypeError(message, statement.at(item.node), "select its fields or elements")


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
    items = _read_items(statement, node, clause)
    group_by = _read_group_by(scope, node.args.get("group"), items)
    is_in_groups = group_by is not None or has_groups(node)
    session, group_by = split_session(scope, group_by, node.args.get("group"))
    grouped = {*(group_by or ()), *((session.start, session.end) if session else ())}
    known = frozenset(grouped) if is_in_groups else None
    reader = Reader(statement, scope, known, windows=_find_windows(node, items))
    having = _read_having(reader, node.args.get("having"), items)
    columns = cut_columns(reader, node, [(item.node, item.column) for item in items])
    filters = () if clause.joins else (*list_window_filters(scope), *list_explode_filters(scope))
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
    return build_block_below(clause, around, query, columns)


def read_plain(statement: Statement, node: exp.Select, around: Surroundings) -> MergedBlock:
    """A select of joins, filters and expressions, or with window functions, to be merged into its user."""
    clauses = ("distinct", "expressions", "from_", "joins", "where", "with_", "windows", "qualify", "order")
    accept_only(statement, node, *clauses, "laterals")
    if list_window_functions(node):
        around = replace(around, ignores_duplicates=False)
    try:
        clause = read_lateral_views(node, read_from(statement, node, around))
    except DistributeError as union:
        if list_window_functions(node):
            raise KeepBlockError(union.path) from None
        raise
    node, clause = _read_over(statement, node, clause, around)
    _refuse_rest(clause)
    where, exists = read_where(clause.scope, node.args.get("where"), around)
    items = _read_items(statement, node, clause)
    reader = Reader(statement, clause.scope, windows=_find_windows(node, items))
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


def _read_source_column(reader: Reader, item: _SelectItem) -> SourceColumn:
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
        return replace(_refer(found), name=name, edges=(start, end))
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


# --- the select list ---------------------------------------------------------------------------------


def _read_items(statement: Statement, node: exp.Select, clause: FromClause) -> list[_SelectItem]:
    items: list[_SelectItem] = []
    for each in node.expressions:
        if isinstance(each, exp.Star) or (isinstance(each, exp.Column) and isinstance(each.this, exp.Star)):
            items += _expand_star(statement, each, clause)
        elif isinstance(each, exp.Alias):
            accept_only(statement, each, "this", "alias")
            items.append(
                _SelectItem(each.this, read_name(statement, each.args["alias"]), statement.slice(each))
            )
        else:
            items.append(_SelectItem(each, None, statement.slice_with_signs(each)))
        if len(items) > MAX_ITEMS:
            message = f"more than {MAX_ITEMS} columns in one select"
            raise SqlError(message, statement.at(each), "name the columns you need")
    if not items:
        raise SqlError("nothing is selected", statement.at(node), "name columns after SELECT")
    return items


def _expand_star(statement: Statement, node: exp.Expr, clause: FromClause) -> list[_SelectItem]:
    accept_only(statement, node.this if isinstance(node, exp.Column) else node)
    columns: Sequence[SourceColumn] = clause.columns
    if isinstance(node, exp.Column):
        accept_only(statement, node, "this", "table")
        columns = clause.scope.find_source(node.args["table"]).columns
    shown = (each for each in columns if not is_hidden(each.name))
    return [_SelectItem(node, None, str(each.ref or each.name), each) for each in shown]


def _name_outputs(
    reader: Reader,
    items: Sequence[_SelectItem],
    bound: Sequence[Bound | Computed],
    filters: Sequence[Computed],
) -> tuple[tuple[Item, ...], tuple[tuple[int, str], ...], tuple[OutputColumn, ...], OutputColumn | None]:
    """The items and windows of the result, and the projection and the filter that are computed from them."""
    plain = [(item, each) for item, each in zip(items, bound, strict=True) if isinstance(each, Bound)]
    computed = [*(each for each in bound if isinstance(each, Computed)), *filters]
    if not computed:
        return (*_name_items(reader, items, [each for _, each in plain]), (), None)
    names = unique_names([item.alias or each.name for item, each in zip(items, bound, strict=True)])
    shown = [
        (replace(i, alias=n), b) for i, n, b in zip(items, names, bound, strict=True) if isinstance(b, Bound)
    ]
    known = {b.expression: i.alias or "" for i, b in shown if b.type is not WINDOW}
    for part in (part for each in computed for part in each.parts):
        if part.expression not in known:
            name = f"part {len(known) + 1} of the result"
            known[part.expression] = name
            shown.append((_SelectItem(exp.Null(), name, name), part))
    named, windows = _name_items(reader, [item for item, _ in shown], [each for _, each in shown])
    projection = []
    for name, each in zip(names, bound, strict=True):
        if isinstance(each, Computed):
            projection.append(each.to_output(name, [known[part.expression] for part in each.parts]))
        else:
            column = exp.column(exp.to_identifier(name, quoted=True))
            projection.append(OutputColumn(name, column.sql("spark"), column.sql("duckdb")))
    filtered = join_filters(filters, lambda each: [known[part.expression] for part in each.parts])
    return named, windows, tuple(projection), filtered


def _name_items(
    reader: Reader, items: Sequence[_SelectItem], bound: Sequence[Bound]
) -> tuple[tuple[Item, ...], tuple[tuple[int, str], ...]]:
    """The items under their names, and the windows among them: each is two items, its start and its end."""
    unique = unique_names([item.alias or each.name for item, each in zip(items, bound, strict=True)])
    out: list[Item] = []
    windows: list[tuple[int, str]] = []
    for item, each, name in zip(items, bound, unique, strict=True):
        if each.type is WINDOW:
            windows.append((len(out), name))
            is_grouped = reader.grouped is not None
            edges = [pick_edge(reader.scope, each, edge, is_grouped) for edge in ("start", "end")]
            out += [Item(edge.expression, f"{name} {edge.name}", item.text) for edge in edges]
        else:
            out.append(Item(each.expression, name, item.text))
    names = unique_names([item.name for item in out])
    return tuple(replace(i, name=n) for i, n in zip(out, names, strict=True)), tuple(windows)


def unique_names(names: Sequence[str]) -> list[str]:
    """Append _1, _2, … to names that occur more than once.

    >>> unique_names(["A", "B", "a"])
    ['A_1', 'B', 'a_2']
    """
    counts = Counter(name.lower() for name in names)
    taken = {name for name, count in counts.items() if count == 1}
    numbers: Counter[str] = Counter()
    result = []
    for name in names:
        unique = name
        while counts[name.lower()] > 1 and (unique == name or unique.lower() in taken):
            numbers[name.lower()] += 1
            unique = f"{name}_{numbers[name.lower()]}"
        taken.add(unique.lower())
        result.append(unique)
    return result


# --- grouping ----------------------------------------------------------------------------------------


def _read_group_by(
    scope: Scope, node: exp.Expr | None, items: Sequence[_SelectItem]
) -> tuple[Ref, ...] | None:
    if node is None:
        return None
    statement = scope.statement
    accept_only(statement, node, "expressions")
    if not node.expressions:
        raise SqlError("GROUP BY has no column", statement.keyword_at(node, "GROUP"), "name the columns")
    return tuple(dict.fromkeys(_read_group_column(scope, each, items) for each in node.expressions))


def _read_group_column(scope: Scope, node: exp.Expr, items: Sequence[_SelectItem]) -> Ref:
    """The column that GROUP BY names, whose values can be compared."""
    ref = _find_group_column(scope, node, items)
    type_ = scope.column(ref).type
    if type_.family is Family.NESTED:
        message = f"GROUP BY {scope.statement.excerpt(node)}, which is {type_}, is not supported"
        raise SqlTypeError(message, scope.statement.at(node), "group by its fields or elements")
    return ref


def _find_group_column(scope: Scope, node: exp.Expr, items: Sequence[_SelectItem]) -> Ref:
    """The column that a name, a position or a select alias refers to; as in Spark, columns come first."""
    statement, target = scope.statement, strip_parentheses(scope.statement, node)
    ordinal = read_constant(statement, target) if isinstance(target, exp.Literal | exp.Neg) else None
    if ordinal and isinstance(ordinal.expression, Literal) and type(ordinal.expression.value) is int:
        if not 1 <= ordinal.expression.value <= len(items):
            message = f"GROUP BY {statement.excerpt(node)} is not a position in the select list"
            raise SqlError(message, statement.at(node), f"write 1 to {len(items)}, or a column")
        item = items[ordinal.expression.value - 1]
        if item.column:
            if item.column.ref is None:
                raise SqlError(f"GROUP BY {item.column.name} is not supported", statement.at(node), UPSTREAM)
            return item.column.ref
        target = strip_parentheses(statement, item.node)
    elif isinstance(target, exp.Column) and not target.args.get("table") and not scope.knows(target):
        target = strip_parentheses(statement, _find_aliases(items).get(target.name.lower(), target))
    called = read_time_call(scope, target, grouped=True)
    if (
        called is not None
    ):  # the end of a window, which is a fixed time after its start, gives the same groups
        return next(iter(refs(called.expression)))
    if isinstance(target, exp.Column) and not isinstance(target.this, exp.Star):
        return scope.find_column(target)[0]
    derived = read_row_expression(scope, target)
    if derived is not None:
        assert isinstance(derived.expression, Ref)
        return derived.expression
    obstacle = find_obstacle(target)
    is_named = isinstance(obstacle, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Func | exp.Window)
    if is_named and (isinstance(obstacle, exp.Window) or not has_aggregate(target)):
        raise unsupported_error(statement, obstacle)
    message = f"GROUP BY {statement.excerpt(node)} is not supported"
    raise SqlError(message, statement.at(node), UPSTREAM)


def _find_windows(node: exp.Select, items: Sequence[_SelectItem]) -> dict[str, exp.Expr]:
    """The calls of ``window`` and ``session_window``, by their select alias or their own name."""
    own = node.walk(prune=lambda each: each is not node and isinstance(each, exp.Query | exp.With))
    calls = [each for each in own if is_window_call(each)]
    named = {i.alias.lower(): i.node for i in items if i.alias and any(call is i.node for call in calls)}
    for name in ("window", "session_window"):
        same = [each for each in calls if each.name.lower() == name]
        if len({each.sql().upper() for each in same}) == 1:
            named.setdefault(name, same[0])
    return named


def _find_aliases(items: Sequence[_SelectItem]) -> dict[str, exp.Expr]:
    """Select items by alias, without aliases that are given twice."""
    counts = Counter(item.alias.lower() for item in items if item.alias)
    return {i.alias.lower(): i.node for i in items if i.alias and counts[i.alias.lower()] == 1}


def _read_having(
    reader: Reader, node: exp.Expr | None, items: Sequence[_SelectItem], rest: Rest | None = None
) -> Condition:
    """The condition of HAVING; operands that cannot be read are added to ``rest``, if it is given."""
    if node is None:
        return TRUE
    if reader.grouped is None:
        place = reader.statement.keyword_at(node, "HAVING")
        message = "HAVING with neither GROUP BY nor an aggregate in the select list is not supported"
        raise SqlError(message, place, "put the condition in WHERE")
    reader = replace(reader, aliases=_find_aliases(items))
    return read_in_part(read_group_condition, reader, node.this, rest)


def _is_over_groups(reader: Reader, node: exp.Expr) -> bool:
    """Whether a condition of HAVING holds for all rows of a group or for none, so that WHERE can have it."""
    columns = list(node.find_all(exp.Column))
    known = all(reader.scope.knows(column) for column in columns)
    if not known or has_aggregate(node) or not is_row_expression(node):
        return False
    found = [reader.scope.find_column(column)[0] for column in columns]
    return len({ref.occurrence for ref in found}) == 1 and (reader.grouped or frozenset()) >= set(found)
