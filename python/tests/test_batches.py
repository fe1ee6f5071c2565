"""Several messages in one call, and channels over links."""

import array
import gc
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import thalweg
from conftest import PATIENCE, Start, ended

SPAWN = multiprocessing.get_context("spawn")


def test_a_batch_comes_at_once_and_in_its_order() -> None:
    out, into = thalweg.pair()
    out.send_all([np.arange(number) for number in range(100)])
    assert out.sent == 100
    got = into.receive_all()
    assert [len(each) for each in got] == list(range(100)) and all((each == np.arange(len(each))).all() for each in got)
    assert not got[3].flags.writeable and into.received == 100
    out.send_all([])
    with pytest.raises(thalweg.Timeout):
        into.receive_all(timeout=0)
    out.send_all(iter([b"a", array.array("i", [1, 2]), np.array(["2026-11-26"], "M8[D]")]))
    assert [each.dtype.str for each in into.receive_all()] == ["|u1", "<i4", "<M8[D]"]


def test_as_many_as_are_wanted() -> None:
    out, into = thalweg.pair()
    out.send_all([np.array(number) for number in range(5)])
    assert [int(each) for each in into.receive_all(2)] == [0, 1]
    assert int(into.receive()) == 2
    assert [int(each) for each in into.receive_all(most=100, timeout=1)] == [3, 4]
    with pytest.raises(ValueError, match="most must be at least 1"):
        into.receive_all(0)


@pytest.mark.parametrize("copy", [False, True])
def test_a_batch_that_is_larger_than_the_ring_goes_as_there_is_room(copy: bool) -> None:
    out, into = thalweg.pair(capacity=1 << 14, copy=copy)
    # One of these arrays is larger than the ring.
    sizes = [100 + number for number in range(300)] + [20_000] + [50, 60]
    thread = threading.Thread(target=lambda: (out.send_all([np.full(size, size, np.int16) for size in sizes]), out.close()))
    thread.start()
    got: list[int] = []
    while len(got) < len(sizes):
        for each in into.receive_all(timeout=PATIENCE):
            assert (each == len(each)).all()
            got.append(len(each))
        # Releases the last message, as a loop that waits for the next ones must.
        del each
    thread.join()
    assert got == sizes
    with pytest.raises(thalweg.Closed):
        into.receive_all()


def test_after_a_timeout_it_is_known_how_many_went() -> None:
    out, into = thalweg.pair(capacity=1 << 12)
    with pytest.raises(thalweg.Timeout) as told:
        out.send_all([np.full(1000, number, np.uint8) for number in range(10)], timeout=0.05)
    assert 0 < told.value.moved == out.sent < 10
    assert [int(each[0]) for each in into.receive_all()] == list(range(told.value.moved))


def test_what_cannot_be_sent_is_refused_before_anything_is() -> None:
    out, into = thalweg.pair(capacity=1 << 14, parts=False)
    with pytest.raises(TypeError):
        out.send_all([np.arange(3), {"a": 1}])
    with pytest.raises(TypeError):
        out.send_all(7)
    assert out.sent == 0 and into.try_receive() is None
    with pytest.raises(thalweg.TooLarge):
        out.send_all([np.arange(3), np.arange(10_000)])
    assert into.receive_all()[0].tolist() == [0, 1, 2]


def test_what_is_wrong_with_a_later_message_is_told_later() -> None:
    out, into = thalweg.pair()
    out.send_all([b"one", b"two"])
    out.send_bytes(b"not an array")
    out.send(b"three")
    assert [bytes(each) for each in into.receive_all()] == [b"one", b"two"]
    assert into.is_ready()
    for _ in range(2):
        with pytest.raises(thalweg.Corrupt):
            into.receive_all()
    assert into.receive_bytes() == b"not an array"
    out.close()
    assert [bytes(each) for each in into.receive_all()] == [b"three"]
    for _ in range(2):
        with pytest.raises(thalweg.Closed):
            into.receive_all()


def child(link: socket.socket) -> None:
    with thalweg.take_over(link) as into, link:
        for number, frame in enumerate(into):
            assert (frame == number).all()


