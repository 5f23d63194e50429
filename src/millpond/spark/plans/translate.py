"""Translates an analysed plan to SQL text: CREATE statements and one query.

Operators are added to one SELECT as long as they fit, as a person would write the query; what does not fit
becomes a subquery.  Only columns that an operator above needs are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from millpond.frontend.spark_names import quote_name
from millpond.spark.plans.catalog import (
    PlanCatalog,
    find_hint,
    make_column,
    make_unique,
    name_columns,
    read_name,
)
from millpond.spark.plans.expressions import (
    TRUE,
    Definition,
    ExpressionRenderer,
    Surroundings,
    UnsupportedPlanError,
    WindowColumn,
)
from millpond.spark.plans.joins import join_selects
from millpond.spark.plans.nodes import Attribute, PlanExpression, PlanNode
from millpond.spark.plans.operators import OPAQUE_MAPS, STATEFUL, TRANSPARENT, describe_operator
from millpond.spark.plans.selects import FromItem, SelectText
from millpond.spark.plans.sql_text import Level, Sql
from millpond.spark.plans.time_windows import find_time_window, is_session_check

Needed = frozenset[int]
_SET_OPERATIONS = {"Union": "UNION ALL", "Intersect": "INTERSECT", "Except": "EXCEPT"}
_GROUPING_ID = "spark_grouping_id"
_ROW_NUMBER = "row_number"


class OpaqueOperatorError(Exception):
    """A stateful operator whose state only its own program knows."""


@dataclass(frozen=True)
class Translation:
    """A plan as SQL text.

    ``functions`` are functions of users with the types of their values.  ``below`` are plans whose rows an
    opaque function takes and whose own state counts as well.  ``windows`` are streams with the
    stretch of time, in ms, for which ``dropDuplicatesWithinWatermark`` keeps their keys.
    """

    text: str
    functions: Mapping[str, str]
    below: tuple[PlanNode, ...]
    windows: tuple[tuple[str, int], ...]


def translate_plan(plan: PlanNode) -> Translation:
    """The plan as SQL text.

    Raises OpaqueOperatorError for opaque stateful operators, UnsupportedPlanError for what has no SQL.
    """
    translator = _Translator()
    block = translator.translate(plan, frozenset(each.expr_id for each in plan.output))
    output = [(block.columns[each.expr_id], each.name) for each in plan.output]
    query = block.render(output)
    if not any(item.streaming for item in translator.catalog.tables if item.name not in translator.ended):
        query = translator.limited or query
    return Translation(
        f"{translator.catalog.render()}\n{query}",
        translator.functions,
        tuple(translator.below),
        tuple(translator.windows),
    )


class _Translator:
    def __init__(self) -> None:
        self.catalog = PlanCatalog()
        self.functions: dict[str, str] = {}
        self.below: list[PlanNode] = []
        self.windows: list[tuple[str, int]] = []
        self.limited: str | None = None  # a query of the rows that a LIMIT lets through
        self.ended: set[str] = set()  # streams that end with a LIMIT
        self.ctes: dict[int, PlanNode] = {}
        self.types: dict[int, Attribute] = {}
        self.outer: list[Mapping[int, Definition]] = []
        self._hint: str | None = None  # the alias of the rows of the operator that is translated
        self._view: str | None = None  # the view that they are read from
        self.operators: dict[str, Callable[[PlanNode, Needed], SelectText]] = {
            "Project": self._translate_project,
            "Filter": self._translate_filter,
            "Join": self._translate_join,
            "Aggregate": self._translate_aggregate,
            "EventTimeWatermark": self._translate_watermark,
            "Deduplicate": self._translate_deduplicate,
            "DeduplicateWithinWatermark": self._translate_deduplicate_in_time,
            "Distinct": self._translate_distinct,
            "Union": self._translate_union,
            "Intersect": self._translate_union,
            "Except": self._translate_union,
            "Generate": self._translate_generate,
            "Expand": self._translate_expand,
            "Window": self._translate_over,
            "Sort": self._translate_sort,
            "GlobalLimit": self._translate_limit,
            "WithCTE": self._translate_with,
            "CTERelationRef": self._translate_cte,
        }

    def translate(self, node: PlanNode, needed: Needed, hint: str | None = None) -> SelectText:
        """The rows of a node; ``needed`` are the columns that are used of them."""
        self.types.update({each.expr_id: each for each in node.output})
        name = hint or read_name(node)
        if node.kind == "View":
            self._view = read_name(node)
        elif len(node.children) > 1:
            self._view = None
        if node.kind in STATEFUL:
            raise OpaqueOperatorError(describe_operator(node))
        if not node.streaming and node.output:
            return self._read_table(node, hint or find_hint(node))
        if node.kind in OPAQUE_MAPS:
            return self._translate_opaque_map(node, hint)
        if node.kind in self.operators:
            self._hint = name
            return self.operators[node.kind](node, needed)
        if node.kind in TRANSPARENT:
            return self._pass(node, needed, name)
        if node.children:
            raise UnsupportedPlanError(f"the operator {describe_operator(node)}")
        return self._read_table(node, name)

    # --- tables ----------------------------------------------------------------------------------------

    def _read_table(self, node: PlanNode, alias: str | None) -> SelectText:
        """A stream, or a relation: every plan without a stream is one."""
        table = self.catalog.declare(node, self._view or (None if node.source else alias))
        self._view = None
        alias = self.catalog.read(table, alias)
        known = {each.expr_id: make_column(alias, name) for name, each in name_columns(node)}
        return SelectText((FromItem(quote_name(table.name), alias),), known)

    def _translate_opaque_map(self, node: PlanNode, hint: str | None) -> SelectText:
        """The rows that an opaque function makes of rows: a stream of their own."""
        inputs = [each for child in node.children for each in child.walk()]
        stateful = next((each for each in inputs if each.kind in STATEFUL), None)
        if stateful is not None:
            raise OpaqueOperatorError(describe_operator(stateful))
        if any(each.kind in _KEEPS_STATE for each in inputs):
            self.below += [child for child in node.children if child.kind not in OPAQUE_MAPS]
        name = find_hint(node) or describe_operator(node)
        return self._read_table(replace(node, source=None, children=()), hint or name)

    def _pass(self, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
        """The rows of the input, under the node's own IDs of columns."""
        (child,) = node.children
        pairs = list(zip(node.output, child.output, strict=False))
        same = {a.expr_id: b.expr_id for a, b in pairs}
        block = self.translate(child, frozenset(same.get(each, each) for each in needed), hint)
        renamed = {a: block.columns[b] for a, b in same.items() if a != b and b in block.columns}
        return replace(block, columns={**block.columns, **renamed}) if renamed else block

    def _translate_with(self, node: PlanNode, needed: Needed) -> SelectText:
        *definitions, query = node.children
        self.ctes.update({each.fields["id"]: each.children[0] for each in definitions})
        return self.translate(query, needed)

    def _translate_cte(self, node: PlanNode, needed: Needed) -> SelectText:
        definition = self.ctes.get(node.fields.get("cteId", -1))
        if definition is None:
            raise UnsupportedPlanError("a recursive query")
        return self._pass(replace(node, children=(definition,)), needed, self._hint)

    # --- rows ------------------------------------------------------------------------------------------

    def _translate_project(self, node: PlanNode, needed: Needed) -> SelectText:
        wanted = [each for each in node.expressions("projectList") if each.expr_id in needed]
        block = self.translate(node.children[0], _columns_of(wanted), self._hint)
        if not block.is_plain and any(find_time_window(each) is not None for each in wanted):
            block = self._prepare(block)
        if block.distinct and {each.expr_id for each in wanted} != block.columns.keys():
            block = self._prepare(block)
        return self._define(block, [(each, each.expr_id) for each in wanted])

    def _define(
        self, block: SelectText, expressions: Iterable[tuple[PlanExpression, int | None]]
    ) -> SelectText:
        """The block with these columns."""
        columns: dict[int, Definition] = {}
        renderer = self._renderer(block)
        for expression, expr_id in expressions:
            if expr_id is None:
                continue
            window = find_time_window(expression)
            if window is None:
                known = self.types.get(expr_id)
                columns[expr_id] = renderer.define(expression, known.type if known is not None else None)
                continue
            time = self._make_time_column(block, renderer.render(window.time), "event_time")
            self.catalog.set_time(time.column)
            whole = window.render(time.text)
            columns[expr_id] = WindowColumn(Sql(f"{whole}.start"), Sql(f"{whole}.end"), Sql(whole))
        return replace(block, columns=columns)

    def _translate_filter(self, node: PlanNode, needed: Needed) -> SelectText:
        condition = node.expression("condition")
        assert condition is not None, "a Filter has a condition"
        block = self.translate(node.children[0], needed | condition.columns, self._hint)
        if block.has_over or block.limit is not None:
            block = self._prepare(block)
        renderer = self._renderer(block)
        where, having = list(block.where), list(block.having)
        for part in split_condition(condition):
            text = renderer.render(part)
            if text == TRUE or is_session_check(part):
                continue
            read = {self._find_text(block, each) for each in part.columns}
            is_of_keys = block.group is None or all(each in block.group for each in read)
            (where if is_of_keys else having).append(text.within(Level.AND))
        return replace(block, where=tuple(where), having=tuple(having))

    def _find_text(self, block: SelectText, expr_id: int) -> str | None:
        """The SQL of a column, unless it is a time window."""
        found = block.columns.get(expr_id)
        return found.text if isinstance(found, Sql) else None

    def _translate_generate(self, node: PlanNode, needed: Needed) -> SelectText:
        generator = node.expression("generator")
        assert generator is not None, "a Generate has a generator"
        block = self._prepare(self.translate(node.children[0], needed | generator.columns, self._hint))
        made = node.expressions("generatorOutput")
        is_array = (
            (generator.children[0].type or "array").startswith("array") if generator.children else False
        )
        if generator.kind == "Explode" and len(made) == 1 and is_array and not block.laterals:
            array = self._renderer(block).render(generator.children[0]).text
            alias, name = self.catalog.name_alias("elements"), made[0].name or "col"
            outer = "OUTER " if node.fields.get("outer") is True else ""
            view = f"LATERAL VIEW {outer}explode({array}) {quote_name(alias)} AS {quote_name(name)}"
            columns = {**block.columns, made[0].expr_id or 0: make_column(alias, name)}
            return replace(block, laterals=(view,), columns=columns)
        stream = self._find_stream(block)
        if stream is None:
            raise UnsupportedPlanError(f"{generator.function or generator.kind} of the rows of a subquery")
        columns = dict(block.columns)
        for each in made:
            columns[each.expr_id or 0] = self.catalog.add_column(
                stream, each.name or "col", each.type or "string"
            )
        return replace(block, columns=columns)

    def _translate_expand(self, node: PlanNode, needed: Needed) -> SelectText:
        """The rows of sliding windows; those of ROLLUP and CUBE are read with their groups."""
        (first, *_) = node.fields["projections"]
        if not any(find_time_window(each) is not None for each in first):
            raise UnsupportedPlanError("the operator Expand")
        pairs = [(e, a.expr_id) for e, a in zip(first, node.output, strict=True) if a.expr_id in needed]
        block = self._prepare(self.translate(node.children[0], _columns_of(e for e, _ in pairs), self._hint))
        return self._define(block, pairs)

    def _translate_watermark(self, node: PlanNode, needed: Needed) -> SelectText:
        time = node.expression("eventTime")
        assert time is not None and time.expr_id is not None, "a watermark has a column"
        block = self.translate(node.children[0], needed | {time.expr_id}, self._hint)
        delay = next((each.delay for each in node.output if each.expr_id == time.expr_id), None)
        found = block.columns.get(time.expr_id)
        if not isinstance(found, Sql) or not block.is_plain:
            return block  # the time of groups follows from that of their rows
        column = self._make_time_column(block, found, time.name or "event_time")
        self.catalog.set_time(column.column, delay)
        return replace(block, columns={**block.columns, time.expr_id: column})

    def _make_time_column(self, block: SelectText, time: Sql, name: str) -> Sql:
        """A column of a stream for a timestamp; a computed one is a column of its own."""
        alias = self._find_stream(block)
        if time.column is not None or alias is None or not block.is_plain:
            return time
        return self.catalog.add_column(alias, name, "timestamp", time.text)

    # --- joins and unions ------------------------------------------------------------------------------

    def _translate_join(self, node: PlanNode, needed: Needed) -> SelectText:
        condition = node.expression("condition")
        if condition is not None:
            needed = needed | condition.columns
        sides = [self._prepare(self.translate(child, needed, read_name(child))) for child in node.children]
        parts = list(split_condition(condition)) if condition is not None else []
        left, right = sides
        columns = {**left.columns, **right.columns}
        for each in (found for part in parts for found in part.walk()):
            if each.type == "timestamp" and each.kind == "AttributeReference":
                column = columns.get(each.expr_id or 0)
                self.catalog.set_time(column.column if isinstance(column, Sql) else None)
        kind = node.fields.get("joinType")
        if isinstance(kind, dict):
            kind = str(kind.get("product-class", "")).rpartition(".")[2]

        def render_condition(left: SelectText, right: SelectText) -> tuple[str, ...]:
            renderer = self._renderer(replace(left, columns={**left.columns, **right.columns}))
            return tuple(renderer.render(each).within(Level.AND) for each in parts)

        return join_selects(left, right, str(kind), render_condition, self._wrap)

    def _translate_union(self, node: PlanNode, needed: Needed) -> SelectText:
        """UNION ALL, INTERSECT and EXCEPT; of UNION ALL, only columns that are needed."""
        word = _SET_OPERATIONS[node.kind] + (" ALL" if node.fields.get("isAll") is True else "")
        is_needed = [node.kind != "Union" or each.expr_id in needed for each in node.output]
        kept = [i for i, each in enumerate(is_needed) if each] or [0]
        names = make_unique(node.output[i].name for i in kept)
        texts = []
        for child in node.children:
            ids = [child.output[i].expr_id for i in kept]
            block = self.translate(child, frozenset(ids), read_name(child))
            if block.limit is not None or (block.distinct and set(ids) != block.columns.keys()):
                block = self._prepare(block)
            texts.append(block.render([(block.columns[i], n) for i, n in zip(ids, names, strict=True)]))
        return self._make_subquery(
            f"\n{word}\n".join(texts),
            {node.output[i].expr_id: (name,) for i, name in zip(kept, names, strict=True)},
        )

    # --- groups ----------------------------------------------------------------------------------------

    def _translate_aggregate(self, node: PlanNode, needed: Needed) -> SelectText:
        keys = node.expressions("groupingExpressions")
        items = node.expressions("aggregateExpressions")
        wanted = [each for each in items if each.expr_id in needed]
        below = _columns_of((*keys, *wanted))
        child = node.children[0]
        if child.kind == "Expand" and any(each.name == _GROUPING_ID for each in child.output):
            return self._translate_grouping_sets(node, wanted)
        pivots = {each.expr_id or 0: pivot for each in wanted if (pivot := _find_pivot(each)) is not None}
        if pivots and child.kind == "Aggregate":
            return self._translate_pivot(child, keys, wanted, pivots)
        block = self._prepare(self.translate(child, below, self._hint))
        return self._group(block, keys, wanted)

    def _translate_pivot(
        self,
        below: PlanNode,
        keys: Iterable[PlanExpression],
        items: Iterable[PlanExpression],
        pivots: Mapping[int, int],
    ) -> SelectText:
        """The aggregates of the input, for some values of the pivot column, by the remaining columns.

        ``pivots`` are the columns of the input that hold them, by the columns that collect them.
        """
        inner = {each.expr_id or 0: each for each in below.expressions("aggregateExpressions")}
        read = [
            inner[pivots[each.expr_id]] if each.expr_id and each.expr_id in pivots else each for each in items
        ]
        block = self._prepare(self.translate(below.children[0], _columns_of((*keys, *read)), self._hint))
        grouped = self._group(block, keys, read)
        columns = dict(grouped.columns)
        for key, value in pivots.items():
            found = columns[value]
            columns[key] = replace(found, pivoted=True) if isinstance(found, Sql) else found
        return replace(grouped, columns=columns)

    def _group(
        self, block: SelectText, keys: Iterable[PlanExpression], items: Iterable[PlanExpression]
    ) -> SelectText:
        renderer = self._renderer(block)
        group: list[str] = []
        inside = dict(block.columns)
        times: set[str] = set()
        for key in keys:
            definition = renderer.define(key)
            if isinstance(definition, WindowColumn):
                group += _list_texts(definition)
                if definition.whole is not None:
                    function = definition.whole.text.partition("(")[0]
                    times.add(definition.whole.text[len(function) + 1 :].split(", '")[0])
                    fields = (Sql(f"{function}.start"), Sql(f"{function}.end"))
                    inside[key.expr_id or 0] = WindowColumn(*fields, Sql(function))
            elif key.columns:
                group.append(definition.text)
        where = tuple(each for each in block.where if each.removesuffix(" IS NOT NULL") not in times)
        block = replace(block, columns=inside, where=where)
        block = self._define(block, [(each, each.expr_id) for each in items])
        return replace(block, group=tuple(group))

    def _translate_grouping_sets(self, node: PlanNode, items: list[PlanExpression]) -> SelectText:
        """ROLLUP, CUBE and GROUPING SETS: one grouping for each projection of the Expand, all together."""
        expand = node.children[0]
        keys = [each for each in node.expressions("groupingExpressions") if each.name != _GROUPING_ID]
        names = make_unique(each.name or "column" for each in items)
        texts = []
        for projection in expand.fields["projections"]:
            block = self._prepare(self.translate(expand.children[0], _columns_of(projection), self._hint))
            pairs = list(zip(projection, expand.output, strict=True))
            nulls = {a.expr_id for e, a in pairs if e.kind == "Literal" and e.value is None}
            block = self._define(block, [(e, a.expr_id) for e, a in pairs])
            block = self._group(block, [key for key in keys if key.expr_id not in nulls], items)
            output = [(block.columns[e.expr_id or 0], n) for e, n in zip(items, names, strict=True)]
            texts.append(block.render(output))
        exports = {each.expr_id or 0: (name,) for each, name in zip(items, names, strict=True)}
        return self._make_subquery("\nUNION ALL\n".join(texts), exports)

    def _translate_distinct(self, node: PlanNode, needed: Needed) -> SelectText:
        (child,) = node.children
        ids = frozenset(each.expr_id for each in child.output)
        block = self._prepare(self.translate(child, ids, self._hint))
        return replace(block, distinct=True, columns={key: block.columns[key] for key in ids})

    def _translate_deduplicate(self, node: PlanNode, needed: Needed) -> SelectText:
        """DISTINCT, if nothing but the keys is used; otherwise the first row of each key."""
        keys = [each.expr_id or 0 for each in node.expressions("keys")]
        rest = sorted(needed - set(keys))
        time = next((each for each in node.output if each.delay is not None), None)
        time = time or next((each for each in node.output if each.type.startswith("timestamp")), None)
        block = self._prepare(
            self.translate(
                node.children[0], needed | {*keys, *([time.expr_id] if time and rest else ())}, self._hint
            )
        )
        key_texts = [text for key in keys for text in _list_texts(block.columns[key])]
        if not rest:
            return replace(block, distinct=True, columns={key: block.columns[key] for key in keys})
        order = self._find_order(block, time)
        if order is None:
            any_value = {
                key: Sql(f"ANY_VALUE({text})") for key in rest for text in _list_texts(block.columns[key])[:1]
            }
            columns = {**{key: block.columns[key] for key in keys}, **any_value}
            return replace(block, columns=columns, group=tuple(key_texts))
        rank = Sql(f"ROW_NUMBER() OVER (PARTITION BY {', '.join(key_texts)} ORDER BY {order})")
        columns = {key: block.columns[key] for key in (*keys, *rest)}
        ranked = self._wrap(replace(block, columns={**columns, -1: rank}, has_over=True))
        first = ranked.columns[-1]
        assert isinstance(first, Sql), "a rank is a number"
        return replace(ranked, where=(f"{first.text} = 1",))

    def _find_order(self, block: SelectText, time: Attribute | None) -> str | None:
        """The timestamp by which rows are ordered; None without one."""
        found = block.columns.get(time.expr_id) if time is not None else None
        if isinstance(found, Sql):
            return found.text
        alias = self._find_stream(block)
        table = self.catalog.find(alias) if alias is not None else None
        if alias is None or table is None or table.time_column is None:
            return None
        return make_column(alias, table.time_column).text

    def _translate_deduplicate_in_time(self, node: PlanNode, needed: Needed) -> SelectText:
        """A filter: what it keeps, the keys of a stretch of time, is bounded by itself."""
        delay = max((each.delay for each in node.output if each.delay is not None), default=None)
        block = self.translate(node.children[0], needed, self._hint)
        alias = self._find_stream(block)
        table = self.catalog.find(alias) if alias is not None else None
        if delay is not None and table is not None:
            self.windows.append((table.name, delay))
        return block

    def _translate_over(self, node: PlanNode, needed: Needed) -> SelectText:
        items = [each for each in node.expressions("windowExpressions") if each.expr_id in needed]
        block = self.translate(node.children[0], needed | _columns_of(items), self._hint)
        if not block.is_plain and not block.has_over:
            block = self._prepare(block)
        over = self._define(block, [(each, each.expr_id) for each in items])
        return replace(over, columns={**block.columns, **over.columns}, has_over=True)

    # --- order and limits ------------------------------------------------------------------------------

    def _translate_sort(self, node: PlanNode, needed: Needed) -> SelectText:
        order = node.expressions("order")
        block = self.translate(node.children[0], needed | _columns_of(order), self._hint)
        if node.fields.get("global") is not True:
            return block
        renderer = self._renderer(block)
        return replace(block, order=tuple(renderer.render_order(each) for each in order))

    def _translate_limit(self, node: PlanNode, needed: Needed) -> SelectText:
        limit = node.expression("limitExpr")
        number = (limit.value or "") if limit is not None else ""
        if not number.isdecimal():
            raise UnsupportedPlanError("a LIMIT that is not a number")
        (child,) = node.children
        if child.kind == "LocalLimit":
            (child,) = child.children
        block = self.translate(child, needed, self._hint)
        if block.limit is not None or block.has_over:
            block = self._prepare(block)
        return replace(block, limit=int(number))

    def _take_limited(self, block: SelectText) -> SelectText:
        """The rows that a LIMIT lets through, which come to an end, as a relation."""
        ids = sorted(block.columns)
        names = make_unique(self._name_of(key) for key in ids)
        self.limited = block.render([(block.columns[i], n) for i, n in zip(ids, names, strict=True)])
        self.ended |= {
            table.name for item in block.items if (table := self.catalog.find(item.alias)) is not None
        }
        columns = [Attribute(n, i, self._type_of(i)) for i, n in zip(ids, names, strict=True)]
        return self._read_table(PlanNode("LocalRelation", output=tuple(columns)), "first_rows")

    # --- subqueries ------------------------------------------------------------------------------------

    def _prepare(self, block: SelectText) -> SelectText:
        """The block, or one that selects from it, to which further operators can be added."""
        if block.limit is not None:
            return self._take_limited(block)
        return replace(block, order=()) if block.is_plain else self._wrap(block)

    def _wrap(self, block: SelectText) -> SelectText:
        """A SELECT from the block as a subquery."""
        output: list[tuple[Definition, str]] = []
        exports: dict[int, tuple[str, ...]] = {}
        for key, definition in block.columns.items():
            base = _ROW_NUMBER if key == -1 else self._name_of(key)
            if isinstance(definition, WindowColumn):
                parts: list[tuple[Definition, str]] = [
                    (definition.start, f"{base}_start"),
                    (definition.end, f"{base}_end"),
                ]
            else:
                parts = [(definition, base)]
            names = make_unique((name for _, name in parts), (name for _, name in output))
            output += zip((each for each, _ in parts), names, strict=True)
            exports[key] = tuple(names)
        return self._make_subquery(block.render(output), exports)

    def _make_subquery(self, text: str, exports: Mapping[int, tuple[str, ...]]) -> SelectText:
        alias = self.catalog.name_alias("step")
        columns: dict[int, Definition] = {}
        for key, names in exports.items():
            made = [make_column(alias, name) for name in names]
            columns[key] = made[0] if len(made) == 1 else WindowColumn(*made)
        plain = (
            tuple(names[0] for names in exports.values())
            if all(len(n) == 1 for n in exports.values())
            else ()
        )
        item = FromItem(f"({text})", alias, inner=text if plain else None, exports=plain)
        return SelectText((item,), columns)

    def _render_subquery(self, plan: PlanNode, columns: Mapping[int, Definition]) -> str:
        """A plan inside an expression, which can refer to the columns around it."""
        self.outer.append(columns)
        try:
            ids = _list_output(plan)
            block = self.translate(plan, frozenset(ids))
            return block.render([(block.columns[key], None) for key in ids])
        finally:
            self.outer.pop()

    # --- helpers ---------------------------------------------------------------------------------------

    def _renderer(self, block: SelectText) -> ExpressionRenderer:
        known = {key: each for columns in self.outer for key, each in columns.items()}
        around = Surroundings(
            self._declare_function,
            lambda name, type_: self._make_fresh_column(block, name, type_),
            self._render_subquery,
        )
        return ExpressionRenderer({**known, **block.columns}, around)

    def _declare_function(self, name: str, type_: str) -> str:
        """The name under which a function of users is called."""
        clean = "".join(each if each.isalnum() else "_" for each in name).strip("_") or "udf"
        unique, number = clean, 2
        while self.functions.get(unique, type_) != type_:
            unique, number = f"{clean}_{number}", number + 1
        self.functions[unique] = type_
        return unique

    def _make_fresh_column(self, block: SelectText, name: str, type_: str) -> Sql:
        """A column for a value that does not follow from the row; in results, which are final, a constant."""
        alias = self._find_stream(block)
        if alias is not None and block.group is None:
            return self.catalog.add_column(alias, name, type_)
        return Sql(f"CAST(NULL AS {type_.upper()})")

    def _find_stream(self, block: SelectText) -> str | None:
        """The first stream that a block reads without a subquery."""
        tables = ((item.alias, self.catalog.find(item.alias)) for item in block.items)
        return next((alias for alias, table in tables if table is not None and table.streaming), None)

    def _name_of(self, expr_id: int) -> str:
        known = self.types.get(expr_id)
        return known.name if known is not None else f"column_{expr_id}"

    def _type_of(self, expr_id: int) -> str:
        known = self.types.get(expr_id)
        return known.type if known is not None else "string"


