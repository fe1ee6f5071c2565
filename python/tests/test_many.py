"""One producer with many subscribers, and many producers with one consumer."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import thalweg
from conftest import PATIENCE, Start, ended

SUBSCRIBER = """
    import sys, thalweg
    into = thalweg.subscribe(sys.argv[1], copy=sys.argv[2] == "copy")
    print([int(array[0]) for array in into], into.missed, flush=True)
"""
SENDER = """
    import os, sys, numpy as np, thalweg
    with thalweg.join(sys.argv[1]) as out:
        for number in range(int(sys.argv[2])):
            out.send(np.array([os.getpid(), number]))
        if sys.argv[3] == "stays":
            print("there", flush=True)
            sys.stdin.read()
"""


def test_everybody_who_subscribed_gets_everything(start: Start, place: str) -> None:
    with thalweg.broadcast(place) as out:
        out.send(b"to nobody")
        subscribers = [start(SUBSCRIBER, place, how) for how in ("copy", "view", "view")]
        out.wait(3, timeout=PATIENCE)
        assert out.subscribers == 3
        for number in range(1000):
            out.send(np.full(100, number), timeout=PATIENCE)
        assert out.sent == 1001
    for subscriber in subscribers:
        assert ended(subscriber) == f"{list(range(1000))} 0"
    assert not Path(place).exists()


def test_who_is_too_slow_misses_the_oldest_and_is_told(place: str) -> None:
    with thalweg.broadcast(place, backlog=2, capacity=1 << 16) as out:
        into = thalweg.subscribe(place)
        thread = threading.Thread(target=into.open, args=(PATIENCE,))
        thread.start()
        out.wait(timeout=PATIENCE)
        thread.join()
        for number in range(100):
            out.send(np.full(1000, number))
        got = [int(into.receive()[0])]
        while got[-1] < 99:
            if not into.is_ready():
                out.flush(timeout=PATIENCE)
            got.append(int(into.receive(timeout=PATIENCE)[0]))
        assert got == sorted(got) and got[-2:] == [98, 99]
        assert into.missed == 100 - len(got) > 0 == got[0]
        assert into.received == len(got)


def test_views_of_a_broadcast_stay_as_they_are(place: str) -> None:
    with thalweg.broadcast(place, capacity=1 << 20) as out:
        into = thalweg.subscribe(place)
        thread = threading.Thread(target=into.open, args=(PATIENCE,))
        thread.start()
        out.wait(timeout=PATIENCE)
        thread.join()
        kept = []
        for number in range(50):
            out.send(np.full(100, number), timeout=PATIENCE)
            kept.append(into.receive(timeout=PATIENCE))
        out.send_object({"a": np.arange(5)}, timeout=PATIENCE)
        assert into.receive_object(timeout=PATIENCE)["a"].sum() == 10
        out.send_bytes(b"bare", timeout=PATIENCE)
        with pytest.raises(thalweg.Corrupt):
            into.receive(timeout=PATIENCE)
        assert into.receive_bytes(timeout=PATIENCE) == b"bare"
        assert all((array == number).all() for number, array in enumerate(kept))
        into.close()
        out.send(b"finds out")
        assert out.subscribers == 0 and out.departed() == []


def test_without_a_backlog_the_slowest_is_waited_for_and_nobody_has_half(place: str) -> None:
    with thalweg.broadcast(place, capacity=1 << 16) as out:
        into = thalweg.subscribe(place)
        thread = threading.Thread(target=into.open, args=(PATIENCE,))
        thread.start()
        out.wait(timeout=PATIENCE)
        thread.join()
        sent = 0
        with pytest.raises(thalweg.Timeout):
            while True:
                out.send(np.full(1000, sent), timeout=0.05)
                sent += 1
        assert [int(into.receive()[0]) for _ in range(sent)] == list(range(sent))
        with pytest.raises(thalweg.TooLarge):
            out.send(bytes(1 << 17))
        with pytest.raises(thalweg.Timeout):
            out.wait(2, timeout=0.05)
        assert into.try_receive() is None


def test_a_killed_subscriber_is_told_and_the_others_go_on(start: Start, place: str) -> None:
    with thalweg.broadcast(place, capacity=1 << 20) as out:
        stays = start(SUBSCRIBER, place, "view")
        dies = start("import sys, thalweg; into = thalweg.subscribe(sys.argv[1]); into.open(); sys.stdin.read()", place)
        out.wait(2, timeout=PATIENCE)
        dies.kill()
        dies.wait()
        number = 0
        until = time.monotonic() + PATIENCE
        while out.subscribers == 2:
            assert time.monotonic() < until, "nobody told of it"
            out.send(np.full(10, number), timeout=PATIENCE)
            number += 1
        (process, dropped, error), = out.departed()
        assert process == dies.pid and dropped == 0 and isinstance(error, thalweg.PeerDied)
    assert ended(stays) == f"{list(range(number))} 0"


def test_many_send_to_one_in_their_order(start: Start, place: str) -> None:
    with thalweg.gather(place, producers=3) as into:
        senders = [start(SENDER, place, 500, "goes") for _ in range(3)]
        got: dict[int, list[int]] = {}
        for array in into:
            assert into.peer == array[0]
            got.setdefault(int(array[0]), []).append(int(array[1]))
        assert got == {sender.pid: list(range(500)) for sender in senders}
        assert into.received == 1500 and into.departed() == [] and into.producers == 0
        with pytest.raises(thalweg.Closed):
            into.receive()
        for sender in senders:
            ended(sender)
    assert not Path(place).exists()


def test_of_a_killed_sender_all_comes_and_the_others_go_on(start: Start, place: str) -> None:
    with thalweg.gather(place, producers=2, copy=True) as into:
        dies = start(SENDER, place, 100, "stays")
        assert [int(into.receive(timeout=PATIENCE)[1]) for _ in range(50)] == list(range(50))
        assert dies.stdout is not None and dies.stdout.readline() == "there\n"
        os.kill(dies.pid, signal.SIGKILL)
        stays = start(SENDER, place, 100, "goes")
        got = [(int(array[0]), int(array[1])) for array in into]
        assert [number for sender, number in got if sender == dies.pid] == list(range(50, 100))
        assert [number for sender, number in got if sender == stays.pid] == list(range(100))
        (departed,) = into.departed()
        assert departed.pid == dies.pid and departed.received == 100
        assert isinstance(departed.error, thalweg.PeerDied)


def test_objects_bytes_and_arrays_of_many(place: str) -> None:
    with thalweg.gather(place) as into:
        assert into.peer is None and into.producers == 0
        with pytest.raises(thalweg.Timeout):
            into.receive(timeout=0.05)

        def send() -> None:
            with thalweg.join(place) as out:
                out.send_object({"a": np.arange(5)}, timeout=PATIENCE)
                out.send_bytes(b"bare", timeout=PATIENCE)
                out.send(np.arange(3), timeout=PATIENCE)
                out.drain(timeout=PATIENCE)

        thread = threading.Thread(target=send)
        thread.start()
        assert into.receive_object(timeout=PATIENCE)["a"].sum() == 10
        with pytest.raises(thalweg.Corrupt):
            into.receive(timeout=PATIENCE)
        assert into.receive_bytes(timeout=PATIENCE) == b"bare"
        assert into.receive(timeout=PATIENCE).sum() == 3
        thread.join()
    with pytest.raises(ValueError, match="closed"):
        into.receive()


def test_who_joins_waits_for_somebody_who_gathers(place: str) -> None:
    out = thalweg.join(place)
    with pytest.raises(thalweg.Timeout):
        out.send(b"x", timeout=0.05)
    with thalweg.gather(place, producers=1) as into:
        thread = threading.Thread(target=lambda: (out.send(b"now", timeout=PATIENCE), out.close()))
        thread.start()
        assert [array.tobytes() for array in into] == [b"now"]
        thread.join()


def test_of_senders_that_are_not_trusted_nothing_is_unpickled(place: str) -> None:
    with thalweg.gather(place, trusted=False) as into, pytest.raises(thalweg.NotPermitted):
        into.receive_object()
