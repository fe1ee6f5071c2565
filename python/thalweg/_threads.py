"""Threads of this package. They hold no arrays, so none of them can release room in a ring."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

_ours: set[int] = set()
# A forked child has none of these threads, and the system may reuse their identifiers.
os.register_at_fork(after_in_child=_ours.clear)


def begun(name: str, run: Callable[[], None]) -> threading.Thread:
    """Starts a daemon thread."""

    def counted() -> None:
        me = threading.get_ident()
        _ours.add(me)
        try:
            run()
        finally:
            _ours.discard(me)

    thread = threading.Thread(target=counted, name=name, daemon=True)
    thread.start()
    return thread


def others() -> int:
    """Returns the number of threads that run Python, without those of the package."""
    return len(sys._current_frames().keys() - _ours)
