"""A state store in memory, with versions to go back to."""

from __future__ import annotations


class MemoryStore:
    """Bytes by integer key, as a shard of the state store holds them."""

    def __init__(self, values: dict[int, bytes] | None = None) -> None:
        self.values = dict(values or {})
        self.written = 0  # bytes

    def get_value(self, key: int) -> bytes | None:
        return self.values.get(key)

    def put_value(self, key: int, data: bytes) -> None:
        self.values[key] = data
        self.written += len(data)

    def remove_value(self, key: int) -> None:
        del self.values[key]
