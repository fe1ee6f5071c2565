"""Queues between processes: compared with those of the standard library where both have the same behaviour, and after
kills."""

import gc
import multiprocessing
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess

import numpy as np
import pytest
import thalweg
from conftest import PATIENCE, Start, ended
from thalweg.multiprocessing import Empty, Full, JoinableQueue, Pipe, Queue, SimpleQueue

# Ignores the warning of Python 3.12 and later about fork with threads, because these tests check that our queues survive
# such a fork.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


KILLS = int(os.environ.get("THALWEG_KILLS", "3"))


def put_numbers(into: "Queue | SimpleQueue", first: int, count: int) -> None:
    for number in range(first, first + count):
        into.put({"number": number, "array": np.full(number % 50, number)})


def put_and_wait(into: Queue, told: str) -> None:
    into.put(np.arange(100))
    into.put(told)
    signal.pause()


def put_without_end(into: Queue) -> None:
    number = 0
    while True:
        into.put((os.getpid(), number, np.full(5000, number)))
        number += 1


def begun(method: str, work: object, *arguments: object) -> BaseProcess:
    process = multiprocessing.get_context(method).Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def joined(process: BaseProcess) -> None:
    process.join(PATIENCE)
    assert process.exitcode == 0


@pytest.mark.parametrize("method", ["spawn", "fork", pytest.param("forkserver", marks=pytest.mark.long)])
def test_children_of_every_kind_put_and_their_items_keep_their_order(method: str) -> None:
    into = Queue()
    children = [begun(method, put_numbers, into, first, 50) for first in (0, 1000)]
    seen: list[int] = []
    for _ in range(100):
        item = into.get(timeout=PATIENCE)
        assert (item["array"] == item["number"]).all() and item["array"].flags.writeable
        seen.append(item["number"])
    for child in children:
        joined(child)
    assert [n for n in seen if n < 1000] == list(range(50)) and [n for n in seen if n >= 1000] == list(range(1000, 1050))
    assert into.empty() and into.departed() == ()
    # Starts a process that connects late.
    late = begun(method, put_numbers, into, 7, 1)
    assert into.get(timeout=PATIENCE)["number"] == 7
    joined(late)
    into.close()


def test_the_process_that_gets_may_put_too_also_from_threads() -> None:
    into = Queue(capacity=1 << 16)
    into.put("first")
    assert into.get() == "first"
    threads = [threading.Thread(target=put_numbers, args=(into, 1000 * at, 100)) for at in range(3)]
    for thread in threads:
        thread.start()
    seen = [into.get(timeout=PATIENCE)["number"] for _ in range(300)]
    for thread in threads:
        thread.join()
    assert sorted(seen) == [1000 * at + n for at in range(3) for n in range(100)]
    assert into.empty()
    into.close()


def test_full_and_empty_as_the_standard_librarys() -> None:
    assert Empty is queue.Empty and Full is queue.Full
    into = Queue(capacity=1 << 16)
    for call in (into.get_nowait, lambda: into.get(timeout=0.01), lambda: into.get(block=False, timeout=5)):
        with pytest.raises(Empty):
            call()
    put = 0
    with pytest.raises(Full):
        while True:
            into.put(np.zeros(1000), timeout=0.01)
            put += 1
    with pytest.raises(Full):
        into.put_nowait(np.zeros(1000))
    assert put >= 4 and not into.empty()
    for _ in range(put):
        assert into.get_nowait().size == 1000
    assert into.empty()
    into.close()
    for use in (into.get, lambda: into.put(1)):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_an_item_larger_than_the_ring_makes_a_larger_one_and_keeps_its_place() -> None:
    into = Queue()
    child = begun("fork", put_sizes, into)
    assert [into.get(timeout=PATIENCE).nbytes for _ in range(4)] == [8, 5 << 20, 8, 30 << 20]
    joined(child)
    # Puts and gets in this process, in one thread.
    for size in (10, 4 << 20, 9 << 20):
        into.put(np.zeros(size, np.uint8))
    for size in (10, 4 << 20, 9 << 20):
        assert not into.empty() and into.get_nowait().nbytes == size
    assert into.empty()
    into.close()
    fixed = Queue(capacity=1 << 16)
    with pytest.raises(thalweg.TooLarge):
        fixed.put(bytes(1 << 20))
    fixed.close()


def put_sizes(into: Queue) -> None:
    for size in (8, 5 << 20, 8, 30 << 20):
        into.put(np.zeros(size, np.uint8))


def test_closing_ends_a_get_that_waits() -> None:
    into = Queue()
    told: list[str] = []

    def get() -> None:
        try:
            into.get()
        except ValueError as error:
            told.append(str(error))

    waits = threading.Thread(target=get)
    waits.start()
    into.close()
    into.close()
    waits.join(PATIENCE)
    assert told == ["the queue is closed"]


def test_nothing_is_left_of_queues_that_are_gone() -> None:
    def used() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    def exchange() -> None:
        into = Queue()
        child = begun("fork", put_numbers, into, 0, 2)
        assert [into.get(timeout=PATIENCE)["number"] for _ in range(2)] == [0, 1]
        into.put("own")
        assert into.get(timeout=PATIENCE) == "own"
        joined(child)
        child.close()

    exchange()
    before = used()
    for _ in range(5):
        exchange()
    assert used() == before


