"""Queues: waits of the first put, timeouts of get, and a put or get inside of another put or get of one thread."""

import gc
import logging
import logging.handlers
import os
import threading
from collections import Counter

import numpy as np
import pytest
import thalweg
from conftest import PATIENCE, Start
from test_queue import begun, joined, put_thousands
from thalweg.multiprocessing import Empty, Queue

# Ignores the warning of Python 3.12 and later about fork with threads, because these tests check that
# our queues survive such a fork.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def log_some(into: Queue, count: int) -> None:
    logger = logging.getLogger("thalweg-test")
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.handlers.QueueHandler(into))
    for number in range(count):
        logger.info("record %d of %d", number, os.getpid())


@pytest.mark.parametrize("method", [pytest.param("spawn", marks=pytest.mark.long), "fork"])
def test_the_standard_logging_recipe_loses_no_record(method: str) -> None:
    into = Queue()
    children = [begun(method, log_some, into, 20) for _ in range(3)]
    records = [into.get(timeout=PATIENCE) for _ in range(60)]
    assert len({record.getMessage() for record in records}) == 60
    for child in children:
        joined(child)
    into.close()


def put_at_once(into: Queue) -> None:
    for number, call in enumerate(IMPATIENT):
        call(Queue.__reduce__(into)[0](*Queue.__reduce__(into)[1]), number)


IMPATIENT = [
    lambda into, number: into.put_nowait(number),
    lambda into, number: into.put(number, block=False),
    lambda into, number: into.put(number, timeout=0),
    lambda into, number: into.put(number, timeout=1e-6),
    lambda into, number: into.put(np.full(3 << 20, number, np.uint8), timeout=0),
]


def test_a_first_item_is_put_without_patience_where_there_is_room() -> None:
    into = Queue()
    child = begun("fork", put_at_once, into)
    assert [int(np.max(into.get(timeout=PATIENCE))) for _ in IMPATIENT] == list(range(len(IMPATIENT)))
    joined(child)
    into.close()


def put_from_many_threads(into: Queue) -> None:
    def put(number: int) -> None:
        for _ in range(100):
            into.put_nowait(number)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_another_thread_that_puts_is_no_missing_room() -> None:
    into = Queue()
    child = begun("spawn", put_from_many_threads, into)
    counts = Counter(into.get(timeout=PATIENCE) for _ in range(400))
    assert counts == dict.fromkeys(range(4), 100)
    joined(child)
    into.close()


class PutsAgain:
    """An object that calls `put` while it is pickled, and while it is collected."""

    def __init__(self, into: Queue, number: int) -> None:
        self.into, self.number, self.cycle = into, number, self

    def __reduce__(self) -> tuple[type, tuple[int]]:
        self.into.put_nowait(("inside", self.number))
        return int, (self.number,)

    def __del__(self) -> None:
        self.into.put_nowait(("collected", self.number))


def put_inside_of_put(into: Queue) -> None:
    gc.set_threshold(1)
    for number in range(20):
        into.put(PutsAgain(into, number))
        into.put([[] for _ in range(100)])
    gc.collect()
    into.put("end")


@pytest.mark.parametrize("method", [pytest.param("spawn", marks=pytest.mark.long), "fork"])
def test_a_put_inside_of_a_put_arrives(method: str) -> None:
    into = Queue()
    child = begun(method, put_inside_of_put, into)
    seen = list(iter(lambda: into.get(timeout=PATIENCE), "end"))
    for number in range(20):
        assert seen.index(("inside", number)) < seen.index(number)
        assert ("collected", number) in seen
    joined(child)
    into.close()


SIGNALLED = """
import os, signal, sys, threading, time
import numpy as np
from thalweg.multiprocessing import Full, Queue

into = Queue(capacity=1 << 16)
handled = []

def handler(*_):
    try:
        into.put_nowait("from the handler")
    except Full:
        handled.append(True)
    into.put("waited for")
    handled.append(False)

signal.signal(signal.SIGUSR1, handler)

def get():
    os.kill(os.getpid(), signal.SIGUSR1)
    while not handled:
        time.sleep(0.01)
    seen = []
    while "last" not in seen:
        if isinstance(item := into.get(), str):
            seen.append(item)
    print(seen)

try:
    while True:
        into.put(np.zeros(1000), timeout=0)
except Full:
    pass
getting = threading.Timer(0.2, get)
getting.start()
into.put("waits for room")
into.put("last")
getting.join()
"""


def test_a_signal_handler_puts_while_its_thread_waits_for_room(start: Start) -> None:
    out, _ = start(SIGNALLED).communicate(timeout=PATIENCE)
    assert out.split("\n")[-2] == "['waited for', 'waits for room', 'last']", out


class GetsAgain:
    """An object that calls `get` while it is unpickled."""

    queue: Queue

    def __reduce__(self) -> tuple[object, tuple[()]]:
        return get_again, ()


def get_again() -> str:
    try:
        GetsAgain.queue.get(timeout=PATIENCE)
    except RuntimeError as error:
        return str(error)
    return "it got"


def test_a_get_inside_of_a_get_is_an_error_and_no_hang() -> None:
    into = GetsAgain.queue = Queue()
    into.put(GetsAgain())
    into.put("next")
    assert "a get() of this thread is using the queue" in into.get(timeout=PATIENCE)
    assert into.get(timeout=PATIENCE) == "next"
    into.close()


def test_silent_senders_do_not_prolong_a_timeout() -> None:
    into = Queue(copy=False)
    into.put("first")
    assert into.get() == "first"
    assert into._receiver is not None
    [source] = into._receiver._sources
    timeouts: list[float] = []

    class Observed:
        def __init__(self, take: thalweg.Consumer) -> None:
            self._take = take

        def receive_object(self, timeout: float) -> object:
            timeouts.append(timeout)
            return self._take.receive_object(timeout=timeout)

        def __getattr__(self, name: str) -> object:
            return getattr(self._take, name)

    source.take = Observed(source.take)  # type: ignore[assignment]
    # On a busy machine, a short timeout may have passed before the sender is asked.
    for _ in range(100):
        with pytest.raises(Empty):
            into.get(timeout=0.01)
        if timeouts:
            break
    assert timeouts and max(timeouts) <= 0.01
    into.close()


def test_kept_items_that_fill_a_ring_are_reported_also_with_short_timeouts() -> None:
    into = Queue(capacity=1 << 16, copy=False)
    child = begun("fork", put_thousands, into)
    kept = [into.get(timeout=PATIENCE)]
    with pytest.raises(thalweg.TooLarge, match="still in use"):
        while True:
            try:
                kept.append(into.get(timeout=0.01))
            except Empty:
                pass
    seen = [int(array[0]) for array in kept]
    kept.clear()
    while len(seen) < 40:
        seen.append(int(into.get(timeout=PATIENCE)[0]))
    assert seen == list(range(40))
    joined(child)
    into.close()
