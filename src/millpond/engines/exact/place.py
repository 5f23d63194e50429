"""Where a row lies in a synopsis that is cut into chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Place:
    """Where a row lies in the column by which a synopsis is cut, counted from 0, out of its key."""

    column: str
    below: int
    radix: int
    start: int

    def of(self, table: pa.Table) -> NDArray[np.int64]:
        key = table.column(self.column).to_numpy().astype(np.int64, copy=False)
        return np.asarray(key // self.below % self.radix + self.start)
