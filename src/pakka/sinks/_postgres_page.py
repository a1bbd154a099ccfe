"""Whether a row of very many columns has room in one page of PostgreSQL, which no row may span.

Long values are moved out of the page and leave a pointer there, but short ones stay, and with some four hundred columns or
more they may be too many. What is counted here is the most that a row can take, so that a row which passes always fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pakka.sinks._numpy import Ints, is_valid_of, numbers_of
from pakka.sinks._postgres_type import PgType

PAGE_BYTES = 8160
"""What a row may take of the usual page of 8192 bytes."""
_HEADER_BYTES = 24
_MOVED_ABOVE = 24
"""Values of more bytes than this are moved out of the page, if need be."""
_FIXED = {
    **dict.fromkeys(("int8", "float8", "time", "timestamp", "timestamptz"), (8, 8)),
    **dict.fromkeys(("int4", "float4", "date", "enum"), (4, 4)),
    "int2": (2, 2),
    "bool": (1, 1),
    "uuid": (16, 1),
    "interval": (16, 8),
}
"""Width and alignment of what has a fixed width. All else has a header of one byte, if it is short."""


class PageRoom:
    """The room that rows take, for a table with columns of these types in this order."""

    def __init__(self, types: Mapping[str, PgType], filled: Sequence[str]) -> None:
        self.most: dict[str, int] = {}
        """The most that a value of each column takes, with what is left free before it."""
        is_aligned = 8
        for name, kind in types.items():
            width, alignment = _FIXED.get(kind.name, (_MOVED_ABOVE, 1))
            self.most[name] = width + (alignment - 1 if alignment > is_aligned else 0)
            is_aligned = alignment if kind.name in _FIXED and kind.name != "uuid" else 1
        self.fixed = {name for name, kind in types.items() if kind.name in _FIXED}
        self.base = _HEADER_BYTES + len(types) // 8 + 8
        self.base += sum(most for name, most in self.most.items() if name not in filled)
        self.is_roomy = self.base + sum(self.most[name] for name in filled) <= PAGE_BYTES

    def longest(self, columns: Mapping[str, pa.Array]) -> int:
        """The most that a row of these takes; 0 if there is room for all there can be."""
        if self.is_roomy:
            return 0
        rows = len(next(iter(columns.values())))
        totals: Ints = np.full(rows, self.base, np.int64)
        for name in self.most.keys() & columns.keys():
            array = columns[name]
            is_there = is_valid_of(array)
            if name in self.fixed:
                totals += np.where(is_there, self.most[name], 0)
            else:
                totals[is_there] += self._inline(name, array.drop_null())
        return int(totals.max(initial=0))

    def _inline(self, name: str, array: pa.Array) -> Ints:
        if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
            return np.full(len(array), self.most[name], np.int64)
        return np.minimum(numbers_of(pc.binary_length(array)).astype(np.int64) + 1, _MOVED_ABOVE)
