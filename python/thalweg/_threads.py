"""Threads of the package: none of them holds an array, so who waits for one to be let go of does not count on them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

_ours: set[int] = set()
# A child has none of them, and another thread may get the number of one.
os.register_at_fork(after_in_child=_ours.clear)


def begun(name: str, run: Callable[[], None]) -> threading.Thread:
    """A thread that does not keep the interpreter from ending."""

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
    """Threads that run Python, without ours."""
    return len(sys._current_frames().keys() - _ours)
