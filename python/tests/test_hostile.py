"""A peer that sends invalid array headers: the result is Corrupt, never a read out of bounds, and the ring stays
usable."""

import fcntl
import json
import os
import socket
import struct
import threading
from contextlib import ExitStack
from pathlib import Path

import arrays
import numpy as np
import pytest
import ring
import thalweg
from conftest import PATIENCE, ROOT
from hypothesis import given
from hypothesis import strategies as st

VECTORS = json.loads((ROOT / "tests" / "vectors" / "arrays.json").read_text())
MESSAGES = [bytes.fromhex(vector["message"]) for vector in VECTORS]


def message(shape: list[int], item: int, name: bytes = b"<d", encoding: int = 1, total: int | None = None) -> bytes:
    """Returns a message with these header fields and eight elements of one byte."""
    variable = struct.pack(f"<{len(shape)}Q", *shape) + name
    offset = arrays.offset_of(32 + len(variable))
    fixed = arrays.FIXED.pack(
        b"THALWEGA", 1, encoding, 0, len(shape), 0, len(name), offset, item, 8 if total is None else total
    )
    return (fixed + variable).ljust(offset, b"\0") + bytes(8)


LIES = {
    "elements that overflow": message([1 << 61, 1 << 61], 8),
    "elements that overflow to what is there": message([1 << 61, 8, 1], 1),
    "10^18 elements": message([10**18], 1),
    "10^18 elements, and told so": message([10**18], 1, total=10**18),
    "no elements of a shape that overflows": message([0, 1 << 62, 1 << 62], 8, total=0),
    "a length over 2^63": message([1 << 63], 1),
    "more elements than bytes": message([2], 8),
    "fewer elements than bytes": message([4], 1, name=b"B"),
    "objects": message([1], 8, name=b"O"),
    "objects in a structure": message([1], 8, name=b"T{O:a:}"),
    "a pointer": message([1], 8, name=b"P"),
    "a pointer to": message([1], 8, name=b"&d"),
    "a function": message([1], 8, name=b"X{}"),
    "an element of another size": message([2], 4),
    "a type that nobody knows": message([1], 8, name=b"~~~"),
    "an array as an element": message([1], 8, name=b"(2)f"),
    "a type that does not end": message([1], 8, name=b"T{d:a"),
    "a name that does not end": message([1], 8, name=b"T{d:" + b"a" * 5000),
    "deep structures": message([1], 8, name=b"T{" * 5000 + b"d" + b"}" * 5000),
    "no format": message([8], 1, name=b""),
    "a zero in the format": message([1], 8, name=b"d\0d"),
    "no UTF-8": message([1], 8, name=b"T{d:\xff\xfe:}"),
    "format is not a numpy time type of 8 bytes": message([1], 8, name=b"<f8", encoding=2),
    "a time of an unknown unit": message([1], 8, name=b"<M8[parsec]", encoding=2),
    "a time that is evaluated": message([1], 8, name=b"<M8[s],O", encoding=2),
    "another encoding": message([1], 8, encoding=3),
    "65 dimensions": message([1] * 65, 8),
    "nothing": b"",
    "the magic alone": b"THALWEGA",
    "no header": bytes(200),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("trusted", [True, False])
def test_a_lie_is_told_and_the_next_message_is_received(lie: str, trusted: bool) -> None:
    out, into = thalweg.pair(trusted=trusted)
    out.send_bytes(LIES[lie])
    out.send(np.arange(3))
    with pytest.raises(thalweg.Corrupt):
        into.receive()
    # Corrupt, or ValueError: numpy rejects an unknown type only after the message was received. Then this call finds
    # the next message, which does not fit.
    with pytest.raises((thalweg.Corrupt, ValueError)):
        into.receive_into(np.empty(1))
    while True:
        try:
            array = into.receive(timeout=0)
            break
        except thalweg.Corrupt:
            assert into.receive_bytes() == LIES[lie]
    assert array.tolist() == [0, 1, 2]


@given(st.data())
def test_any_bits_are_an_array_within_the_message_or_corrupt(data: st.DataObject) -> None:
    wrong = bytearray(data.draw(st.sampled_from(MESSAGES)))
    for _ in range(data.draw(st.integers(1, 3))):
        bit = data.draw(st.integers(0, 8 * min(len(wrong), 128) - 1))
        wrong[bit // 8] ^= 1 << bit % 8
    try:
        expected = arrays.read(bytes(wrong))
    except (arrays.Corrupt, UnicodeDecodeError):
        expected = None
    out, into = thalweg.pair()
    out.send_bytes(wrong)
    try:
        array = into.receive()
    except thalweg.Corrupt:
        # thalweg also rejects some formats that the independent reader accepts.
        return
    assert expected is not None and array.tobytes().hex() == expected["elements"]


def visited(name: str, stay: ExitStack) -> None:
    """Connects several times and sends invalid messages. Then disconnects or stays."""
    fixed = struct.Struct("<8sIIQII32x")
    words = [b"\1", b"GET / HTTP/1.1", bytes(64), *(fixed.pack(b"THALWEGH", 1, kind, 7, 0, 0) for kind in range(1, 7))]
    for word in (None, *words):
        for stays in (True, False):
            visitor = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            visitor.connect(name)
            if word is not None:
                visitor.send(word)
            if word in words[:3] and stays:
                stay.enter_context(visitor)
            else:
                visitor.close()


def changed(data: st.DataObject, whole: bytes, most: int) -> bytes:
    """Returns a copy with some bits flipped."""
    wrong = bytearray(whole)
    for bit in data.draw(st.lists(st.integers(0, 8 * len(whole) - 1), max_size=most)):
        wrong[bit // 8] ^= 1 << bit % 8
    return bytes(wrong)


@given(st.data())
def test_any_handshake_is_a_ring_or_an_error(data: st.DataObject) -> None:
    sizes = (4096, 8192)
    page = struct.pack("<8sIIQIIQI", b"THALWEGR", 1, *sizes, 64, 0, 7, os.getpid()).ljust(64, b"\0")
    usual = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | ring.FUTURE_WRITE | fcntl.F_SEAL_SEAL
    # Draws all values before it creates resources, because a draw may raise an exception.
    page = changed(data, page, 2)
    offer, ready = (changed(data, ring.greeting(kind, 7), 1) for kind in (ring.OFFER, ring.READY))
    size = data.draw(st.one_of(st.just(sum(sizes)), st.integers(0, 20_000)))
    seals = data.draw(st.one_of(st.just(usual), st.integers(0, 31)))
    leaves = data.draw(st.booleans())
    near, far = thalweg.link()
    fd = os.memfd_create("liar", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with near, far:
            os.truncate(fd, size)
            os.pwrite(fd, page, 0)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            socket.send_fds(far, [offer], [fd])
            far.send(ready)
            if leaves:
                far.close()
            with thalweg.take_over(near) as into:
                into.receive_bytes(timeout=0.01)
    except thalweg.Error as error:
        assert str(error)
    else:
        pytest.fail("a message came, and none was sent")
    finally:
        os.close(fd)


@pytest.mark.parametrize("listens", ["offer", "gather", "broadcast"])
def test_bad_visitors_are_refused_and_forgotten(listens: str, tmp_path: Path) -> None:
    name = str(tmp_path / "visited")
    with ExitStack() as stay, getattr(thalweg, listens)(name) as end:
        visited(name, stay)
        if listens == "gather":
            with thalweg.join(name) as out:
                sending = threading.Thread(target=out.send, args=(np.arange(3),))
                sending.start()
                assert end.receive(timeout=PATIENCE).sum() == 3
                sending.join()
            return
        into = thalweg.take(name) if listens == "offer" else thalweg.subscribe(name)
        received = []
        receiving = threading.Thread(target=lambda: received.append(into.receive(timeout=PATIENCE).sum()))
        receiving.start()
        while receiving.is_alive():
            end.send(np.arange(3), **({"timeout": PATIENCE} if listens == "offer" else {}))
            receiving.join(0.01)
        assert received == [3]
        into.close()
