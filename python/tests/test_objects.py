"""Objects in one message, whose arrays are not pickled. Also tests invalid messages of objects."""

import array
import contextlib
import gc
import json
import pickle
import socket
import subprocess
import sys

import numpy as np
import objects
import pytest
import thalweg
from conftest import PATIENCE, ROOT, Start, ended
from hypothesis import given
from hypothesis import strategies as st
from test_arrays import arrays

VECTORS = json.loads((ROOT / "tests" / "vectors" / "objects.json").read_text())

PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary())
NESTED = st.recursive(
    st.one_of(PLAIN, arrays()),
    lambda inside: st.one_of(
        st.lists(inside, max_size=4), st.tuples(inside, inside), st.dictionaries(st.text(), inside, max_size=4)
    ),
    max_leaves=12,
)


def same(sent: object, received: object) -> bool:
    """Returns True if both are equal, including the bits of every array."""
    if isinstance(sent, np.ndarray | np.generic):
        assert isinstance(received, np.ndarray | np.generic)
        assert (sent.dtype.newbyteorder("="), sent.shape) == (received.dtype.newbyteorder("="), received.shape)
        # Pickles the sent object too, because for a non-contiguous array numpy's pickle converts to the native
        # byte order.
        sent = pickle.loads(pickle.dumps(sent, protocol=5))
        return (sent.dtype, sent.shape, sent.tobytes()) == (received.dtype, received.shape, received.tobytes())
    assert type(sent) is type(received)
    if isinstance(sent, list | tuple) and isinstance(received, list | tuple):
        return len(sent) == len(received) and all(map(same, sent, received))
    if isinstance(sent, dict) and isinstance(received, dict):
        return list(sent) == list(received) and all(map(same, sent.values(), received.values()))
    return sent == received


@given(NESTED, st.booleans())
def test_nested_objects_with_any_arrays_survive(obj: object, copy: bool) -> None:
    out, into = thalweg.pair(capacity=1 << 18, copy=copy)
    with out, into:
        out.send_object(obj)
        assert same(obj, into.receive_object(timeout=PATIENCE))
        out.send_object(obj)
        message = into.receive_bytes(timeout=PATIENCE)
        assert same(obj, thalweg.loads_oob(message))
        assert b"".join(thalweg.dumps_oob(obj)) == message
        kept, buffers = objects.read(message)
        assert same(obj, pickle.loads(kept, buffers=buffers))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_golden_message_is_taken_apart_and_made_again(vector: dict) -> None:
    message = bytes.fromhex(vector["message"])
    found = thalweg.loads_oob(message)
    out, into = thalweg.pair()
    out.send_bytes(message)
    received = into.receive_object()
    if vector["buffers"] and not isinstance(found, list):
        assert bytes(received).hex() == vector["buffers"][0]
    elif isinstance(found, list):
        assert [bytes(part).hex() for part in received] == vector["buffers"]
    else:
        assert received == found


def test_the_reader_by_the_text_alone_agrees_with_the_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    objects.main("vectors", ROOT / "tests" / "vectors")
    assert capsys.readouterr().out == f"{len(VECTORS)} objects\n"


def test_received_arrays_are_views_that_keep_their_message() -> None:
    out, into = thalweg.pair(capacity=1 << 16)
    out.send_object({"a": np.arange(1000), "b": np.ones(10, order="F"), "same": None})
    got = into.receive_object()
    assert not got["a"].flags.writeable and not got["b"].flags.owndata
    assert got["a"].ctypes.data % 64 == 0 and got["b"].ctypes.data % 64 == 0
    kept = got["b"]
    del got
    gc.collect()
    for _ in range(20):
        try:
            out.send(np.full(1000, -1), timeout=0)
        except thalweg.Timeout:
            break
        into.receive()
    else:
        pytest.fail("its room was used again")
    assert (kept == 1).all()
    del kept
    for _ in range(20):
        out.send(np.full(1000, -1), timeout=PATIENCE)
        into.receive()


def test_an_object_without_arrays_holds_nothing() -> None:
    out, into = thalweg.pair(capacity=1 << 16)
    kept = []
    for number in range(200):
        out.send_object([number] * 200, timeout=PATIENCE)
        kept.append(into.receive_object(timeout=PATIENCE))
    assert [one[0] for one in kept] == list(range(200))


