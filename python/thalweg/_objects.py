"""Objects in messages: pickled by protocol 5, with the memory of their arrays left out of the pickle and laid behind it.

docs/reference/formats.md has the bytes. A pickle can run anything in the process that loads it.
"""

from __future__ import annotations

import pickle
from typing import Any

from thalweg._native import Message, object_head, object_parts

_FIXED = 24
_TABLE = 8
_COUNT = slice(12, 16)


class Parted:
    """An object that is pickled already, so that it can be sent again when there is room."""

    def __init__(self, obj: object) -> None:
        self.buffers: list[memoryview] = []
        # What does not lie together has no flat view, and is no buffer to be left out: numpy pickles it by its elements.
        self.pickle = pickle.dumps(obj, protocol=5, buffer_callback=lambda buffer: self.buffers.append(buffer.raw()))

    def __len__(self) -> int:
        """Bytes of its message, or a few more than that."""
        return _FIXED + len(self.pickle) + sum(buffer.nbytes + 64 + _TABLE for buffer in self.buffers)


def parted(obj: object) -> tuple[bytes, list[memoryview]]:
    """The pickle of an object, and the buffers that it left out. The extension module calls this."""
    found = obj if isinstance(obj, Parted) else Parted(obj)
    return found.pickle, found.buffers


def loaded(message: Message | memoryview, ranges: list[tuple[int, int]]) -> Any:
    """The object in a message, whose pickle and buffers lie there."""
    view = memoryview(message)
    try:
        (start, end), *buffers = ranges
        return pickle.loads(view[start:end], buffers=[view[start:end] for start, end in buffers])
    finally:
        # An exception that is kept keeps these names, and would keep the message in its ring.
        del message, view


def dumps_oob(obj: object) -> list[bytes | memoryview]:
    """The message of an object, as `send_object` sends it, in pieces: one behind the other they are the message.

    The pieces that hold arrays are views of their memory, which is not copied: for `socket.sendmsg`, `os.writev`, or
    `b"".join`. What is written to the arrays before they are sent is sent.
    """
    found = Parted(obj)
    head = object_head(len(found.pickle), [buffer.nbytes for buffer in found.buffers])
    pieces: list[bytes | memoryview] = [head + found.pickle]
    end = len(head) + len(found.pickle)
    for buffer in found.buffers:
        gap = (32 - end) % 64
        if gap:
            pieces.append(bytes(gap))
        if buffer.nbytes:
            pieces.append(buffer)
        end += gap + buffer.nbytes
    return pieces


def loads_oob(message: bytes | bytearray | memoryview) -> Any:
    """The object in a message that `dumps_oob` or `send_object` made.

    Its arrays are views of the memory of `message`: read-only where that is, and changing with it. Where its byte 32 lies
    at a multiple of 64, so do they. Corrupt if it is no such message.

    Only for messages of who may run anything in this process.
    """
    view = memoryview(message).cast("B")
    count = int.from_bytes(view[_COUNT], "little")
    return loaded(view, object_parts(bytes(view[: _FIXED + _TABLE * count]), view.nbytes))
