"""What the translation of a plan shares between operators: its tables, names, and subqueries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from millpond.frontend.spark_names import quote_name
from millpond.spark.plans.catalog import PlanCatalog, make_column, make_unique, name_columns
from millpond.spark.plans.expressions import Definition, ExpressionRenderer, PlanContext, WindowColumn
from millpond.spark.plans.nodes import Attribute, PlanExpression, PlanNode
from millpond.spark.plans.selects import FromItem, SelectText
from millpond.spark.plans.sql_text import Sql
from millpond.spark.plans.time_windows import find_time_window

Needed = frozenset[int]
# The key of the rank of a row among the columns of a SELECT.
RANK = -1


class PlanScope:
    """The translation of a plan so far.

    ``below`` are plans whose rows an opaque function takes.  ``windows`` are streams with the stretch of
    time, in ms, for which ``dropDuplicatesWithinWatermark`` keeps their keys.  ``limited`` is a query of the
    rows that a LIMIT lets through; the streams that end with it are ``ended``.  ``view`` is the view that the
    next table is read from.
    """

    def __init__(self, operators: Callable[[PlanScope, PlanNode, Needed, str | None], SelectText]) -> None:
        self.catalog = PlanCatalog()
        self.functions: dict[str, str] = {}
        self.below: list[PlanNode] = []
        self.windows: list[tuple[str, int]] = []
        self.limited: str | None = None
        self.ended: set[str] = set()
        self.ctes: dict[int, PlanNode] = {}
        self.view: str | None = None
        self._types: dict[int, Attribute] = {}
        self._outer: list[Mapping[int, Definition]] = []
        self._operators = operators

    def translate(self, node: PlanNode, needed: Needed, hint: str | None = None) -> SelectText:
        """The rows of a node; ``needed`` are the columns that are used of them, ``hint`` is their alias."""
        self._types.update({each.expr_id: each for each in node.output})
        return self._operators(self, node, needed, hint)

    def read_table(self, node: PlanNode, alias: str | None) -> SelectText:
        """A stream, or a relation: every plan without a stream is one."""
        table = self.catalog.declare(node, self.view or (None if node.source else alias))
        self.view = None
        alias = self.catalog.read(table, alias)
        known = {each.expr_id: make_column(alias, name) for name, each in name_columns(node)}
        return SelectText((FromItem(quote_name(table.name), alias),), known)

    def define(
        self, block: SelectText, expressions: Iterable[tuple[PlanExpression, int | None]]
    ) -> SelectText:
        """The block with these columns."""
        columns: dict[int, Definition] = {}
        renderer = self.make_renderer(block)
        for expression, expr_id in expressions:
            if expr_id is None:
                continue
            window = find_time_window(expression)
            if window is None:
                known = self._types.get(expr_id)
                columns[expr_id] = renderer.define(expression, known.type if known is not None else None)
                continue
            time = self.make_time_column(block, renderer.render(window.time), "event_time")
            self.catalog.set_window_time(time.column)
            whole = window.render(time.text)
            columns[expr_id] = WindowColumn(Sql(f"{whole}.start"), Sql(f"{whole}.end"), Sql(whole))
        return replace(block, columns=columns)

    def make_time_column(self, block: SelectText, time: Sql, name: str) -> Sql:
        """A column of a stream for a timestamp; a computed one is a column of its own."""
        alias = self.find_stream(block)
        if time.column is not None or alias is None or not block.is_plain:
            return time
        return self.catalog.add_column(alias, name, "timestamp", time.text)

    def prepare(self, block: SelectText) -> SelectText:
        """The block, or one that selects from it, to which further operators can be added."""
        if block.limit is not None:
            return self._take_limited(block)
        return replace(block, order=()) if block.is_plain else self.wrap(block)

    def _take_limited(self, block: SelectText) -> SelectText:
        """The rows that a LIMIT lets through, which come to an end, as a relation."""
        ids = sorted(block.columns)
        names = make_unique(self.name_of(key) for key in ids)
        self.limited = block.render([(block.columns[i], n) for i, n in zip(ids, names, strict=True)])
        self.ended |= {
            table.name for item in block.items if (table := self.catalog.find(item.alias)) is not None
        }
        columns = [Attribute(n, i, self._type_of(i)) for i, n in zip(ids, names, strict=True)]
        return self.read_table(PlanNode("LocalRelation", output=tuple(columns)), "first_rows")

    def wrap(self, block: SelectText) -> SelectText:
        """A SELECT from the block as a subquery."""
        output: list[tuple[Definition, str]] = []
        exports: dict[int, tuple[str, ...]] = {}
        for key, definition in block.columns.items():
            base = "row_number" if key == RANK else self.name_of(key)
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
        return self.make_subquery(block.render(output), exports)

    def make_subquery(self, text: str, exports: Mapping[int, tuple[str, ...]]) -> SelectText:
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
        self._outer.append(columns)
        try:
            ids = _list_output(plan)
            block = self.translate(plan, frozenset(ids))
            return block.render([(block.columns[key], None) for key in ids])
        finally:
            self._outer.pop()

    def make_renderer(self, block: SelectText) -> ExpressionRenderer:
        known = {key: each for columns in self._outer for key, each in columns.items()}
        around = PlanContext(
            self._declare_function,
            lambda name, type_: self._make_fresh_column(block, name, type_),
            self._render_subquery,
            lambda name, type_, text: self._make_parsed_column(block, name, type_, text),
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
        alias = self.find_stream(block)
        if alias is not None and block.group is None:
            is_clock = name.startswith(("current", "now", "local"))  # the same for all rows of a batch
            return self.catalog.add_column(alias, name, type_, name if is_clock else None)
        return Sql(f"CAST(NULL AS {type_.upper()})")

    def _make_parsed_column(self, block: SelectText, name: str, type_: str, text: str) -> Sql | None:
        """A column of the stream whose text is parsed; None if it is parsed later than in its rows."""
        aliases = (item.alias for item in block.items if f"{quote_name(item.alias)}." in text)
        alias = next((each for each in aliases if self.catalog.find(each) is not None), None)
        if alias is None or not block.is_plain or type_.startswith(("struct", "array", "map")):
            return None
        return self.catalog.add_column(alias, name, type_, text)

    def find_stream(self, block: SelectText) -> str | None:
        """The first stream that a block reads without a subquery."""
        tables = ((item.alias, self.catalog.find(item.alias)) for item in block.items)
        return next((alias for alias, table in tables if table is not None and table.streaming), None)

    def name_of(self, expr_id: int) -> str:
        known = self._types.get(expr_id)
        return known.name if known is not None else f"column_{expr_id}"

    def _type_of(self, expr_id: int) -> str:
        known = self._types.get(expr_id)
        return known.type if known is not None else "string"


def columns_of(expressions: Iterable[PlanExpression]) -> Needed:
    """The columns that some expressions read."""
    return frozenset(column for each in expressions for column in each.columns)


def list_texts(definition: Definition) -> list[str]:
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
