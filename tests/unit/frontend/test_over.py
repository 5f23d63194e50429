"""Window functions as they are read."""

from __future__ import annotations

import pytest

from millpond.frontend.parse import parse
from millpond.query.model import Windowed


@pytest.mark.parametrize(("function", "type_"), [("SUM", "DECIMAL(19,4)"), ("AVG", "DECIMAL(13,8)")])
def test_decimals_have_the_types_that_spark_gives_them(function: str, type_: str) -> None:
    [query] = parse(
        "CREATE STREAMING TABLE soil (moisture DECIMAL(9, 4), at TIMESTAMP);"
        f"SELECT {function}(moisture) OVER (ORDER BY at) FROM soil"
    )
    (table,) = query.tables.values()
    assert isinstance(table.block, Windowed)
    assert [str(each.type) for each in table.block.functions] == [type_]
