"""Two programs, or two threads, at the ends of a channel."""

import os
import resource
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import thalweg
from conftest import PATIENCE, Start, ended

SENDER = """
    import sys, numpy as np, thalweg
    with thalweg.offer(sys.argv[1]) as out:
        for number in range(int(sys.argv[2])):
            out.send(np.full((3, number), number))
"""
RECEIVER = """
    import sys, thalweg
    sums = [int(array.sum()) for array in thalweg.take(sys.argv[1])]
    print(len(sums), sum(sums))
"""


def waits_for(condition: object, what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, what
        time.sleep(0.01)


def test_the_sender_may_come_first(start: Start, tmp_path: Path) -> None:
    sender = start(SENDER, "quotes", 100)
    waits_for((tmp_path / "thalweg" / "quotes").exists, "nobody offers")
    assert ended(start(RECEIVER, "quotes")) == f"100 {sum(3 * n * n for n in range(100))}"
    ended(sender)
    assert not list((tmp_path / "thalweg").iterdir()), "something is left"


def test_the_receiver_may_come_first(start: Start) -> None:
    receiver = start(
        """
        import sys, thalweg
        frames = thalweg.take("quotes")
        try:
            frames.receive(timeout=0.1)
        except thalweg.Timeout:
            print("nobody yet", flush=True)
        print(sum(1 for _ in frames))
        """
    )
    assert receiver.stdout is not None and receiver.stdout.readline() == "nobody yet\n"
    ended(start(SENDER, "quotes", 100))
    assert ended(receiver) == "100"


def test_a_ring_holds_several_of_the_first_array_unless_told_otherwise(place: str) -> None:
    with thalweg.offer(place) as out:
        into = thalweg.take(place)
        thread = threading.Thread(target=lambda: into.receive(timeout=PATIENCE))
        thread.start()
        out.send(bytes(3 << 20))
        thread.join()
        for _ in range(3):
            out.send(bytes(3 << 20), timeout=PATIENCE)
        assert out.sent == 4 and out.peer == os.getpid() and into.peer == os.getpid()
        into.close()


def test_a_second_taker_waits_for_another_offer(place: str) -> None:
    first, second = thalweg.take(place), thalweg.take(place)
    got: dict[int, bytes] = {}

    def take(number: int, end: thalweg.Consumer) -> None:
        got[number] = end.receive(timeout=PATIENCE).tobytes()
        end.close()

    threads = [threading.Thread(target=take, args=pair) for pair in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for message in (b"one", b"two"):
        with thalweg.offer(place) as out:
            out.send(message, timeout=PATIENCE)
            out.drain(timeout=PATIENCE)
    for thread in threads:
        thread.join()
    assert sorted(got.values()) == [b"one", b"two"]


def test_timeouts_lose_nothing() -> None:
    out, into = thalweg.pair(capacity=1 << 16)
    with pytest.raises(thalweg.Timeout) as told:
        into.receive(timeout=0)
    assert isinstance(told.value, TimeoutError) and isinstance(told.value, thalweg.Error)
    sent = 0
    with pytest.raises(thalweg.Timeout):
        while True:
            out.send(bytes(10_000), timeout=0.05)
            sent += 1
    assert sent >= 5
    with pytest.raises(thalweg.Timeout):
        out.drain(timeout=0.05)
    for _ in range(sent):
        assert into.receive(timeout=0).nbytes == 10_000
    assert into.try_receive() is None and into.received == sent == out.sent
    out.drain(timeout=0)
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            into.receive(timeout=wrong)


def test_after_a_goodbye_iteration_ends_and_receive_says_so() -> None:
    out, into = thalweg.pair()
    out.send(b"last")
    out.close()
    out.close()
    assert [array.tobytes() for array in into] == [b"last"]
    with pytest.raises(thalweg.Closed) as told:
        into.receive()
    assert told.value.moved == 1
    into.close()
    with pytest.raises(ValueError, match="closed"):
        into.receive()


def test_a_gone_receiver_is_told_to_the_sender() -> None:
    out, into = thalweg.pair()
    out.send(b"1")
    into.receive()
    into.close()
    with pytest.raises(thalweg.Closed) as told:
        out.send(b"2")
    assert told.value.moved == 1


def test_what_was_received_lives_on_after_its_end_is_gone() -> None:
    out, into = thalweg.pair()
    out.send(np.arange(1000))
    array = into.receive()
    out.close()
    into.close()
    del out, into
    assert array.sum() == 499_500


def test_a_handle_is_for_one_thread_at_a_time() -> None:
    out, into = thalweg.pair()
    thread = threading.Thread(target=lambda: into.receive(timeout=PATIENCE))
    thread.start()
    told = []
    until = time.monotonic() + PATIENCE
    while not told:
        assert time.monotonic() < until
        try:
            into.try_receive()
        except RuntimeError as error:
            told.append(str(error))
    assert "another thread" in told[0]
    out.send(b"")
    thread.join()


def test_other_threads_run_while_one_waits() -> None:
    out, into = thalweg.pair()
    received: list[int] = []
    thread = threading.Thread(target=lambda: received.append(into.receive(timeout=PATIENCE).size))
    thread.start()
    out.send(b"now")
    thread.join()
    assert received == [3]


def test_a_forked_child_may_not_use_its_parents_ends() -> None:
    out, into = thalweg.pair()
    out.send(np.arange(3))
    array = into.receive()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            refused = 0
            for call in (lambda: out.send(b""), lambda: out.empty(3), into.receive, into.try_receive):
                try:
                    call()
                except thalweg.NotPermitted:
                    refused += 1
            assert array.sum() == 3
            del array
            out.close()
            into.close()
            status = 0 if refused == 4 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    out.send(b"of the parent")
    assert into.receive().tobytes() == b"of the parent"


def test_names_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(thalweg.NotPermitted):
        thalweg.offer(".hidden")
    with pytest.raises(thalweg.Error) as told:
        thalweg.offer(str(tmp_path / "no" / "folder" / "here"))
    assert told.value.errno == 2
    with thalweg.offer(str(tmp_path / "here")), pytest.raises(thalweg.Error) as told:
        thalweg.offer(str(tmp_path / "here"))
    assert told.value.errno is not None and told.value.strerror


def test_an_event_loop_is_woken_by_the_descriptor() -> None:
    import asyncio

    out, into = thalweg.pair()

    async def received() -> bytes:
        while (array := into.try_receive()) is None:
            if into.arm():
                news = asyncio.Event()
                asyncio.get_running_loop().add_reader(into.fileno(), news.set)
                asyncio.get_running_loop().call_soon(out.send, b"woken")
                await asyncio.wait_for(news.wait(), PATIENCE)
                asyncio.get_running_loop().remove_reader(into.fileno())
        return bytes(array)

    assert asyncio.run(received()) == b"woken"


def test_an_event_loop_does_not_wait_for_a_message_that_is_already_here() -> None:
    out, into = thalweg.pair(capacity=1 << 16)
    sent = np.arange(50_000)
    sending = threading.Thread(target=out.send, args=(sent,))
    sending.start()
    with pytest.raises(thalweg.Corrupt):
        into.receive_object(timeout=PATIENCE)
    sending.join()
    # The call above has reassembled a long message, and has left it.
    assert into.is_ready() and not into.arm()
    assert (into.receive() == sent).all()
    assert into.arm()


def test_an_event_loop_does_not_wait_for_an_error_that_is_already_known() -> None:
    out, into = thalweg.pair()
    out.send(np.arange(3.0))
    message = bytearray(into.receive_bytes())
    # The type, after the fixed fields and one dimension. numpy rejects it after the message was removed.
    message[40:41] = b"~"
    out.send(b"good")
    out.send_bytes(message)
    assert len(into.receive_all()) == 1
    assert into.is_ready() and not into.arm()
    with pytest.raises(thalweg.Corrupt):
        into.receive()
    assert into.arm()


@pytest.mark.parametrize("brief", ["try_receive", 0, 0.001])
def test_who_asks_often_and_briefly_meets_who_offers(start: Start, place: str, brief: float | str) -> None:
    sender = start(SENDER, place, 20)
    into, seen = thalweg.take(place), 0
    while seen < 20:
        try:
            array = into.try_receive() if isinstance(brief, str) else into.receive(timeout=brief)
        except thalweg.Timeout:
            continue
        if array is not None:
            assert array.shape == (3, seen) and (array == seen).all()
            seen += 1
    ended(sender)


@pytest.mark.parametrize("many", [False, True])
def test_who_offers_often_and_briefly_meets_who_takes(start: Start, place: str, many: bool) -> None:
    receiver = start(RECEIVER if not many else RECEIVER.replace("thalweg.take(", "thalweg.gather(producers=1, name="), place)
    out = thalweg.join(place) if many else thalweg.offer(place)
    for number in range(20):
        while True:
            try:
                out.send(np.full((3, number), number), timeout=0)
                break
            except thalweg.Timeout:
                continue
    out.close()
    assert ended(receiver) == f"20 {sum(3 * number * number for number in range(20))}"


def test_a_lack_of_descriptors_has_the_class_of_the_package(start: Start, place: str) -> None:
    sender = start(SENDER, place, 1)
    waits_for(lambda: Path(place).exists(), "the sender does not listen")
    into, limits = thalweg.take(place), resource.getrlimit(resource.RLIMIT_NOFILE)
    refused = 0
    try:
        for most in range(len(os.listdir("/proc/self/fd")) - 1, limits[0]):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
            try:
                assert into.receive(timeout=PATIENCE).shape == (3, 0)
                break
            except thalweg.Error:
                refused += 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert refused > 0
    ended(sender)


def test_a_larger_capacity_is_advised_where_it_can_exist() -> None:
    out, _ = thalweg.pair(capacity=1 << 12, parts=False)
    with pytest.raises(thalweg.TooLarge, match="a larger `capacity`"):
        out.send_bytes(bytes(1 << 13))
    # bytes(size) maps zero pages, which are never written, so this takes no memory.
    for size in ((1 << 30) - 31, 1 << 30):
        with pytest.raises(thalweg.TooLarge, match="no ring has room for it"):
            out.send_bytes(bytes(size))
    with pytest.raises(thalweg.TooLarge, match="no ring has room for it"):
        thalweg.pair(capacity=1 << 31)
