"""Warns about received messages that stay in use. The extension module calls this."""

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
    """The messages of one receiving end that occupy room in the ring."""

    def __init__(self, most: int) -> None:
        self._most = most
        #: The messages, oldest first, and the source lines that received them.
        self._held: list[tuple[weakref.ref[Message], str]] = []

    def check(self) -> None:
        """Warns if too many messages are held. Runs before the next message is requested, so that a raised warning loses no message."""
        self._held = [(message, where) for message, where in self._held if message() is not None]
        if len(self._held) > self._most:
            words = f"{len(self._held)} received messages are in use, more than hold={self._most}; the oldest one was received at {self._held[0][1]}"
            level, _ = _caller()
            warnings.warn(words, RuntimeWarning, stacklevel=level)

    def note(self, message: Message) -> None:
        """Records a received message."""
        if message.is_held:
            _, where = _caller()
            self._held.append((weakref.ref(message), where))


def _caller() -> tuple[int, str]:
    """Returns the line of the user's code that called this package: its `stacklevel` for `warnings.warn` in the caller of this function,
    and its file and line number."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
        level += 1
    return level, "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
