#!/usr/bin/env python3
"""One end of an exchange of messages. Written from docs/reference/formats.md alone; standard library only.

    partner.py send|receive ADDRESS COUNT [OPTION...]
    partner.py vectors DIR             generates the golden vectors again and compares

The arguments and the lines on standard output are those of crates/capi/tests/c/partner.c, but
ADDRESS is a path and CRC is "-".
"""

import json
import os
import platform
import signal
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True

from reader import Corrupt, expect, load
from ring import PATIENCE, REFUSE, Refused, ask, greeting, offer, say

U64 = (1 << 64) - 1
PATTERN = bytes((at * 7 ^ at >> 8) & 255 for at in range(4097))
XORED = [bytes(byte ^ number for byte in range(256)) for number in range(256)]


def message(number):
    """Returns the contents of a message, as partner.c documents them at its top."""
    state = (number + 1) * 0x9E3779B97F4A7C15 & U64 | 1

    def draw():
        nonlocal state
        state ^= state >> 12
        state ^= state << 25 & U64
        state ^= state >> 27
        return (state * 0x2545F4914F6CDD1D & U64) >> 33

    odd, which = (0, 1, 4095, 4097, 32, 33), draw() % 20
    length = odd[which] if which < 6 else draw() % 2000
    return PATTERN[:length].translate(XORED[number * 31 & 255])


def meet(address, listens):
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if listens:
        with link as listener:
            listener.bind(address)
            listener.listen()
            print("ready", flush=True)
            listener.settimeout(PATIENCE)
            link, _ = listener.accept()
            os.unlink(address)
    else:
        link.connect(address)
    peer = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    process, user, _ = struct.unpack("3i", peer)
    if user != os.geteuid():
        raise Refused(f"process {process} is of user {user}")
    return link


def opened(link, role, options):
    try:
        end = offer(link, options) if role == "send" else ask(link, options)
    except (Corrupt, Refused) as error:
        say(link, greeting(REFUSE, 0, 3 if isinstance(error, Refused) else 0))
        raise
    print("open", flush=True)
    return end


def send(producer, count):
    number = 0
    while (number < count or not count) and producer.send(message(number)):
        number += 1
    if count and number == count and producer.drain():
        return "done", number
    return producer.gone, producer.released()


def receive(consumer):
    while (payload := consumer.receive()) is not None:
        number = consumer.received - 1
        expect(payload == message(number), f"message {number} is not what was sent")
    return consumer.gone, consumer.received


def exchange(role, address, count, words):
    options = {"wait": "hybrid", "capacity": 65536, "checksums": "checksums" in words}
    for word in words:
        name, _, value = word.partition("=")
        if name == "wait" and value in ("spin", "block"):
            options["wait"] = value
        elif name == "capacity":
            options["capacity"] = int(value)
        elif word not in ("listen", "checksums", "untrusted"):  # untrusted has no effect: every message is copied out
            sys.exit(__doc__)
    try:
        end = opened(meet(address, "listen" in words), role, options)
    except (BrokenPipeError, ConnectionResetError):
        print(role, "died", 0, "-", 0)
        return
    how, messages = send(end, count) if role == "send" else receive(end)
    end.close()
    print(role, how, messages, "-", 0)


def written(ring):
    """Yields the memory files of a ring between two ends in this process, with the messages of the
    golden vectors."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    options = {"wait": "hybrid", "capacity": ring["capacity"], "checksums": ring["checksums"]}
    with ThreadPoolExecutor() as other:
        opening = other.submit(offer, near, options)
        consumer, producer = ask(far, options), opening.result()
    # The messages of the second ring wrap. Three of them are released before the last three are
    # sent.
    lengths = [1000, 1000, 1000, 200, 1000, 1, 64] if ring["tail"] else [0, 5, 32, 33, 300]
    for number, length in enumerate(lengths):
        while number == 4 and consumer.tail < ring["tail"]:
            consumer.receive()
        producer.send(bytes((number * 17 + at) & 255 for at in range(length)))
    for side in (producer, consumer):
        golden = bytearray(side.own.bytes)
        struct.pack_into("<QI", golden, 32, ring["epoch"], 0)
        yield golden


def vectors(directory):
    expected = json.loads((directory / "expected.json").read_text())
    for name, ring in expected["rings"].items():
        for side, golden in zip(("producer", "consumer"), written(ring)):
            same = golden == load(directory / f"{name}.{side}.hex")
            expect(same, f"{name}.{side} is written otherwise")
    said = b"".join(greeting(**message) for message in expected["handshake"])
    expect(said == load(directory / "handshake.hex"), "the handshake is written otherwise")
    return {"rings": len(expected["rings"]), "handshake": len(expected["handshake"])}


def main(arguments):
    if platform.machine() != "x86_64":
        sys.exit("partner.py needs x86-64: ring.py says why")
    signal.alarm(600)  # ends a run that hangs
    try:
        match arguments:
            case ["send" | "receive" as role, address, count, *words]:
                exchange(role, address, int(count), words)
            case ["vectors", directory]:
                print(json.dumps(vectors(Path(directory))))
            case _:
                sys.exit(__doc__)
    except (Corrupt, Refused, OSError) as error:
        sys.exit(f"partner.py: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
