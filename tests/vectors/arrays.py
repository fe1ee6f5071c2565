#!/usr/bin/env python3
"""Writes and reads arrays in messages. Written from docs/reference/formats.md alone; standard library only.

    arrays.py vectors DIR     checks the golden vectors of DIR
    arrays.py bless DIR       updates them

Elements are read as numbers if `struct` supports their format. Otherwise their bytes are used.
"""

import json
import struct
import sys
from math import prod
from pathlib import Path

from reader import Corrupt, expect

FIXED = struct.Struct("<8sHBBBBHIIQ")


def offset_of(end):
    """Returns the first offset from `end` on that is 32 more than a multiple of 64."""
    return end + (32 - end) % 64


def write(array):
    """Returns the message of an array, which is given as in the vectors."""
    shape, name, elements = array["shape"], array["format"].encode(), bytes.fromhex(array["elements"])
    variable = struct.pack(f"<{len(shape)}Q", *shape) + name
    offset = offset_of(FIXED.size + len(variable))
    numbers = (array["encoding"], array["readonly"], len(shape), 0, len(name), offset, array["item"], len(elements))
    head = FIXED.pack(b"THALWEGA", 1, *numbers) + variable
    return head.ljust(offset, b"\0") + elements


def read(message):
    """Parses a message. Raises Corrupt if it is invalid."""
    expect(len(message) >= FIXED.size, "shorter than a header")
    found = FIXED.unpack_from(message)
    magic, version, encoding, flags, dimensions, zero, length, offset, item, total = found
    expect(magic == b"THALWEGA" and version == 1, "magic or version")
    expect(encoding in (1, 2) and flags <= 1 and zero == 0, "encoding or flags")
    expect(dimensions <= 64, f"{dimensions} dimensions")
    end = FIXED.size + 8 * dimensions + length
    expect(end <= len(message), "a header longer than its message")
    shape = list(struct.unpack_from(f"<{dimensions}Q", message, FIXED.size))
    name = message[end - length:end]
    outside = b"".join(name.split(b":")[::2])
    expect(encoding == 2 or name and not set(outside) & set(b"OP&X"), "a format of objects")
    expect(encoding == 1 or item == 8 and name[:3] in (b"<M8", b">M8", b"<m8", b">m8"), "no time")
    expect(item * prod(filter(None, shape)) < 1 << 63, "a shape that is too large")
    expect(total == item * prod(shape), "bytes")
    expect(offset == offset_of(end) and len(message) == offset + total, "offset or length")
    return {
        "encoding": encoding,
        "format": name.decode(),
        "item": item,
        "shape": shape,
        "readonly": flags == 1,
        "elements": message[offset:].hex(),
    }


def values(array):
    """Returns the elements as numbers; None if `struct` does not support their format."""
    order = {1: array["format"], 2: array["format"][0] + "q"}[array["encoding"]]
    try:
        return [value for value, in struct.iter_unpack(order, bytes.fromhex(array["elements"]))]
    except (struct.error, ValueError):
        return None


def main(mode, folder):
    path = Path(folder) / "arrays.json"
    vectors = json.loads(path.read_text())
    for vector in vectors:
        if mode == "bless":
            vector["message"] = write(vector["array"]).hex()
            vector["values"] = values(vector["array"])
        message = bytes.fromhex(vector["message"])
        expect(write(vector["array"]) == message, f"{vector['name']} is written otherwise")
        expect(read(message) == vector["array"], f"{vector['name']} is read otherwise")
        expect(values(vector["array"]) == vector["values"], f"{vector['name']}: values")
        # A flipped bit in the header results in another array or an error, never in a read outside of the message.
        for bit in range(8 * (len(message) - len(bytes.fromhex(vector["array"]["elements"])))):
            wrong = bytearray(message)
            wrong[bit // 8] ^= 1 << bit % 8
            try:
                read(bytes(wrong))
            except (Corrupt, UnicodeDecodeError):
                pass
    if mode == "bless":
        path.write_text(json.dumps(vectors, indent=1) + "\n")
    print(f"{len(vectors)} arrays")


if __name__ == "__main__":
    main(*sys.argv[1:])
