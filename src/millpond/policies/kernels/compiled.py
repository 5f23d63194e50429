"""Compilation to machine code.  The only module that imports the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache

F = TypeVar("F", bound=Callable[..., Any])


class _RenewableCache(FunctionCache):
    """Numba's cache on disk, emptied if an earlier version wrote it with classes that no longer exist."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except (AttributeError, ImportError):
            self.flush()  # type: ignore[no-untyped-call]
            return None


def _compile(function: F, **options: Any) -> F:
    dispatcher = numba.njit(nogil=True, **options)(function)
    dispatcher._cache = _RenewableCache(function)  # type: ignore[no-untyped-call]
    return cast(F, dispatcher)


def compiled(function: F) -> F:
    """A function that Numba compiles on its first call and reads from its cache in later processes."""
    return _compile(function)


def inlined(function: F) -> F:
    """A helper that LLVM inlines into compiled functions.

    It takes named tuples of arrays, must not allocate arrays, and works on arrays that its caller owns.  So
    reference counting is off (``_nrt``), which doubles the speed of the loops.
    """
    return _compile(function, forceinline=True, _nrt=False)
