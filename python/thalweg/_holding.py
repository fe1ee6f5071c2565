"""Who is told that more messages are in use than was meant, and where the oldest was received. The extension module calls this."""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from pathlib import Path
from types import FrameType

from thalweg._native import Message

_OURS = str(Path(__file__).parent) + os.sep


class Holding:
    """The messages of one receiving end whose memory in the ring is in use."""

    def __init__(self, most: int) -> None:
        self._most = most
        #: The oldest first, and the line that received it.
        self._held: list[tuple[weakref.ref[Message], str]] = []

    def check(self) -> None:
        """Before the next is asked for: what a warning raises then loses no message."""
        self._held = [(message, where) for message, where in self._held if message() is not None]
        if len(self._held) > self._most:
            words = f"{len(self._held)} received messages are in use, more than hold={self._most}; the oldest was received at {self._held[0][1]}"
            level, _ = _caller()
            warnings.warn(words, RuntimeWarning, stacklevel=level)

    def note(self, message: Message) -> None:
        """One was received."""
        if message.is_held:
            _, where = _caller()
            self._held.append((weakref.ref(message), where))


def _caller() -> tuple[int, str]:
    """The line outside of this package that called it: the level for `warnings.warn`, called by who calls this, and its name."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
        level += 1
    return level, "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