def test_own_memory_can_be_written_where_the_senders_could() -> None:
    out, into = thalweg.pair(copy=True)
    fixed = np.arange(5)
    fixed.flags.writeable = False
    out.send_object([np.arange(5), fixed])
    free, still = into.receive_object()
    free[0] = 7
    assert free.tolist() == [7, 1, 2, 3, 4] and not still.flags.writeable
    assert free.ctypes.data % 64 == 0 and still.ctypes.data % 64 == 0


def test_one_that_fills_half_of_the_ring_is_copied_out_and_read_only() -> None:
    out, into = thalweg.pair(capacity=1 << 16)
    held = []
    for number in range(5):
        out.send_object(np.full(5000, number), timeout=PATIENCE)
        held.append(into.receive_object(timeout=PATIENCE))
    assert [int(one[-1]) for one in held] == [0, 1, 2, 3, 4]
    assert not any(one.flags.writeable for one in held)


def test_an_array_is_no_object_and_the_other_way_round() -> None:
    out, into = thalweg.pair()
    out.send(np.arange(3))
    out.send_object({"an": "object"})
    out.send_bytes(b"neither")
    with pytest.raises(thalweg.Corrupt, match="not an object"):
        into.receive_object()
    assert into.receive().tolist() == [0, 1, 2]
    with pytest.raises(thalweg.Corrupt, match="receive_object"):
        into.receive()
    with pytest.raises(thalweg.Corrupt, match="receive_object"):
        into.receive_into(np.empty(3))
    assert into.receive_object() == {"an": "object"}
    for call in (into.receive, into.receive_object):
        with pytest.raises(thalweg.Corrupt):
            call()
    assert into.receive_bytes() == b"neither"


def test_who_does_not_trust_the_sender_unpickles_nothing() -> None:
    out, into = thalweg.pair(trusted=False)
    out.send_object(np.arange(3))
    with pytest.raises(thalweg.NotPermitted, match="pickle"):
        into.receive_object()
    assert into.received == 0
    assert objects.read(into.receive_bytes())[1]


