"""Arrays that are written in place."""

import gc
import socket
import threading
import time

import numpy as np
import pytest
import ring
import thalweg
from conftest import PATIENCE, Start

#: A sender that sends an array, lends another one, and waits.
LENDER = """
import sys, time
import numpy as np
import thalweg
out = thalweg.offer(sys.argv[1])
out.send(np.arange(3))
array = out.empty(1000)
array[:] = 7
print("lent", flush=True)
time.sleep(600)
"""
#: A consumer that receives an array and waits.
TAKER = """
import sys, time
import thalweg
into = thalweg.take(sys.argv[1])
into.receive()
print("received", flush=True)
time.sleep(600)
"""


def test_what_was_written_in_place_is_received_and_the_array_is_empty() -> None:
    out, into = thalweg.pair()
    for number in range(100):
        array = out.empty((10, 20), np.float32)
        array[:] = number
        out.commit(array)
        assert array.shape == (0,)
        with pytest.raises(IndexError):
            array[0]
        assert (into.receive() == number).all()


@pytest.mark.parametrize("of", [lambda a: a[1:], lambda a: a.T, memoryview, lambda a: a.reshape(-1), lambda a: a, np.asarray])
def test_nothing_is_published_while_something_else_lies_over_it(of: object) -> None:
    out, into = thalweg.pair()
    array = out.empty((4, 4))
    array[:] = 1
    other = of(array)  # type: ignore[operator]
    with pytest.raises(BufferError):
        out.commit(array)
    assert array.shape == (4, 4) and into.try_receive() is None
    del other
    out.commit(array)
    assert (into.receive() == 1).all()


def test_without_its_array_a_loan_is_published_when_nothing_lies_over_it() -> None:
    out, into = thalweg.pair()
    array = out.empty(3)
    array[:] = 5
    with pytest.raises(BufferError):
        out.commit()
    del array
    out.commit()
    assert into.receive().tolist() == [5, 5, 5]
    with pytest.raises(ValueError, match="no loan"):
        out.commit()


def test_a_discarded_loan_is_not_sent() -> None:
    out, into = thalweg.pair()
    array = out.empty(3)
    with pytest.raises(BufferError):
        out.send(b"another")
    with pytest.raises(BufferError):
        out.empty(3)
    out.discard(array)
    assert array.size == 0
    out.send(b"another")
    assert into.receive().tobytes() == b"another"


def test_another_array_is_not_taken_for_the_lent_one() -> None:
    out, _into = thalweg.pair()
    array = out.empty(3)
    with pytest.raises(ValueError, match="not the array"):
        out.commit(np.empty(3))
    theirs = memoryview(bytearray(8))
    for call in (out.commit, out.discard):
        with pytest.raises(ValueError, match="not the array"):
            call(theirs)
        with pytest.raises(ValueError, match="not the array"):
            call(memoryview(array))
    assert theirs.nbytes == 8
    out.discard(array)


def test_a_lent_array_outlives_its_end() -> None:
    out, into = thalweg.pair()
    array = out.empty(1000)
    out.close()
    array[:] = 3
    assert array.sum() == 3000
    with pytest.raises(ValueError, match="closed"):
        out.send(b"")
    assert into.try_receive() is None
    del array, out
    gc.collect()
    with pytest.raises(thalweg.Closed):
        into.receive()


def test_times_are_lent_too() -> None:
    out, into = thalweg.pair()
    array = out.empty(2, "M8[D]")
    array[:] = np.datetime64("2026-11-25")
    out.commit(array)
    received = into.receive()
    assert received.dtype == np.dtype("M8[D]") and str(received[1]) == "2026-11-25"


@pytest.mark.parametrize("shape", [-1, (2, -3), (1 << 40, 1 << 40)])
def test_a_shape_that_cannot_be_is_refused(shape: object) -> None:
    out, _into = thalweg.pair()
    with pytest.raises(ValueError):
        out.empty(shape)
    with pytest.raises(TypeError):
        out.empty(2, object)
    with pytest.raises(thalweg.TooLarge):
        out.empty(1 << 40)


def spoiled(place: str, out: thalweg.Producer) -> ring.Consumer:
    """Connects a consumer to `out`, and writes a tail that no consumer can have."""
    ends = []

    def ask() -> None:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link.connect(place)
        ends.append(ring.ask(link, {"wait": "block"}))

    asking = threading.Thread(target=ask)
    asking.start()
    out.open(timeout=PATIENCE)
    asking.join()
    return ends[0]


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen before the commit", "seen after it"])
def test_a_loan_that_the_consumer_spoils_is_corrupt_and_never_a_timeout(place: str, is_seen: bool) -> None:
    with thalweg.offer(place, capacity=4096) as out:
        consumer = spoiled(place, out)
        array = out.empty(3000, np.uint8)
        consumer.own.cursors[ring.CURSOR // 8] = 1 << 40
        if is_seen:
            with pytest.raises(thalweg.Corrupt):
                out.drain(timeout=PATIENCE)
            with pytest.raises(thalweg.Corrupt):
                out.commit(array)
            with pytest.raises(ValueError, match="no loan"):
                out.commit()
        else:
            # The room of this loan was reserved before the error. The next message needs more room, and finds the error.
            out.commit(array)
        for call in (lambda: out.empty(3000, np.uint8, timeout=PATIENCE), lambda: out.send(bytes(3000), timeout=PATIENCE)):
            with pytest.raises(thalweg.Corrupt):
                call()
        consumer.link.close()


def test_a_loan_of_a_killed_producer_is_never_received(place: str, start: Start) -> None:
    lender = start(LENDER, place)
    with thalweg.take(place) as into:
        assert into.receive(timeout=PATIENCE).tolist() == [0, 1, 2]
        assert lender.stdout is not None and lender.stdout.readline() == "lent\n"
        assert into.try_receive() is None
        lender.kill()
        with pytest.raises(thalweg.PeerDied) as died:
            into.receive(timeout=PATIENCE)
        assert died.value.moved == 1


def test_a_loan_for_a_killed_consumer_is_told_of_at_its_commit(place: str, start: Start) -> None:
    taker = start(TAKER, place)
    with thalweg.offer(place) as out:
        out.send(np.arange(3), timeout=PATIENCE)
        array = out.empty(3)
        assert taker.stdout is not None and taker.stdout.readline() == "received\n"
        taker.kill()
        taker.wait()
        until = time.monotonic() + PATIENCE
        # Repeats sends, because the kernel marks the consumer's memory some time after the death.
        with pytest.raises(thalweg.PeerDied):
            while time.monotonic() < until:
                out.commit(array)
                array = out.empty(3)
