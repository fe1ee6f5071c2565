"""Cases in which a process waits or ends: without its main thread, in an exit hook, with a fork in a thread."""

import os
import signal
import struct
import threading
from contextlib import suppress

import numpy as np
import pytest
import thalweg
from conftest import PATIENCE, Start, ended


@pytest.mark.parametrize("role", ["send", "receive"])
def test_a_channel_outlives_the_main_thread(place: str, start: Start, role: str) -> None:
    """The interpreter waits for the thread that uses the end."""
    program = start(
        """
        import sys, threading
        import thalweg
        _, place, role = sys.argv
        def send():
            with thalweg.offer(place) as out:
                for number in range(100):
                    out.send_bytes(b"%d" % number)
                out.drain()
        def receive():
            with thalweg.take(place) as into:
                for number in range(100):
                    assert into.receive_bytes() == b"%d" % number
            print("received")
        threading.Thread(target=globals()[role]).start()
        """,
        place,
        role,
    )
    if role == "send":
        with thalweg.take(place) as into:
            assert [into.receive_bytes(timeout=PATIENCE) for _ in range(100)] == [b"%d" % n for n in range(100)]
            with pytest.raises(thalweg.Closed):
                into.receive_bytes(timeout=PATIENCE)
        assert ended(program) == ""
        return
    with thalweg.offer(place) as out:
        for number in range(100):
            out.send_bytes(b"%d" % number, timeout=PATIENCE)
        assert ended(program) == "received"


@pytest.mark.parametrize("way", ["returns", "exits", "raises", "is interrupted"])
def test_an_exit_hook_sends_the_last_message(place: str, start: Start, way: str) -> None:
    program = start(
        """
        import atexit, os, signal, sys
        import thalweg
        _, place, way = sys.argv
        signal.signal(signal.SIGINT, signal.default_int_handler)
        out = thalweg.offer(place)
        def last():
            out.send_bytes(b"last")
            out.close()
        atexit.register(last)
        out.send_bytes(b"first")
        if way == "exits":
            sys.exit(0)
        if way == "raises":
            raise SystemError
        if way == "is interrupted":
            os.kill(os.getpid(), signal.SIGINT)
        """,
        place,
        way,
    )
    with thalweg.take(place) as into:
        assert into.receive_bytes(timeout=PATIENCE) == b"first"
        assert into.receive_bytes(timeout=PATIENCE) == b"last"
        with pytest.raises(thalweg.Closed):
            into.receive_bytes(timeout=PATIENCE)
    program.communicate(timeout=PATIENCE)


def test_an_end_that_is_open_at_exit_loses_nothing_and_hangs_nowhere(place: str, start: Start) -> None:
    program = start(
        """
        import sys, thalweg
        out = thalweg.offer(sys.argv[1])
        out.send_bytes(b"only")
        """,
        place,
    )
    with thalweg.take(place) as into:
        assert into.receive_bytes(timeout=PATIENCE) == b"only"
        with pytest.raises((thalweg.Closed, thalweg.PeerDied)) as gone:
            into.receive_bytes(timeout=PATIENCE)
        assert gone.value.moved == 1
    assert ended(program) == ""


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_in_a_thread_disturbs_no_wait_of_another() -> None:
    out, into = thalweg.pair()
    received: list[bytes] = []
    waiting = threading.Thread(target=lambda: received.append(into.receive_bytes(timeout=PATIENCE)))
    waiting.start()
    statuses: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                refused = 0
                for call in (lambda: out.send(b""), into.try_receive):
                    try:
                        call()
                    except (thalweg.NotPermitted, RuntimeError):
                        refused += 1
                # At the fork, a thread of the parent was inside of a call of this end. The child's `close` must
                # not wait for that thread.
                into.close()
                out.close()
                # Checks that a channel works that the child creates.
                mine, yours = thalweg.pair()
                mine.send(np.arange(3))
                status = 0 if refused == 2 and yours.receive(timeout=PATIENCE).sum() == 3 else 2
            finally:
                os._exit(status)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    forking = threading.Thread(target=fork)
    forking.start()
    forking.join(PATIENCE)
    assert statuses == [0] and not received
    out.send_bytes(b"for the parent")
    waiting.join(PATIENCE)
    assert received == [b"for the parent"]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_does_not_end_the_handshake_of_its_parent() -> None:
    near, far = thalweg.link()
    received: list[bytes] = []
    with near, far:
        out = thalweg.offer_over(near)
        with pytest.raises(thalweg.Timeout):
            out.open(timeout=0.05)
        child = os.fork()
        if child == 0:
            del out
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with out, thalweg.take_over(far) as into:
            receiving = threading.Thread(target=lambda: received.append(into.receive_bytes(timeout=PATIENCE)))
            receiving.start()
            out.send_bytes(b"of the parent", timeout=PATIENCE)
            receiving.join(PATIENCE)
    assert received == [b"of the parent"]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_frees_and_allocates_arrays_while_a_thread_of_its_parent_does() -> None:
    out, into = thalweg.pair(capacity=1 << 22, copy=True)
    out.send(np.arange(3))
    array, done = into.receive(), threading.Event()

    def receive() -> None:
        """Begins messages in parts. Each new one frees the memory of the last one, without the interpreter lock."""
        data, serial = bytes(1 << 20), 0
        while not done.is_set():
            serial += 1
            # The memory of an earlier message is too small for this one.
            total = (40 << 20) + (serial % 1000 << 16)
            out.send_bytes(struct.pack("<8sHHIQQ", b"THALWEGL", 1, 0, serial, total, 0) + data)
            with suppress(thalweg.Timeout):
                into.receive_bytes(timeout=0)

    receiving = threading.Thread(target=receive)
    receiving.start()
    try:
        for _ in range(200):
            child = os.fork()
            if child == 0:
                # Ends the child if it hangs.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(60)
                del array
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        done.set()
        receiving.join()