@given(st.data())
def test_wrong_lengths_are_corrupt_and_the_next_message_is_received(data: st.DataObject) -> None:
    wrong = bytearray(objects.write(pickle.dumps(7), [b"x" * 70, b"", b"y"]))
    for _ in range(data.draw(st.integers(1, 3))):
        # Flips bits of the header and the table only. If the pickle itself is invalid, the receiver cannot
        # detect it.
        bit = data.draw(st.integers(0, 8 * 48 - 1))
        wrong[bit // 8] ^= 1 << bit % 8
    out, into = thalweg.pair()
    out.send_bytes(wrong)
    out.send_object("the next")
    try:
        _, buffers = objects.read(bytes(wrong))
    except objects.Corrupt:
        buffers = None
    if buffers is None:
        with pytest.raises(thalweg.Corrupt):
            into.receive_object()
        with pytest.raises(thalweg.Corrupt):
            thalweg.loads_oob(wrong)
        assert into.receive_bytes() == bytes(wrong)
    else:
        # The lengths are valid, but the pickle is another part of the message.
        with contextlib.suppress(Exception):
            into.receive_object()
    assert into.receive_object() == "the next"


@pytest.mark.parametrize("count", [(1 << 32) - 1, 1 << 24, 10])
def test_a_table_that_is_not_there_is_corrupt(count: int) -> None:
    out, into = thalweg.pair()
    message = objects.FIXED.pack(b"THALWEGO", 1, 0, count, 8) + bytes(8)
    out.send_bytes(message)
    for call in (into.receive_object, lambda: thalweg.loads_oob(message)):
        with pytest.raises(thalweg.Corrupt):
            call()
    with pytest.raises(thalweg.Corrupt):
        thalweg.loads_oob(b"short")


LIES = {
    "a buffer that ends before": (4, [7]),
    "a buffer that ends behind": (4, [9]),
    "a buffer of 2^64 - 1 bytes": (4, [(1 << 64) - 1]),
    "10^18 bytes": (4, [10**18]),
    "buffers that overflow": (4, [1 << 63, 1 << 63, 8]),
    "buffers that overflow to what is there": (4, [(1 << 64) - 64, 8]),
    "a pickle of 2^64 - 1 bytes": ((1 << 64) - 1, [8]),
    "a pickle that overflows to what is there": ((1 << 64) - 60, [8]),
    "a pickle that ends behind": (100, []),
}


@pytest.mark.parametrize("lie", LIES)
def test_lengths_that_cannot_be_are_corrupt(lie: str) -> None:
    pickled, lengths = LIES[lie]
    message = objects.FIXED.pack(b"THALWEGO", 1, 0, len(lengths), pickled)
    message += b"".join(length.to_bytes(8, "little") for length in lengths)
    message = (message + b"\x80\x05\x97.").ljust(96, b"\0") + bytes(8)
    out, into = thalweg.pair()
    out.send_bytes(message)
    for call in (into.receive_object, lambda: thalweg.loads_oob(message)):
        with pytest.raises(thalweg.Corrupt):
            call()
    assert into.receive_bytes() == message


def test_what_cannot_be_pickled_or_unpickled_is_said_and_the_channel_goes_on() -> None:
    out, into = thalweg.pair(capacity=1 << 16, parts=False)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        out.send_object(lambda: 0)
    with pytest.raises(pickle.PicklingError, match="contiguous"):
        out.send_object(pickle.PickleBuffer(np.arange(10)[::2]))
    with pytest.raises(thalweg.TooLarge):
        out.send_object(np.zeros(1 << 20))
    out.send_bytes(objects.write(b"cno_such_module\nf\n.", []))
    out.send_object(1)
    with pytest.raises(ModuleNotFoundError):
        into.receive_object()
    assert into.receive_object() == 1 and into.received == 2


def test_an_exception_that_is_kept_keeps_no_room() -> None:
    out, into = thalweg.pair(capacity=1 << 16)
    errors = []
    for _ in range(20):
        out.send_bytes(objects.write(b"cno_such_module\nf\n.", [bytes(10_000)]), timeout=PATIENCE)
        try:
            into.receive_object()
        except ModuleNotFoundError as error:
            errors.append(error)
    assert len(errors) == 20


def test_an_array_changes_no_more_once_it_is_sent() -> None:
    out, into = thalweg.pair()
    sent = {"a": np.arange(100), "b": array.array("d", [1, 2])}
    out.send_object(sent)
    sent["a"][:] = 0
    assert into.receive_object()["a"].sum() == 4950


def test_objects_go_between_programs(start: Start, place: str) -> None:
    receiver = start(
        """
        import sys, thalweg
        into = thalweg.take(sys.argv[1])
        total = 0
        try:
            while True:
                got = into.receive_object()
                assert got["n"] == got["a"].size
                total += int(got["a"].sum())
        except thalweg.Closed as error:
            print(total, error.moved)
        """,
        place,
    )
    with thalweg.offer(place) as out:
        for number in range(50):
            out.send_object({"n": number, "a": np.arange(number)}, timeout=PATIENCE)
    assert ended(receiver) == f"{sum(n * (n - 1) // 2 for n in range(50))} 50"


def test_without_numpy_buffers_are_memoryviews() -> None:
    text = """
import sys
sys.modules["numpy"] = None
import pickle, thalweg
out, into = thalweg.pair()
out.send_object([pickle.PickleBuffer(bytearray(b"abc"))])
got = into.receive_object()[0]
print(bytes(got), memoryview(got).readonly)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "b'abc' True\n", done.stderr


def test_the_pieces_go_over_a_socket_without_being_joined() -> None:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sent = {"a": np.arange(1000), "empty": np.empty(0)}
    pieces = thalweg.dumps_oob(sent)
    assert any(isinstance(piece, memoryview) and piece.obj is not None for piece in pieces)
    near.sendmsg(pieces)
    room = bytearray(1 << 16)
    count = far.recv_into(room)
    got = thalweg.loads_oob(memoryview(room)[:count])
    assert same(sent, got) and got["a"].flags.writeable
    near.close()
    far.close()