def test_views_in_the_ring_are_read_only_and_kept() -> None:
    into = Queue(copy=False)
    into.put(np.arange(10))
    got = into.get()
    assert not got.flags.writeable
    into.close()
    assert got.sum() == 45


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_who_puts_waits_for_nobody_who_gets_while_there_is_room(method: str) -> None:
    into = Queue()
    child = begun(method, put_numbers, into, 0, 20)
    # The child has ended, but a thread of this process may still record its connection.
    joined(child)
    assert into.get(timeout=PATIENCE)["number"] == 0
    assert not into.empty()
    assert [into.get(timeout=PATIENCE)["number"] for _ in range(19)] == list(range(1, 20))
    assert into.empty() and into.departed() == ()
    into.close()


def put_thousands(into: Queue) -> None:
    for number in range(40):
        into.put(np.full(1000, number))


@pytest.fixture
def slow_collection() -> Iterator[None]:
    """Makes each garbage collection take longer than the check for a full ring, as on a busy machine."""

    def rest(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            time.sleep(0.5)

    gc.collect()
    gc.disable()
    gc.callbacks.append(rest)
    yield
    gc.callbacks.remove(rest)
    gc.enable()


@pytest.mark.usefixtures("slow_collection")
def test_kept_items_that_fill_a_ring_are_told_and_nothing_is_lost() -> None:
    into = Queue(capacity=1 << 16, copy=False)
    child = begun("fork", put_thousands, into)
    kept = []
    with pytest.raises(thalweg.TooLarge, match="still in use"):
        while True:
            kept.append(into.get(timeout=PATIENCE))
    seen = [int(array[0]) for array in kept]
    kept.clear()
    while len(seen) < 40:
        seen.append(int(into.get(timeout=PATIENCE)[0]))
    assert seen == list(range(40))
    joined(child)
    into.close()


def test_a_queue_without_descriptors_rests_and_lets_senders_in_later(start: Start) -> None:
    program = start(
        """
        import os, pickle, resource, sys, time
        from thalweg.multiprocessing import Queue
        into = Queue()
        print(pickle.dumps(into).hex(), flush=True)
        most = max(map(int, os.listdir("/proc/self/fd"))) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        full = []
        try:
            while True:
                full.append(os.open("/", os.O_PATH))
        except OSError:
            print("full", flush=True)
        sys.stdin.readline()
        before = time.process_time()
        time.sleep(1)
        print("at rest" if time.process_time() - before < 0.5 else "busy", flush=True)
        for descriptor in full:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        print(into.get(timeout=600))
        into.close()
        """
    )
    assert program.stdout is not None and program.stdin is not None
    into = pickle.loads(bytes.fromhex(program.stdout.readline()))
    assert program.stdout.readline() == "full\n"
    putting = threading.Thread(target=lambda: into.put("at last", timeout=PATIENCE))
    putting.start()
    program.stdin.write("\n")
    assert ended(program).split("\n") == ["at rest", "at last"]
    putting.join()


def test_a_simple_queue() -> None:
    into: SimpleQueue = SimpleQueue()
    assert into.empty()
    child = begun("fork", put_numbers, into, 5, 2)
    assert [into.get()["number"], into.get()["number"]] == [5, 6]
    joined(child)
    into.close()


def test_what_the_standard_has_and_this_has_not_says_why() -> None:
    with pytest.raises(NotImplementedError, match="capacity"):
        Queue(maxsize=3)
    with pytest.raises(NotImplementedError, match="task_done"):
        JoinableQueue()
    with pytest.raises(NotImplementedError, match="each direction"):
        Pipe()
    into = Queue()
    for call in (into.qsize, into.full):
        with pytest.raises(NotImplementedError):
            call()
    into.join_thread()
    into.cancel_join_thread()
    assert pickle.loads(pickle.dumps(into)) is into
    into.close()


def get_elsewhere(into: Queue, back: Queue) -> None:
    for call in (into.get, into.empty, into.departed):
        try:
            call()
        except thalweg.NotPermitted as error:
            back.put(str(error))


def test_only_the_process_that_made_it_gets() -> None:
    into, back = Queue(), Queue()
    child = begun("fork", get_elsewhere, into, back)
    for _ in range(3):
        assert str(os.getpid()) in back.get(timeout=PATIENCE)
    joined(child)
    into.close()
    back.close()


def test_an_item_that_cannot_be_pickled_or_unpickled_is_told_and_the_next_comes() -> None:
    into = Queue()
    with pytest.raises((pickle.PicklingError, AttributeError)):
        into.put(lambda: 0)
    into.put(Unloadable())
    into.put("next")
    with pytest.raises(ZeroDivisionError):
        into.get()
    assert into.get() == "next"
    into.close()


class Unloadable:
    def __reduce__(self) -> tuple[object, ...]:
        return divmod, (1, 0)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_killed_sender_is_told_and_the_others_go_on(method: str) -> None:
    into = Queue()
    victim = begun(method, put_and_wait, into, "there")
    assert into.get(timeout=PATIENCE).size == 100 and into.get(timeout=PATIENCE) == "there"
    assert victim.pid is not None and not into.departed()
    os.kill(victim.pid, signal.SIGKILL)
    victim.join(PATIENCE)
    other = begun("fork", put_numbers, into, 0, 3)
    assert [into.get(timeout=PATIENCE)["number"] for _ in range(3)] == [0, 1, 2]
    joined(other)
    assert into.empty()
    (told,) = into.departed()
    assert told.pid == victim.pid and told.received == 2 and isinstance(told.error, thalweg.PeerDied)
    into.close()


def test_of_senders_killed_in_mid_put_every_item_that_comes_is_whole() -> None:
    into = Queue(capacity=1 << 20)
    killed = 0
    # On a busy machine, items of a killed process may come in the next turn.
    following: dict[int, int] = {}
    for turn in range(KILLS):
        victims = [begun("fork", put_without_end, into) for _ in range(2)]
        received = 0
        while received < 40 or killed == turn:
            pid, number, array = into.get(timeout=PATIENCE)
            assert (array == number).all() and number == following.get(pid, 0)
            following[pid] = number + 1
            received += 1
            if received > 20 and killed == turn and pid in [victim.pid for victim in victims]:
                os.kill(pid, signal.SIGKILL)
                killed += 1
        for victim in victims:
            victim.kill()
            victim.join(PATIENCE)
        while True:
            try:
                pid, number, array = into.get(timeout=0.05)
            except Empty:
                break
            assert (array == number).all() and number == following.get(pid, 0)
            following[pid] = number + 1
    assert killed == KILLS and KILLS <= len(into.departed()) <= 2 * KILLS
    into.close()


def test_a_killed_receiver_is_told_in_every_put(start: Start) -> None:
    program = start(
        """
        import pickle, sys
        from thalweg.multiprocessing import Queue
        into = Queue(capacity=1 << 16)
        print(pickle.dumps(into).hex(), flush=True)
        into.get()
        print("got", flush=True)
        sys.stdin.read()
        """
    )
    assert program.stdout is not None
    into = pickle.loads(bytes.fromhex(program.stdout.readline()))
    into.put("first", timeout=PATIENCE)
    other = pickle.loads(pickle.dumps(into))
    assert program.stdout.readline() == "got\n"
    waits = threading.Thread(target=lambda: told.append(peer_died(other)))
    told: list[bool] = []
    waits.start()
    # The killed process no longer accepts the connection.
    program.kill()
    program.wait()
    waits.join()
    assert told == [True]
    for _ in range(3):
        assert peer_died(into)
        assert peer_died(other)


def peer_died(into: Queue) -> bool:
    try:
        while True:
            into.put(bytes(10_000), timeout=PATIENCE)
    except thalweg.PeerDied:
        return True


def test_a_queue_that_was_closed_is_no_death(start: Start) -> None:
    into = Queue()
    child = start(
        """
        import pickle, sys, thalweg
        into = pickle.loads(bytes.fromhex(sys.argv[1]))
        into.put("first")
        print("put", flush=True)
        sys.stdin.readline()
        for _ in range(2):
            try:
                while True:
                    into.put("more")
            except thalweg.Closed:
                print("closed", flush=True)
        """,
        pickle.dumps(into).hex(),
    )
    assert into.get(timeout=PATIENCE) == "first"
    assert child.stdout is not None and child.stdout.readline() == "put\n" and child.stdin is not None
    into.close()
    child.stdin.write("\n")
    assert ended(child) == "closed\nclosed"


def test_nobody_without_the_key_gets_in() -> None:
    into = Queue()
    name = into._address.name
    for said in (b"", b"x", bytes(40)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as call:
            call.connect(name)
            if said:
                call.send(said)
            into.empty()
            if said:
                assert call.recv(1) == b""
    into.put("mine")
    assert into.get(timeout=PATIENCE) == "mine" and into.departed() == ()
    into.close()


def test_nothing_is_left_in_the_file_system(start: Start, tmp_path: object) -> None:
    ended(start("from thalweg.multiprocessing import Queue\nq = Queue()\nq.put(1)\nprint(q.get())"))
    assert not list(tmp_path.iterdir())  # type: ignore[attr-defined]


def test_an_idle_forked_child_keeps_no_dead_queue_alive(start: Start) -> None:
    program = start(
        """
        import multiprocessing, os, pickle, signal
        from thalweg.multiprocessing import Queue
        into = Queue()
        child = multiprocessing.get_context("fork").Process(target=signal.pause)
        child.start()
        print(child.pid, pickle.dumps(into).hex(), flush=True)
        signal.pause()
        """
    )
    assert program.stdout is not None
    pid, text = program.stdout.readline().split()
    try:
        program.kill()
        program.wait()
        assert peer_died(pickle.loads(bytes.fromhex(text)))
    finally:
        os.kill(int(pid), signal.SIGKILL)
