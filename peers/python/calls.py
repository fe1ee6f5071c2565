"""Measures the time of a call: `try_receive` on an empty ring, through the extension module and through ctypes."""

import ctypes
import threading
from pathlib import Path

import thalweg
from rounds import taken, timed

CALLS = 20_000
#: `peers/install python` builds it from libthalweg.a.
LIBRARY = Path(__file__).resolve().parents[2] / ".tools" / "peers" / "libthalweg.so"
#: TW_TIMEOUT
TIMEOUT = 9


def by_ctypes():
    """Opens a ring with the C library, and returns a function that calls its consumer; None without the library."""
    if not LIBRARY.exists():
        print("ctypes left out: make build && peers/install python")
        return None
    c = ctypes.CDLL(str(LIBRARY))
    near, far = ctypes.c_void_p(), ctypes.c_void_p()
    assert c.tw_link_pair(ctypes.byref(near), ctypes.byref(far), None) == 0
    producer, consumer = ctypes.c_void_p(), ctypes.c_void_p()
    patience = ctypes.c_int64(5_000_000_000)
    c.tw_producer_open.argtypes = c.tw_consumer_open.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
    ]  # fmt: skip
    offers = threading.Thread(target=c.tw_producer_open, args=(ctypes.byref(near), None, patience, ctypes.byref(producer), None))
    offers.start()
    assert c.tw_consumer_open(ctypes.byref(far), None, patience, ctypes.byref(consumer), None) == 0
    offers.join()
    receive = c.tw_consumer_receive
    receive.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    message, length = ctypes.c_void_p(), ctypes.c_size_t()
    at = ctypes.byref(message), ctypes.byref(length)
    assert receive(consumer, 0, *at, None) == TIMEOUT
    return lambda: receive(consumer, 0, *at, None)


def empty(rounds):
    """Returns the seconds per call."""
    out, into = thalweg.pair()
    calls = {"thalweg try_receive": into.try_receive, "thalweg is_ready": into.is_ready}
    if (call := by_ctypes()) is not None:
        calls["ctypes tw_consumer_receive"] = call

    def calling(call):
        def some():
            for _ in range(CALLS):
                call()

        wall, cpu = timed(some)[0]
        return wall / CALLS, cpu / CALLS

    return taken({name: lambda _, call=call: calling(call) for name, call in calls.items()}, rounds)
