"""Ctrl-C ends every wait, and the end can be used afterwards."""

import os
import signal
import time
from pathlib import Path

import pytest
from conftest import PATIENCE, Start, ended

WAITS = {
    "for an offer": ("into = thalweg.take(place)", "into.receive()"),
    "for the first message": (
        "out = thalweg.offer(place); into = thalweg.take(place)",
        "into.receive()",
    ),
    "for a receiver": ("out = thalweg.offer(place)", "out.send(b'')"),
    "for a message": ("out, into = thalweg.pair()", "into.receive()"),
    "in a loop": ("out, into = thalweg.pair()", "list(into)"),
    "for one in another array": ("out, into = thalweg.pair()", "into.receive_into(bytearray(3))"),
    "for bytes": ("out, into = thalweg.pair()", "into.receive_bytes()"),
    "for room": (
        "out, into = thalweg.pair(capacity=1 << 16); [out.send(bytes(20000)) for _ in range(3)]",
        "out.send(bytes(20000))",
    ),
    "for a loan": (
        "out, into = thalweg.pair(capacity=1 << 16); [out.send(bytes(20000)) for _ in range(3)]",
        "out.empty(2500)",
    ),
    "until all is received": ("out, into = thalweg.pair(); out.send(b'')", "out.drain()"),
    "for an object": ("out, into = thalweg.pair()", "into.receive_object()"),
    "for the other side alone": ("into = thalweg.take(place)", "into.open()"),
    "for room for a part": ("out, into = thalweg.pair(capacity=1 << 16)", "out.send(bytes(1 << 20))"),
    "for senders": ("into = thalweg.gather(place)", "into.receive()"),
    "for who gathers": ("out = thalweg.join(place)", "out.send(b'')"),
    "for a broadcast": ("into = thalweg.subscribe(place)", "into.receive()"),
    "for who subscribes": ("out = thalweg.broadcast(place)", "out.wait(1)"),
    "for an item": ("from thalweg.multiprocessing import Queue; queue = Queue()", "queue.get()"),
    "for room in a queue": (
        "from thalweg.multiprocessing import Queue; queue = Queue(capacity=1 << 16)",
        "[queue.put(bytes(20000)) for _ in range(9)]",
    ),
}


@pytest.mark.parametrize("wait", WAITS)
def test_an_interrupt_ends_a_wait(start: Start, tmp_path: Path, wait: str) -> None:
    prepare, call = WAITS[wait]
    program = start(
        f"""
        import signal, sys, thalweg
        # What runs the tests may ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        place = sys.argv[1]
        {prepare}
        try:
            print("waits", flush=True)
            {call}
        except KeyboardInterrupt:
            # It is nobody's any more.
            if "out" in globals() and "into" in globals() and "pair" in {prepare!r}:
                try:
                    into.try_receive()
                except thalweg.Closed:
                    pass
            print("interrupted")
        """,
        tmp_path / "here",
    )
    assert program.stdout is not None and program.stdout.readline() == "waits\n"
    os.kill(program.pid, signal.SIGINT)
    assert ended(program) == "interrupted"


def test_a_handler_that_uses_the_waiting_end_is_told(start: Start) -> None:
    program = start(
        """
        import os, signal, thalweg
        out, into = thalweg.pair()
        def handler(*_):
            try:
                into.try_receive()
            except RuntimeError as error:
                if not out.sent:
                    out.send_bytes(str(error).encode())
        signal.signal(signal.SIGUSR1, handler)
        print("waits", flush=True)
        print(into.receive_bytes())
        """
    )
    assert program.stdout is not None and program.stdout.readline() == "waits\n"
    until = time.monotonic() + PATIENCE
    # Repeats the signal, because one that arrives before the wait does not interrupt the call.
    while program.poll() is None and time.monotonic() < until:
        os.kill(program.pid, signal.SIGUSR1)
        time.sleep(0.02)
    printed, complaint = program.communicate(timeout=PATIENCE)
    assert "another thread" in printed, complaint
