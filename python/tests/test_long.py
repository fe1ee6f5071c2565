"""Arrays and objects larger than their ring, which are sent in parts."""

import struct
import threading
from collections.abc import Callable

import numpy as np
import pytest
import thalweg
from conftest import PATIENCE, Start, ended

CAPACITY = 1 << 16
SENDER = """
    import sys, numpy as np, thalweg
    send = thalweg.join if sys.argv[1] == "join" else thalweg.offer
    with send(sys.argv[2], capacity=1 << 16) as out:
        for number in range(5):
            out.send(np.arange(100_000) + number)
            out.send(np.full(10, number))
            out.send_object({"number": number, "array": np.full(50_000, number)})
"""


def beside(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def part(serial: int, total: int, at: int, data: bytes) -> bytes:
    """Returns a part as specified in docs/reference/formats.md."""
    return struct.pack("<8sHHIQQ", b"THALWEGL", 1, 0, serial, total, at) + data


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("trusted", [True, False])
def test_a_long_array_arrives_whole_in_memory_of_its_own(copy: bool, trusted: bool) -> None:
    out, into = thalweg.pair(capacity=CAPACITY, copy=copy, trusted=trusted)
    sent = np.arange(300_000, dtype=">i4").reshape(3, 100_000)[:, ::-1]
    thread = beside(lambda: out.send(sent, timeout=PATIENCE))
    got = into.receive(timeout=PATIENCE)
    thread.join()
    assert (got == sent).all() and got.dtype == sent.dtype and got.shape == sent.shape
    assert got.flags.writeable == copy and got.ctypes.data % 64 == 0
    out.send(b"and goes on")
    assert into.receive().tobytes() == b"and goes on"
    assert (got == sent).all()


@pytest.mark.parametrize("how", ["offer", "join"])
def test_between_programs_long_and_short_ones_keep_their_order(start: Start, place: str, how: str) -> None:
    with thalweg.gather(place, producers=1) if how == "join" else thalweg.take(place) as into:
        sender = start(SENDER, how, place)
        for number in range(5):
            assert (into.receive(timeout=PATIENCE) == np.arange(100_000) + number).all()
            assert (into.receive(timeout=PATIENCE) == number).all()
            got = into.receive_object(timeout=PATIENCE)
            assert got["number"] == number and (got["array"] == number).all() and len(got["array"]) == 50_000
        with pytest.raises(thalweg.Closed):
            into.receive(timeout=PATIENCE)
        ended(sender)


def test_who_gives_up_in_mid_message_sends_it_again_and_nothing_is_torn() -> None:
    out, into = thalweg.pair(capacity=CAPACITY)
    long = np.arange(100_000)
    with pytest.raises(thalweg.Timeout):
        out.send(long, timeout=0.05)
    with pytest.raises(thalweg.Timeout):
        into.receive(timeout=0.05)
    assert into.try_receive() is None
    thread = beside(lambda: (out.send(long + 1, timeout=PATIENCE), out.send(b"last")))
    assert (into.receive(timeout=PATIENCE) == long + 1).all()
    assert into.receive(timeout=PATIENCE).tobytes() == b"last"
    thread.join()
    with pytest.raises(thalweg.Timeout):
        out.send(long, timeout=0.05)
    out.close()
    with pytest.raises(thalweg.Closed):
        into.receive(timeout=PATIENCE)


def test_one_of_another_kind_stays_the_next_and_fits_into_an_array_of_ours() -> None:
    out, into = thalweg.pair(capacity=CAPACITY)
    sent = np.arange(100_000)
    thread = beside(lambda: (out.send_object({"a": sent}, timeout=PATIENCE), out.send(sent, timeout=PATIENCE)))
    with pytest.raises(thalweg.Corrupt):
        into.receive(timeout=PATIENCE)
    assert into.is_ready()
    assert (into.receive_object(timeout=PATIENCE)["a"] == sent).all()
    with pytest.raises(ValueError, match="the message was not removed"):
        into.receive_into(np.zeros(5, int), timeout=PATIENCE)
    room = np.zeros(100_000, int)
    assert into.receive_into(room, timeout=PATIENCE) is room and (room == sent).all()
    thread.join()
    with pytest.raises(thalweg.TooLarge):
        out.send_bytes(bytes(CAPACITY))
    with pytest.raises(thalweg.TooLarge):
        out.empty(100_000)


def test_parts_are_those_of_the_format_and_what_lies_is_corrupt() -> None:
    out, into = thalweg.pair(capacity=CAPACITY)
    out.send(np.arange(3, dtype=np.uint8))
    message = into.receive_bytes()
    for at in range(0, len(message), 10):
        out.send_bytes(part(7, len(message), at, message[at : at + 10]))
    assert into.receive().tolist() == [0, 1, 2]
    lies = [
        part(1, 10, 0, b""),
        part(1, 10, 5, b"abcdef"),
        part(1, 10, 5, b"abc"),
        part(1, 1 << 63, 0, b"abc"),
        part(1, (1 << 64) - 1, (1 << 64) - 1, b"abc"),
        part(1, 10, 0, b"abc").replace(b"L\x01", b"L\x02", 1),
    ]
    for lie in lies:
        out.send_bytes(lie)
        with pytest.raises(thalweg.Corrupt):
            into.receive()
    out.send_bytes(part(1, 10, 0, b"ab"))
    out.send_bytes(part(1, 10, 5, b"ab"))
    with pytest.raises(thalweg.Corrupt):
        into.receive()
    # The message is larger than the available memory. Its first part is rejected, and its other parts are skipped.
    for at in range(3):
        out.send_bytes(part(2, 1 << 60, at, b"x"))
    with pytest.raises(thalweg.TooLarge, match="memory"):
        into.receive()
    out.send(b"goes on")
    assert into.receive(timeout=PATIENCE).tobytes() == b"goes on"


@pytest.mark.parametrize("then", ["receive", "receive_into", "another"])
@pytest.mark.parametrize("each", [1, 7, 48, 500, 3000])
def test_what_fits_goes_to_the_array_as_it_comes_and_no_part_is_lost_with_the_patience(each: int, then: str) -> None:
    out, into = thalweg.pair(capacity=CAPACITY)
    sent = np.arange(1000, dtype=np.int32).reshape(10, 100)
    out.send(sent)
    message, room = into.receive_bytes(), np.zeros_like(sent)
    parts = [part(7, len(message), at, message[at : at + each]) for at in range(0, len(message), each)]
    middle = min(len(parts) // 2, 300)
    for some in (parts[:middle], parts[middle:-1]):
        for one in some[:300]:
            out.send_bytes(one)
        with pytest.raises(thalweg.Timeout):
            into.receive_into(room, timeout=0)
        for one in some[300:]:
            out.send_bytes(one)
            with pytest.raises(thalweg.Timeout):
                into.receive_into(room, timeout=0)
        before = room.copy()
    out.send_bytes(parts[-1])
    if then == "receive":
        got = into.receive()
        # After the call, the array belongs to the caller again, and later parts must not be written to it.
        assert (room == before).all()
    elif then == "receive_into":
        got = into.receive_into(room)
    else:
        with pytest.raises(ValueError):
            into.receive_into(np.zeros(5))
        got = into.receive_into(np.zeros((10, 200), np.int32)[:, ::2])
    assert (got == sent).all()
    assert into.try_receive() is None


@pytest.mark.parametrize("way", ["into", "copy"])
def test_a_stream_of_long_ones_through_a_small_ring_arrives_as_it_was(way: str) -> None:
    out, into = thalweg.pair(capacity=CAPACITY, copy=way == "copy")
    sent = [np.arange(20_000 + 1000 * number).astype(np.int64)[:: 1 + number % 2] for number in range(20)]
    thread = beside(lambda: [out.send(array, timeout=PATIENCE) for array in sent])
    for array in sent:
        if way == "into":
            room = np.zeros_like(array)
            assert into.receive_into(room, timeout=PATIENCE) is room
        else:
            room = into.receive(timeout=PATIENCE)
        assert (room == array).all()
    thread.join()


def test_where_the_system_gives_no_memory_that_is_said_and_the_process_lives(start: Start) -> None:
    program = start(
        """
        import resource, struct, thalweg
        out, into = thalweg.pair(capacity=1 << 16)
        into.open()
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
        out.send_bytes(struct.pack("<8sHHIQQ", b"THALWEGL", 1, 0, 1, 128 << 20, 0) + b"x")
        try:
            into.receive()
        except thalweg.TooLarge as error:
            print("memory" in str(error))
        out.send(b"goes on")
        print(into.receive().tobytes())
        """
    )
    assert ended(program) == "True\nb'goes on'"
