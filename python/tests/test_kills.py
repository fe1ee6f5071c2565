"""Who is killed is told of at once, and leaves nothing behind."""

import os
import signal
from pathlib import Path

import pytest
import thalweg
from conftest import PATIENCE, Start

SENDER = """
    import sys, numpy as np, thalweg
    with thalweg.offer(sys.argv[1], capacity=1 << 20) as out:
        number = 0
        while True:
            if sys.argv[2] == "loan":
                array = out.empty(1 + number % 5000, np.int64)
                array[:] = number
                out.commit(array)
            else:
                out.send(np.full(1 + number % 5000, number))
            if number == int(sys.argv[3]):
                print("there", flush=True)
                if sys.argv[4] == "waits":
                    sys.stdin.read()
            number += 1
"""
RECEIVER = """
    import sys, thalweg
    into = thalweg.take(sys.argv[1])
    for number in range(int(sys.argv[2])):
        into.receive()
    print("there", flush=True)
    while True:
        if sys.argv[3] == "busy":
            into.receive()
        else:
            sys.stdin.read()
"""


def killed(program: object) -> None:
    """Kills it when it has said that it is there."""
    assert program.stdout.readline() == "there\n", program.stderr.read()  # type: ignore[attr-defined]
    os.kill(program.pid, signal.SIGKILL)  # type: ignore[attr-defined]


@pytest.mark.parametrize("at", [0, 3, 500])
@pytest.mark.parametrize("how", ["send", "loan"])
@pytest.mark.parametrize("busy", ["waits", "goes on"])
def test_of_a_killed_sender_all_that_it_sent_is_received_whole(
    start: Start, tmp_path: Path, how: str, at: int, busy: str
) -> None:
    place = tmp_path / "here"
    sender = start(SENDER, place, how, at, busy)
    into = thalweg.take(str(place))
    number = 0
    # It fills the ring and waits for room, unless it waits for us: so it has said so before all is received.
    while number <= at:
        assert (into.receive(timeout=PATIENCE) == number).all()
        number += 1
    killed(sender)
    with pytest.raises(thalweg.PeerDied) as told:
        while True:
            array = into.receive(timeout=PATIENCE)
            assert array.shape == (1 + number % 5000,) and (array == number).all()
            number += 1
    assert told.value.moved == number == into.received
    with pytest.raises(thalweg.PeerDied):
        list(into)
    # The listener was closed when its receiver had come.
    assert not place.exists()


@pytest.mark.parametrize("busy", ["busy", "idle"])
def test_a_killed_receiver_ends_the_senders_wait(start: Start, tmp_path: Path, busy: str) -> None:
    place = str(tmp_path / "here")
    with thalweg.offer(place, capacity=1 << 16) as out:
        receiver = start(RECEIVER, place, 3, busy)
        for _ in range(3):
            out.send(bytes(10_000), timeout=PATIENCE)
        killed(receiver)
        with pytest.raises(thalweg.PeerDied):
            while True:
                out.send(bytes(10_000), timeout=PATIENCE)
        with pytest.raises(thalweg.PeerDied):
            out.empty(10, timeout=PATIENCE)


def test_who_offers_and_is_killed_leaves_a_name_that_the_next_takes(start: Start, tmp_path: Path) -> None:
    program = start(
        """
        import sys, thalweg
        out = thalweg.offer(sys.argv[1])
        print("there", flush=True)
        out.send(b"")
        """,
        tmp_path / "here",
    )
    killed(program)
    program.wait()
    with thalweg.offer(str(tmp_path / "here")):
        pass
    assert not (tmp_path / "here").exists()


def test_a_stopped_sender_is_not_taken_for_a_dead_one(start: Start, tmp_path: Path) -> None:
    sender = start(SENDER, tmp_path / "here", "send", 0, "waits")
    into = thalweg.take(str(tmp_path / "here"))
    into.receive(timeout=PATIENCE)
    assert sender.stdout is not None and sender.stdout.readline() == "there\n"
    os.kill(sender.pid, signal.SIGSTOP)
    with pytest.raises(thalweg.Timeout):
        into.receive(timeout=0.3)
    os.kill(sender.pid, signal.SIGCONT)
    assert sender.stdin is not None
    sender.stdin.close()
    sender.stdin = None
    assert (into.receive(timeout=PATIENCE) == 1).all()