_KEEPS_STATE = {
    "Aggregate",
    "Join",
    "Deduplicate",
    "Distinct",
    "DeduplicateWithinWatermark",
    "GlobalLimit",
    "Window",
}


def _find_pivot(item: PlanExpression) -> int | None:
    """The column of which an aggregate collects one value for each value of a pivot column."""
    found = next((each for each in item.walk() if each.kind == "PivotFirst"), None)
    return found.children[1].expr_id if found is not None else None


def split_condition(condition: PlanExpression) -> Iterator[PlanExpression]:
    """The conditions that AND connects."""
    if condition.kind == "And":
        for child in condition.children:
            yield from split_condition(child)
    else:
        yield condition


def _columns_of(expressions: Iterable[PlanExpression]) -> Needed:
    return frozenset(column for each in expressions for column in each.columns)


def _list_texts(definition: Definition) -> list[str]:
    """What a column stands for in GROUP BY and PARTITION BY."""
    if isinstance(definition, Sql):
        return [definition.text]
    if definition.whole is not None:
        return [definition.whole.text]
    return [definition.start.text, definition.end.text]


def _list_output(plan: PlanNode) -> list[int]:
    """The columns of a plan inside an expression."""
    if plan.output:
        return [each.expr_id for each in plan.output]
    for field in ("projectList", "aggregateExpressions"):
        if field in plan.fields:
            return [each.expr_id or 0 for each in plan.expressions(field)]
    return _list_output(plan.children[0]) if plan.children else []