def test_a_link_is_an_argument_of_a_process() -> None:
    near, far = thalweg.link()
    process = SPAWN.Process(target=child, args=(far,))
    process.start()
    far.close()
    with near, thalweg.offer_over(near) as out:
        for number in range(10):
            out.send(np.full(1000, number))
    process.join(PATIENCE)
    assert process.exitcode == 0


def test_the_other_end_of_a_link_may_come_late() -> None:
    near, far = thalweg.link()

    def late() -> bytes:
        # Waits longer than the time limit for a process that sends nothing.
        time.sleep(6)
        with far, thalweg.take_over(far) as into:
            return bytes(into.receive_bytes())

    with ThreadPoolExecutor(1) as pool, near, thalweg.offer_over(near) as out:
        told = pool.submit(late)
        out.send_bytes(b"patient")
        assert told.result(PATIENCE) == b"patient"


@pytest.fixture
def inherited() -> Iterator[tuple["subprocess.Popen[str]", socket.socket]]:
    near, far = thalweg.link()
    text = """if True:
        import os, sys, thalweg
        out = thalweg.offer_over(int(sys.argv[1]), capacity=1 << 14)
        os.close(int(sys.argv[1]))
        out.send_object({"from": os.getpid()})
        sys.stdin.read()
        out.close()
    """
    command = [sys.executable, "-c", text, str(far.fileno())]
    program = subprocess.Popen(command, pass_fds=[far.fileno()], stdin=subprocess.PIPE, text=True)
    far.close()
    yield program, near
    program.kill()
    program.communicate()
    near.close()


def test_a_child_inherits_a_descriptor(inherited: tuple["subprocess.Popen[str]", socket.socket]) -> None:
    program, near = inherited
    into = thalweg.take_over(near.fileno())
    near.close()
    assert into.receive_object(timeout=PATIENCE)["from"] == program.pid
    program.communicate(timeout=PATIENCE)
    with pytest.raises(thalweg.Closed):
        into.receive(timeout=PATIENCE)


def test_a_killed_child_is_told_of(inherited: tuple["subprocess.Popen[str]", socket.socket]) -> None:
    program, near = inherited
    into = thalweg.take_over(near)
    into.receive_object(timeout=PATIENCE)
    os.kill(program.pid, signal.SIGKILL)
    with pytest.raises(thalweg.PeerDied):
        into.receive(timeout=PATIENCE)


def test_a_link_is_sent_as_a_descriptor(start: Start) -> None:
    near, far = thalweg.link()
    carrier, other = socket.socketpair()
    socket.send_fds(carrier, [b"link"], [far.fileno()])
    _, descriptors, _, _ = socket.recv_fds(other, 10, 1)
    far.close()
    out, into = thalweg.offer_over(near), thalweg.take_over(descriptors[0])
    os.close(descriptors[0])
    near.close()
    thread = threading.Thread(target=out.send, args=(np.arange(4),))
    thread.start()
    assert into.receive(timeout=PATIENCE).tolist() == [0, 1, 2, 3]
    thread.join()
    carrier.close()
    other.close()


def test_what_is_no_link_is_refused(tmp_path: object) -> None:
    reader, writer = os.pipe()
    stream, _ = pair = socket.socketpair()
    # Objects of earlier tests must not be collected during this test, because they may hold descriptors.
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for other in (reader, stream, -1):
        with pytest.raises(OSError):
            thalweg.offer_over(other)
        with pytest.raises(OSError):
            thalweg.take_over(other)
    assert len(os.listdir("/proc/self/fd")) == before
    for each in pair:
        each.close()
    os.close(reader)
    os.close(writer)


def test_a_link_whose_other_end_is_gone_says_so() -> None:
    near, far = thalweg.link()
    far.close()
    with pytest.raises((thalweg.Closed, thalweg.PeerDied)):
        thalweg.take_over(near).receive(timeout=PATIENCE)
    near.close()


def test_import_brings_neither_sockets_nor_select(start: Start) -> None:
    text = "import sys, thalweg; print([name for name in ('socket', 'select', 'asyncio', 'ctypes') if name in sys.modules])"
    assert ended(start(text)) == "[]"
