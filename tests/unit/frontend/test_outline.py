"""The outline of a text: where its clauses are, for texts that are hard to divide."""

from __future__ import annotations

from millpond.frontend.outline import SelectOutline, Span, outline_text


def select(text: str, number: int = 0) -> SelectOutline:
    return outline_text(text).queries[0][number]


def show(text: str, spans: tuple[Span, ...]) -> list[str]:
    return [span.of(text) for span in spans]


def test_declarations() -> None:
    text = """\
CREATE STREAMING TABLE `web clicks` (
  page STRING CHECK (page IN ('a,b', 'c')), -- the page
  `from` DECIMAL(10, 2) NOT NULL,
  CHECK (page <> 'x')
) USING json OPTIONS (path 'x') TBLPROPERTIES ('rate' = '5 per second');
CREATE TABLE pages (page STRING);
CREATE VIEW v AS SELECT page FROM pages;
SELECT 1 FROM v"""
    outline = outline_text(text)
    clicks, pages = outline.tables
    assert (clicks.name, pages.name) == ("web clicks", "pages")
    assert [c.name for c in clicks.columns] == ["page", "from"]
    assert clicks.columns[0].span.of(text) == "page STRING CHECK (page IN ('a,b', 'c'))"
    assert clicks.columns[1].span.of(text) == "`from` DECIMAL(10, 2) NOT NULL"
    assert clicks.streaming is not None and clicks.streaming.of(text) == "STREAMING "
    assert clicks.properties is not None and clicks.properties.of(text).startswith("TBLPROPERTIES ('rate'")
    assert pages.streaming is None and pages.properties is None
    assert len(outline.views) == 1 and len(outline.queries) == 1


def test_clauses_of_a_select() -> None:
    text = (
        "SELECT a, EXTRACT(HOUR FROM ts) h, a IS DISTINCT FROM b, COUNT(DISTINCT a) FILTER (WHERE b > 1) "
        "FROM s WHERE a = 1 AND (b = 2 OR c = 3) GROUP BY a, f(x, y) HAVING COUNT(DISTINCT b) > 1 LIMIT 5"
    )
    found = select(text)
    assert len(found.items) == 4
    assert found.where is not None and found.where.of(text) == "a = 1 AND (b = 2 OR c = 3)"
    assert not found.is_disjunction
    assert show(text, found.group_by) == ["a", "f(x, y)"]
    assert found.group_clause is not None and found.group_clause.of(text) == "GROUP BY a, f(x, y)"
    assert [argument.of(text) for _, argument in found.counts] == ["a", "b"]
    assert text[: found.from_end].endswith("FROM s")


def test_entries_of_from() -> None:
    text = (
        "SELECT 1 FROM shop.orders AS o JOIN payments p ON p.id = o.id OR p.x = 1 "
        "LEFT OUTER JOIN `returns` r ON r.id = o.id, (SELECT * FROM t, u) sub CROSS JOIN v JOIN w USING (id)"
    )
    sources = select(text).sources
    assert [s.table for s in sources] == ["orders", "payments", "returns", None, "v", "w"]
    assert [s.alias for s in sources] == ["o", "p", "r", "sub", "v", "w"]
    assert [s.inner for s in sources] == [True, True, False, True, True, False]
    assert [s.on_is_disjunction for s in sources] == [False, True, False, False, False, False]
    assert [s.on.of(text) if s.on else None for s in sources][:3] == [
        None,
        "p.id = o.id OR p.x = 1",
        "r.id = o.id",
    ]
    assert sources[3].span.of(text) == ", (SELECT * FROM t, u) sub"
    assert sources[1].named.of(text) == "payments p"


def test_nested_selects_are_selects_of_their_own() -> None:
    text = (
        "WITH c AS (SELECT a, LAG(b) OVER (PARTITION BY a, d ORDER BY ts) l FROM s) SELECT "
        "COUNT(DISTINCT l) FROM c WHERE EXISTS (SELECT COUNT(DISTINCT z) FROM t WHERE t.a = c.a) "
        "UNION SELECT 2 FROM u WHERE q = 1"
    )
    inner, outer, exists, last = outline_text(text).queries[0]
    assert [show(text, each) for each in inner.partitions] == [["a", "d"]] and not outer.partitions
    assert len(outer.counts) == 1 and len(exists.counts) == 1
    assert outer.where is not None and outer.where.of(text).endswith("t.a = c.a)")
    assert last.span.of(text) == "SELECT 2 FROM u WHERE q = 1"
    assert [(name.alias, name.column) for name in exists.compared] == [(None, "t"), ("t", "a"), ("c", "a")]
