#!/usr/bin/env python3
"""Reads message rings from dumps. Written from docs/reference/formats.md alone; standard library only.

    reader.py ring PRODUCER CONSUMER   prints the messages that are committed and not released, as JSON
    reader.py vectors DIR              checks the golden vectors of DIR

A dump contains the bytes of a memory file, or is a .hex text of them: lines "offset  bytes", without
lines of zeros. The last line contains only the length.
"""

import json
import struct
import sys
from pathlib import Path


class Corrupt(Exception):
    """The data violates the format."""


def expect(true, what):
    if not true:
        raise Corrupt(what)


def load(path):
    if not str(path).endswith(".hex"):
        return Path(path).read_bytes()
    lines = Path(path).read_text().splitlines()
    memory = bytearray(int(lines[-1], 16))
    for line in lines[:-1]:
        offset, data = line.split(maxsplit=1)
        data = bytes.fromhex(data)
        memory[int(offset, 16):int(offset, 16) + len(data)] = data
    return bytes(memory)


def remainder(crc):
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc


REMAINDERS = [remainder(byte) for byte in range(256)]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = REMAINDERS[crc & 255 ^ byte] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def page(memory, magic):
    names = ("magic", "version", "header_len", "capacity", "align", "flags", "epoch", "process")
    expect(len(memory) >= 4096, "shorter than a page")
    found = dict(zip(names, struct.unpack_from("<8sIIQIIQI", memory, 0)))
    expect(found["magic"] == magic, f"magic {found['magic']}")
    expect(found["version"] == 1, f"version {found['version']}")
    for name in ("header_len", "capacity"):
        size = found[name]
        expect(size >= 4096 and size & (size - 1) == 0, f"{name} {size}")
    expect(found["capacity"] <= 1 << 30, f"capacity {found['capacity']}")
    expect(found["align"] == 64 and found["flags"] <= 1, "align or flags")
    (found["cursor"],) = struct.unpack_from("<Q", memory, 128)
    (found["closed"],) = struct.unpack_from("<I", memory, 528)
    return found


def bytes_at(memory, ring, position, length):
    """Returns the bytes at a position. A range that reaches the end of the data continues at its
    start."""
    start, first = ring["header_len"], position % ring["capacity"]
    piece = memory[start + first:start + min(first + length, ring["capacity"])]
    return piece + memory[start:start + length - len(piece)]


def frame(memory, ring, at, end):
    """Returns the frame at a position before `end`: its number, its payload, and its size in
    bytes."""
    header = bytes_at(memory, ring, at, 32)
    length, kind, flags, seq, crc = struct.unpack_from("<IHHQI", header)
    size = (32 + length + 63) // 64 * 64
    expect(kind == 1 and flags == ring["flags"], f"frame at {at}: kind or flags")
    expect(at + size <= end, f"frame at {at}: {length} bytes are not committed")
    payload = bytes_at(memory, ring, at + 32, length)
    expect(not flags or crc == crc32c(header[:16] + payload), f"frame at {at}: checksum")
    return seq, payload, size


def read(producer, consumer):
    head, tail = page(producer, b"THALWEGR"), page(consumer, b"THALWEGC")
    for name in ("header_len", "capacity", "flags", "epoch"):
        expect(head[name] == tail[name], f"{name} differs between the files")
    start, capacity = head["header_len"], head["capacity"]
    expect(len(producer) == start + capacity, "size of the producer's file")
    expect(len(consumer) == start, "size of the consumer's file")
    end, at = head["cursor"], tail["cursor"]
    expect(at <= end <= at + capacity and at % 64 == 0 and end % 64 == 0, "cursors")
    messages, number = [], None
    while at < end:
        seq, payload, size = frame(producer, head, at, end)
        expect(number is None or seq == number + 1, f"frame at {at}: number {seq}")
        messages.append({"seq": seq, "payload": payload.hex()})
        at, number = at + size, seq
    return {
        "epoch": head["epoch"],
        "capacity": capacity,
        "checksums": bool(head["flags"]),
        "head": end,
        "tail": tail["cursor"],
        "closed": [head["closed"], tail["closed"]],
        "messages": messages,
    }


def hello(message):
    expect(len(message) == 64, "a message of the handshake has 64 bytes")
    magic, version, kind, epoch, reason = struct.unpack_from("<8sIIQI", message)
    expect(magic == b"THALWEGH" and version == 1 and 1 <= kind <= 5, "no handshake of version 1")
    expect(not any(message[28:]), "bytes that must be zero")
    return {"kind": kind, "epoch": epoch, "reason": reason}


def vectors(directory):
    expected = json.loads((directory / "expected.json").read_text())
    for name, ring in expected["rings"].items():
        dumps = (load(directory / f"{name}.{side}.hex") for side in ("producer", "consumer"))
        found = read(*dumps)
        expect(found == ring, f"{name}: {found}")
    messages = load(directory / "handshake.hex")
    found = [hello(messages[at:at + 64]) for at in range(0, len(messages), 64)]
    expect(found == expected["handshake"], f"handshake: {found}")
    return {"rings": len(expected["rings"]), "handshake": len(found)}


def main(arguments):
    try:
        match arguments:
            case ["ring", producer, consumer]:
                answer = read(load(producer), load(consumer))
            case ["vectors", directory]:
                answer = vectors(Path(directory))
            case _:
                sys.exit(__doc__)
    except Corrupt as error:
        sys.exit(f"corrupt: {error}")
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
