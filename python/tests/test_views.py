"""Received arrays are views of the ring: no array changes while it is held, and the last one releases the room."""

import gc
import os
import threading

import numpy as np
import pytest
import thalweg
from conftest import PATIENCE, Start, ended, used


def test_a_view_is_in_the_ring_and_the_next_message_does_not_touch_it() -> None:
    out, into = thalweg.pair(capacity=1 << 16)
    held = []
    for number in range(6):
        out.send(np.full(1000, number))
        held.append(into.receive(timeout=PATIENCE))
    # Eight arrays fill the ring. The oldest one blocks all room after it.
    out.send(np.full(1000, 6), timeout=PATIENCE)
    with pytest.raises(thalweg.Timeout):
        for _ in range(2):
            out.send(np.full(1000, 7), timeout=0.05)
    for number, array in enumerate(held):
        assert (array == number).all()
    del held[3], array
    gc.collect()
    with pytest.raises(thalweg.Timeout):
        for _ in range(2):
            out.send(np.full(1000, 8), timeout=0.05)
    held.clear()
    gc.collect()
    out.send(np.full(1000, 9), timeout=PATIENCE)


@pytest.mark.parametrize(
    "part",
    [
        lambda array: array[3:],
        lambda array: array.reshape(2, -1)[1],
        lambda array: memoryview(array),
        lambda array: memoryview(array)[2:],
        lambda array: array.view(np.uint8)[::-1],
        lambda array: np.asarray(array).T,
        lambda array: [array],
        lambda array: array.base,
    ],
)
def test_any_view_keeps_its_message(part: object) -> None:
    out, into = thalweg.pair(capacity=1 << 16)
    out.send(np.arange(1000))
    kept = part(into.receive())  # type: ignore[operator]
    gc.collect()
    before = bytes(np.asarray(kept[0] if isinstance(kept, list) else kept))
    for _ in range(20):
        try:
            out.send(np.full(1000, -1), timeout=0)
        except thalweg.Timeout:
            break
        into.receive()
    else:
        pytest.fail("its room was used again")
    assert bytes(np.asarray(kept[0] if isinstance(kept, list) else kept)) == before
    del kept
    gc.collect()
    for _ in range(20):
        out.send(np.full(1000, -1), timeout=PATIENCE)
        into.receive()


def test_a_copy_of_a_view_keeps_nothing() -> None:
    out, into = thalweg.pair(capacity=1 << 16)
    copies = []
    for number in range(100):
        out.send(np.full(1000, number), timeout=PATIENCE)
        copies.append(into.receive().copy())
    assert all((copy == number).all() for number, copy in enumerate(copies))


def test_what_fills_more_than_half_of_a_ring_does_not_hold_it_up() -> None:
    out, into = thalweg.pair(capacity=1 << 16)
    last = None
    for number in range(10):
        # `last` still holds the previous array, as in a loop.
        out.send(np.full(6000, number), timeout=PATIENCE)
        last = into.receive(timeout=PATIENCE)
        assert not last.flags.writeable and (last == number).all()


def test_views_outlive_both_ends_and_a_killed_sender(start: Start, tmp_path: object) -> None:
    sender = start(
        """
        import numpy as np, thalweg
        out = thalweg.offer("last")
        out.send(np.arange(1000))
        out.drain()
        print("there", flush=True)
        import sys; sys.stdin.read()
        """
    )
    os.environ["XDG_RUNTIME_DIR"], before = str(tmp_path), os.environ.get("XDG_RUNTIME_DIR")
    try:
        into = thalweg.take("last")
    finally:
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
    array = into.receive(timeout=PATIENCE)
    sender.kill()
    with pytest.raises(thalweg.PeerDied):
        into.receive(timeout=PATIENCE)
    into.close()
    del into
    assert array.sum() == 499_500


SENDS = """
    import sys, numpy as np, thalweg
    with thalweg.offer("full", capacity=1 << 16) as out:
        for number in range(20):
            out.send(np.full(1000, number))
        out.send(np.arange(7500))
"""


def test_who_holds_all_of_the_ring_is_told(start: Start) -> None:
    sender = start(SENDS)
    receiver = start(
        """
        import numpy as np, thalweg
        into = thalweg.take("full")
        for timeout in (None, 600):
            kept = []
            try:
                while True:
                    kept.append(into.receive(timeout=timeout))
            except thalweg.TooLarge as error:
                words = str(error)
            assert f"{len(kept)} received arrays are still in use" in words, words
            assert "copy=True" in words and "del" in words, words
            # Nothing is lost. An array in an unreachable cycle is freed automatically.
            cycle = [kept.pop(0)]
            cycle.append(cycle)
            del cycle
            kept.append(into.receive())
            print(int(kept[-1][0]))
        del kept
        # An array that needs most of the ring does not fit while the loop holds the previous one.
        try:
            for array in into:
                last = int(array[0])
        except thalweg.TooLarge:
            print(last)
        del array
        assert (into.receive() == np.arange(7500)).all()
        """
    )
    first, second, last = map(int, ended(receiver).split())
    assert first < second < last == 19
    ended(sender)


def test_while_other_threads_may_let_go_the_receiver_waits(start: Start) -> None:
    sender = start(SENDS)
    receiver = start(
        """
        import threading, numpy as np, thalweg
        into, kept, go = thalweg.take("full"), [], threading.Event()
        def let_go():
            go.wait()
            kept.clear()
        thread = threading.Thread(target=let_go)
        thread.start()
        try:
            while True:
                kept.append(into.receive(timeout=1))
        except thalweg.Timeout:
            go.set()
        count = len(into.receive()) + into.received
        print(count)
        del thread
        for array in into:
            array = None
        """
    )
    assert int(ended(receiver)) > 1000
    ended(sender)


def test_a_deadline_is_kept_while_other_threads_may_let_go() -> None:
    out, into = thalweg.pair(capacity=1 << 16)
    kept = []
    while True:
        try:
            out.send(np.arange(1000), timeout=0)
        except thalweg.Timeout:
            break
        kept.append(into.receive(timeout=PATIENCE))
    sender = threading.Thread(target=out.send, args=(np.full(1000, 7),))
    sender.start()
    for _ in range(5):
        # Waits long enough for the producer to announce that it waits for room.
        with pytest.raises(thalweg.Timeout):
            into.receive(timeout=0.3)
    kept.clear()
    assert into.receive(timeout=PATIENCE)[0] == 7
    sender.join(PATIENCE)
    assert not sender.is_alive()


def test_nothing_is_left_of_channels_that_are_gone() -> None:
    def exchange() -> None:
        out, into = thalweg.pair()
        out.send(np.arange(10))
        kept = into.receive()
        lent = out.empty(10)
        out.close()
        into.close()
        assert kept.sum() == 45 and lent.size == 10

    exchange()
    before = used()
    for _ in range(20):
        exchange()
    assert used() == before


def test_an_interpreter_ends_quietly_with_views_alive(start: Start) -> None:
    program = start(
        """
        import numpy as np, thalweg, sys
        out, into = thalweg.pair()
        out.send(np.arange(10))
        kept = into.receive()
        sys.modules["builtins"].kept_too = memoryview(kept)
        lent = out.empty(3)
        print("ends")
        """
    )
    printed, complaint = program.communicate(timeout=PATIENCE)
    assert (program.returncode, printed, complaint) == (0, "ends\n", "")
