"""Arrays that are written in place."""

import gc
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import ring
import thalweg
import thalweg._arrays
from conftest import PATIENCE, Start

Call = Callable[..., None]

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


@pytest.mark.parametrize("call", [thalweg.Producer.commit, thalweg.Producer.discard])
def test_a_view_is_found_if_no_variable_refers_to_the_array(call: Call) -> None:
    out, into = thalweg.pair()
    # There are as many references as for an array in a variable, without a view.
    box = [out.empty(64, np.uint8)]
    view = memoryview(box[0])
    with pytest.raises(BufferError):
        call(out, box.pop())
    # The call uses the references of this tuple.
    given = (out, view.obj)
    with pytest.raises(BufferError):
        call(*given)
    view[0] = 7
    assert into.try_receive() is None
    del view
    call(*given)
    assert given[1].shape == (0,)


class Camera:
    frame: object


def of_a_closure(out: thalweg.Producer, array: object) -> Callable[[], object]:
    out.commit(array)
    return lambda: array


def of_an_attribute(out: thalweg.Producer, camera: Camera) -> None:
    camera.frame = out.empty(2)
    out.commit(camera.frame)


#: Programs that are not in a function, or refer to a variable outside of it.
PROGRAMS = [
    "frame = out.empty(2); out.commit(frame)",
    "out.commit(out.empty(2))",
    "camera.frame = out.empty(2); out.commit(camera.frame)",
    "class Body:\n    frame = out.empty(2)\n    out.commit(frame)",
    "frame = out.empty(2)\ndef call():\n    out.commit(frame)\ncall()",
]


@pytest.mark.parametrize("is_lent", [False, True], ids=["as this interpreter calls", "as Python 3.14 calls"])
def test_an_array_in_any_kind_of_variable_is_published(monkeypatch: pytest.MonkeyPatch, is_lent: bool) -> None:
    out, into = thalweg.pair()
    if is_lent:
        monkeypatch.setattr(thalweg._arrays, "_LENDS_VARIABLES", True)
    of_a_closure(out, out.empty(2))
    of_an_attribute(out, Camera())
    for program in PROGRAMS:
        exec(program, {"out": out, "camera": Camera()})
    assert len(into.receive_all()) == 2 + len(PROGRAMS)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="counts as Python 3.14 does")
def test_a_second_reference_to_a_lent_variable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    out, _into = thalweg.pair()
    array = out.empty(2)
    # If the call has no reference of its own, this counts as another one than that of the variable.
    monkeypatch.setattr(thalweg._arrays, "_LENDS_VARIABLES", True)
    with pytest.raises(BufferError):
        out.commit(array)
    monkeypatch.undo()
    out.commit(array)


def test_a_call_keeps_no_variables_of_its_caller_alive() -> None:
    out, _into = thalweg.pair()
    other = Camera()
    seen = weakref.ref(other)
    array = out.empty(3)
    out.commit(array)
    del other
    assert seen() is None


def test_a_call_leaves_the_dictionary_of_locals_to_its_caller() -> None:
    out, _into = thalweg.pair()
    mine = locals()
    array = out.empty(3)
    out.commit(array)
    assert mine["out"] is out and "array" not in mine


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
