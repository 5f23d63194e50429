"""SQL types as Arrow's."""

from __future__ import annotations

import pyarrow as pa

from millpond.query.types import SqlType

_TYPES = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(),
    "BIGINT": pa.int64(), "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "STRING": pa.string(),
    "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us", "UTC"),
}  # fmt: skip


def arrow_type(type_: SqlType) -> pa.DataType:
    """As Spark hands them over.

    >>> from millpond.query.types import INT, decimal
    >>> arrow_type(INT), arrow_type(decimal(9, 2))
    (DataType(int32), Decimal128Type(decimal128(9, 2)))
    """
    if type_.name in _TYPES:
        return _TYPES[type_.name]
    precision, scale = type_.name.removeprefix("DECIMAL(").removesuffix(")").split(",")
    return pa.decimal128(int(precision), int(scale))
