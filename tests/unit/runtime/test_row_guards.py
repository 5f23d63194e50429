"""For which rows a derived column is evaluated."""

from __future__ import annotations

import pytest

from millpond.frontend.parse import parse
from millpond.runtime.row_guards import find_guard

TABLES = "CREATE STREAMING TABLE S (a INT, b INT, s STRING); CREATE STREAMING TABLE T (a INT, c INT);"
NOT_ZERO = "(`b` <> CAST(0 AS INT))"
GUARDS = {
    "SELECT a + length(s) FROM S": None,
    "SELECT length(s) FROM S WHERE b <> 0": NOT_ZERO,
    "SELECT b FROM S WHERE b <> 0 AND length(s) > 2": NOT_ZERO,
    "SELECT b FROM S WHERE length(s) > 2 AND b <> 0": None,
    "SELECT length(s) FROM S WHERE length(s) > 2 AND b <> 0": None,
    "SELECT b FROM S WHERE b = 0 OR length(s) > 2": "((`b` = CAST(0 AS INT)) IS NOT TRUE)",
    "SELECT length(s) FROM S WHERE b = 0 OR length(s) > 2": None,
    "SELECT b FROM S WHERE NOT (b <> 0 AND length(s) > 2)": f"({NOT_ZERO} IS NOT FALSE)",
    "SELECT length(S.s) FROM S, T WHERE S.a = T.a AND S.b <> 0 AND T.c > 3": NOT_ZERO,
    "SELECT length(x.s) FROM S x, S y WHERE x.b <> 0 AND x.a = y.a": NOT_ZERO,
    "SELECT length(x.s) FROM S x, S y WHERE x.b <> 0 AND y.a > length(y.s)": None,
    "SELECT length(s) FROM S WHERE b <> 0 UNION ALL SELECT length(s) FROM S WHERE b > 9": (
        f"({NOT_ZERO} OR (`b` > CAST(9 AS INT)))"
    ),
    "SELECT length(s) FROM S WHERE s LIKE 'a%'": "((`s` LIKE 'a%') = TRUE)",
    "SELECT a FROM T WHERE EXISTS (SELECT 1 FROM S WHERE S.b <> 0 AND S.a = T.a AND length(s) > 1)": NOT_ZERO,
}


@pytest.mark.parametrize("query", GUARDS)
def test_guard(query: str) -> None:
    [parsed] = parse(TABLES + query)
    table = parsed.tables["S"]
    [column] = [each for each in table.derived if each.name == "LENGTH(s)"]
    assert find_guard(parsed, table, column) == GUARDS[query]
