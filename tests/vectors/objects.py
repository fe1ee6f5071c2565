#!/usr/bin/env python3
"""Writes and parses messages of objects. Written from docs/reference/formats.md alone; standard library only.

    objects.py vectors DIR     checks the golden vectors of DIR
    objects.py bless DIR       updates them
"""

import json
import struct
import sys
from pathlib import Path

from arrays import offset_of
from reader import Corrupt, expect

FIXED = struct.Struct("<8sHHIQ")


def write(pickle, buffers):
    """Returns the message of a pickle and its out-of-band buffers."""
    message = FIXED.pack(b"THALWEGO", 1, 0, len(buffers), len(pickle))
    message += struct.pack(f"<{len(buffers)}Q", *map(len, buffers)) + pickle
    for buffer in buffers:
        message = message.ljust(offset_of(len(message)), b"\0") + buffer
    return message


def read(message):
    """Returns the pickle in a message and its buffers. Raises Corrupt if the message is invalid."""
    expect(len(message) >= FIXED.size, "shorter than a header")
    magic, version, flags, count, length = FIXED.unpack_from(message)
    expect(magic == b"THALWEGO" and version == 1 and flags == 0, "magic, version or flags")
    expect(FIXED.size + 8 * count <= len(message), "a table longer than its message")
    lengths = struct.unpack_from(f"<{count}Q", message, FIXED.size)
    end = FIXED.size + 8 * count
    parts = []
    for part in (length, *lengths):
        start = offset_of(end) if parts else end
        end = start + part
        parts.append(message[start:end])
    expect(end == len(message), f"parts of {end} bytes in a message of {len(message)}")
    return parts[0], parts[1:]


def main(mode, folder):
    path = Path(folder) / "objects.json"
    vectors = json.loads(path.read_text())
    for vector in vectors:
        parts = bytes.fromhex(vector["pickle"]), [bytes.fromhex(buffer) for buffer in vector["buffers"]]
        if mode == "bless":
            vector["message"] = write(*parts).hex()
        message = bytes.fromhex(vector["message"])
        expect(write(*parts) == message, f"{vector['name']} is written otherwise")
        expect(read(message) == parts, f"{vector['name']} is read otherwise")
        # A flipped bit in the header results in other parts or an error, never in a read outside of the
        # message.
        for bit in range(8 * (FIXED.size + 8 * len(parts[1]))):
            wrong = bytearray(message)
            wrong[bit // 8] ^= 1 << bit % 8
            try:
                read(bytes(wrong))
            except Corrupt:
                pass
    if mode == "bless":
        path.write_text(json.dumps(vectors, indent=1) + "\n")
    print(f"{len(vectors)} objects")


if __name__ == "__main__":
    main(*sys.argv[1:])
