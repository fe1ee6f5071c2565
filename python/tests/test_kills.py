"""A killed process is reported at once, and leaves nothing behind."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import thalweg
from conftest import PATIENCE, ROOT, Start
from places import mounted, why_not

KILLS = int(os.environ.get("THALWEG_KILLS", "8"))
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
    """Kills a process after it has reported that it is ready."""
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
    # After message `at`, the sender prints its report. Then it waits for input, or continues until the ring is full.
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
    # The producer closed its listener after the consumer had connected.
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


def test_a_stopped_receiver_is_not_taken_for_a_dead_one(start: Start, place: str) -> None:
    with thalweg.offer(place, capacity=1 << 16) as out:
        receiver = start(RECEIVER, place, 3, "busy")
        for _ in range(3):
            out.send(bytes(10_000), timeout=PATIENCE)
        assert receiver.stdout is not None and receiver.stdout.readline() == "there\n"
        os.kill(receiver.pid, signal.SIGSTOP)
        with pytest.raises(thalweg.Timeout):
            for _ in range(10):
                out.send(bytes(10_000), timeout=0.3)
        os.kill(receiver.pid, signal.SIGCONT)
        for _ in range(10):
            out.send(bytes(10_000), timeout=PATIENCE)
        out.drain(timeout=PATIENCE)


def test_killed_at_random_nothing_is_torn_or_lost_and_nothing_is_left(tmp_path: Path) -> None:
    """Kills producers, consumers, and both sides of queues. `THALWEG_KILLS` sets the number; `THALWEG_SEED` repeats a run with a
    printed seed."""
    seed = os.environ.get("THALWEG_SEED") or str(random.randrange(1 << 30))
    command = [sys.executable, str(Path(__file__).with_name("campaign.py")), str(KILLS), seed]
    # Replaces these directories by private, empty ones, in which no other process creates files.
    private = ["/dev/shm"]
    if not any(Path(path).is_relative_to("/tmp") for path in (ROOT, sys.prefix, sys.base_prefix)):
        private.append("/tmp")
    mounts = "\n".join(f"mount -t tmpfs tmpfs {place}" for place in private)
    if why := why_not(mounted(mounts, ["true"])):
        print(f"not looked for in /dev/shm and /tmp: a mount namespace needs root: {why}")
        private = []
    folder = Path("/tmp/campaign/work") if "/tmp" in private else tmp_path / "campaign" / "work"
    runtime = folder.with_name("run")
    begin = f"{mounts if private else ''}\nmkdir -p {folder} {runtime}"
    command = mounted(begin, [*command, str(folder)]) if private else ["sh", "-ec", f'{begin}\nexec "$@"', "sh", *command, str(folder)]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "THALWEG_PRIVATE": " ".join(private)}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", timeout=3600)
    print(f"THALWEG_SEED={seed}\n{ran.stdout}")
    assert ran.returncode == 0, f"THALWEG_SEED={seed}\n{ran.stdout}{ran.stderr}"
