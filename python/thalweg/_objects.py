"""Objects in messages, pickled with protocol 5. The memory of their arrays is stored behind the pickle, not in it.

docs/reference/formats.md describes the bytes. A pickle can run any code in the process that loads it.
"""

from __future__ import annotations

import pickle
from typing import Any

from thalweg._native import Message, object_head, object_parts

_FIXED = 24
_TABLE = 8
_COUNT = slice(12, 16)


class Parted:
    """A pickled object. A repeated attempt to send it does not pickle it again."""

    def __init__(self, obj: object) -> None:
        self.buffers: list[memoryview] = []
        # Every buffer here has a flat view, because numpy pickles an array that is not contiguous by its elements.
        self.pickle = pickle.dumps(obj, protocol=5, buffer_callback=lambda buffer: self.buffers.append(buffer.raw()))

    def __len__(self) -> int:
        """Returns an upper bound of the size of the message in bytes."""
        return _FIXED + len(self.pickle) + sum(buffer.nbytes + 64 + _TABLE for buffer in self.buffers)


def parted(obj: object) -> tuple[bytes, list[memoryview]]:
    """Returns the pickle of an object, and its out-of-band buffers. The extension module calls this."""
    found = obj if isinstance(obj, Parted) else Parted(obj)
    return found.pickle, found.buffers


def loaded(message: Message | memoryview, ranges: list[tuple[int, int]]) -> Any:
    """Returns the object in a message, given the ranges of its pickle and buffers."""
    view = memoryview(message)
    try:
        (start, end), *buffers = ranges
        return pickle.loads(view[start:end], buffers=[view[start:end] for start, end in buffers])
    finally:
        # Otherwise the traceback of a stored exception would keep these variables alive, and with them the message in its
        # ring.
        del message, view


def dumps_oob(obj: object) -> list[bytes | memoryview]:
    """Returns the message of an object, as `send_object` sends it, in pieces. Their concatenation is the message.

    The pieces of arrays are views of their memory, without a copy, for `socket.sendmsg`, `os.writev` or `b"".join`. If an
    array changes before the pieces are sent, the changed contents are sent.
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
    """Returns the object in a message of `dumps_oob` or `send_object`.

    Its arrays are views of the memory of `message`, and read-only if `message` is read-only. They are aligned to 64 bytes
    if byte 32 of the message is. Raises Corrupt if the message is invalid.

    Use it only for messages of senders that may run any code in this process.
    """
    view = memoryview(message).cast("B")
    count = int.from_bytes(view[_COUNT], "little")
    return loaded(view, object_parts(bytes(view[: _FIXED + _TABLE * count]), view.nbytes))
