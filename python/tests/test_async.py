"""The ends of a channel in event loops."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
import thalweg
from conftest import PATIENCE, Start, Test, ended

JOINS = """
    import sys, numpy as np, thalweg
    with thalweg.join(sys.argv[1], capacity=1 << 14) as out:
        for number in range(40):
            out.send(np.full(500, number))
"""


def test_both_ends_in_one_loop(run: Callable[[Test], None]) -> None:
    async def test(place: str) -> None:
        got = []

        async def receive() -> None:
            async for array in thalweg.take_async(place):
                got.append(int(array.sum()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            async with thalweg.offer_async(place, capacity=1 << 16) as out:
                for number in range(200):
                    # The ring has room for few of these arrays.
                    await out.send(np.full(2000, number))
                assert out.sent == 200
        assert got == [2000 * number for number in range(200)]

    run(test)


def test_objects_bytes_and_arrays(run: Callable[[Test], None]) -> None:
    async def test(place: str) -> None:
        out, into = thalweg.offer_async(place), thalweg.take_async(place, copy=True)

        async def send() -> None:
            await out.send_object({"a": np.arange(3)})
            await out.send_bytes(b"bytes")
            await out.send(np.array(["2026-11-25"], "M8[D]"))
            out.close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            got = await into.receive_object()
            got["a"][0] = 7
            assert got["a"].tolist() == [7, 1, 2]
            assert await into.receive_bytes() == b"bytes"
            assert (await into.receive()).dtype == "M8[D]"
            with pytest.raises(thalweg.Closed):
                await into.receive()
            assert into.received == 3
        into.close()
        for call in (into.receive, lambda: out.send(b"")):
            with pytest.raises(ValueError, match="closed"):
                await call()

    run(test)


def test_what_is_cancelled_loses_no_message(run: Callable[[Test], None]) -> None:
    async def test(place: str) -> None:
        out, into = thalweg.offer_async(place, capacity=1 << 16), thalweg.take_async(place)
        sent: list[int] = []
        got: list[int] = []

        async def send() -> None:
            number = 0
            while number < 300:
                with anyio.move_on_after(0.0005 * (number % 4)):
                    await out.send(np.full(1500, number))
                    sent.append(number)
                    number += 1
                if number % 7 == 0:
                    await anyio.sleep(0)
            out.close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            while True:
                try:
                    with anyio.move_on_after(0.0005 * (len(got) % 3)):
                        array = await into.receive()
                        got.append(int(array[0]))
                        del array
                except thalweg.Closed:
                    break
                await anyio.sleep(0)
        assert got == sent == list(range(300))

    run(test)


@pytest.mark.parametrize("brief", [0, 0.002])
@pytest.mark.parametrize("sends, receives", [("offer_async", "take_async"), ("broadcast_async", "subscribe_async"), ("join", "gather_async")])
def test_callers_that_ask_often_and_briefly_meet(
    run: Callable[[Test], None], start: Start, sends: str, receives: str, brief: float
) -> None:
    async def briefly(call: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            with anyio.move_on_after(brief):
                return await call()
            await anyio.sleep(0)

    async def test(place: str) -> None:
        got: list[int] = []

        async def send() -> None:
            out = getattr(thalweg, sends)(place, capacity=1 << 14)
            if sends == "broadcast_async":
                await briefly(out.wait)
            for number in range(40):
                # The ring has room for a few of these arrays.
                await briefly(partial(out.send, np.full(500, number)))
            out.close()

        async def receive() -> None:
            into = getattr(thalweg, receives)(place, copy=True, **({"producers": 1} if sends == "join" else {}))
            with pytest.raises(thalweg.Closed):
                while True:
                    got.append(int((await briefly(into.receive))[0]))
            into.close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            if sends == "join":
                start(JOINS, place)
            else:
                tasks.start_soon(send)
        assert got == list(range(40))

    run(test)


def test_a_link_of_a_cancelled_call_is_let_go(run: Callable[[Test], None]) -> None:
    async def test(place: str) -> None:
        into = thalweg.take_async(place)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(place)
            listener.listen()
            for _ in range(3):
                with anyio.move_on_after(0.002):
                    await into.receive()
            link, _ = listener.accept()
            with link:
                # All cancelled calls share the link of the first cancelled call.
                listener.setblocking(False)
                with pytest.raises(BlockingIOError):
                    listener.accept()
                # Never answers, so that the connecting end must close the link.
                link.setblocking(False)
                while True:
                    try:
                        assert link.recv(1) == b""
                        break
                    except BlockingIOError:
                        await anyio.sleep(0.01)
            # Closes each end, which must release its link at once.
            for _ in range(2):
                into = thalweg.take_async(place)
                with anyio.move_on_after(0.002):
                    await into.receive()
                into.close()
                link, _ = listener.accept()
                with link:
                    assert link.recv(1) == b""

    run(test)


def test_nobody_there_is_waited_for_and_cancelled(run: Callable[[Test], None]) -> None:
    async def test(place: str) -> None:
        into = thalweg.take_async(place)
        for _ in range(3):
            with anyio.move_on_after(0.03) as scope:
                await into.receive()
            assert scope.cancelled_caught
        out = thalweg.offer_async(place)
        with anyio.move_on_after(0.03) as scope:
            await out.send(b"")
        assert scope.cancelled_caught and out.sent == 0

        # A cancelled connection attempt does not block other consumers.
        with anyio.move_on_after(0.03):
            await into.receive()
        other = thalweg.take_async(place)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(out.send, b"for the other")
            assert bytes(await other.receive()) == b"for the other"
        out.close()
        into.close()
        other.close()

    run(test)


def test_an_end_is_for_one_task_at_a_time(run: Callable[[Test], None]) -> None:
    async def test(place: str) -> None:
        out, into = thalweg.offer_async(place), thalweg.take_async(place)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(into.receive)
            while not into._is_used:
                await anyio.sleep(0)
            with pytest.raises(RuntimeError, match="another task"):
                await into.receive()
            with pytest.raises(RuntimeError, match="cancel"):
                into.close()
            await out.send(b"")
        out.close()
        into.close()

    run(test)


def test_other_tasks_run_while_messages_come_without_end(run: Callable[[Test], None]) -> None:
    async def test(place: str) -> None:
        ran = 0

        async def others() -> None:
            nonlocal ran
            while True:
                ran += 1
                await anyio.sleep(0)

        out, into = thalweg.offer_async(place, capacity=1 << 20), thalweg.take_async(place)

        async def send() -> None:
            for _ in range(1000):
                await out.send(b"")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            for _ in range(1000):
                await into.receive()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(others)
            # The ring has room for all messages, so no call waits.
            for _ in range(1000):
                await out.send(b"")
            assert ran > 10
            before = ran
            for _ in range(1000):
                await into.receive()
            assert ran > before + 10
            tasks.cancel_scope.cancel()
        out.close()
        into.close()

    run(test)


def test_a_killed_sender_is_told_after_all_that_it_sent(run: Callable[[Test], None], start: Start) -> None:
    async def test(place: str) -> None:
        sender = start(
            """
            import sys, thalweg
            out = thalweg.offer(sys.argv[1])
            for number in range(5):
                out.send(bytes([number]))
            print("there", flush=True)
            sys.stdin.read()
            """,
            place,
        )
        got = []
        with pytest.raises(thalweg.PeerDied):
            async for array in thalweg.take_async(place):
                got.append(array[0])
                if len(got) == 5:
                    assert sender.stdout is not None and sender.stdout.readline() == "there\n"
                    sender.kill()
        assert got == [0, 1, 2, 3, 4]

    run(test)


def test_a_killed_sender_is_told_where_its_child_keeps_the_descriptor(run: Callable[[Test], None], start: Start) -> None:
    async def test(place: str) -> None:
        sender = start(
            """
            import os, sys, thalweg
            out = thalweg.offer(sys.argv[1])
            out.send(b"sent")
            if os.fork() == 0:
                print("forked", flush=True)
            sys.stdin.read()
            os._exit(0)
            """,
            place,
        )
        into = thalweg.take_async(place)
        assert bytes(await into.receive()) == b"sent"
        assert sender.stdout is not None and sender.stdout.readline() == "forked\n"
        sender.kill()
        with pytest.raises(thalweg.PeerDied):
            await into.receive()
        into.close()

    run(test)


@pytest.mark.parametrize("is_over", [False, True])
def test_an_end_that_is_closed_while_it_meets_leaves_nothing(
    run: Callable[[Test], None], is_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thalweg._async._PATIENCE", 1.0)

    async def test(place: str) -> None:
        out = thalweg.offer_async(place)
        # Connects, and sends nothing.
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
            silent.connect(place)
            while out._meeting is None:
                with anyio.move_on_after(0.05):
                    await out.send(b"")
            while is_over and not out._meeting._is_over:
                await anyio.sleep(0.01)
            out.close()
            while Path(place).exists():
                await anyio.sleep(0.01)
        assert out.sent == 0

    run(test)


def test_a_killed_receiver_ends_the_wait_for_room(run: Callable[[Test], None], start: Start) -> None:
    async def test(place: str) -> None:
        receiver = start("import sys, thalweg; i = thalweg.take(sys.argv[1]); i.receive(); print(1, flush=True); sys.stdin.read()", place)
        out = thalweg.offer_async(place, capacity=1 << 16)
        await out.send(bytes(10_000))
        assert receiver.stdout is not None and receiver.stdout.readline() == "1\n"

        async def kill() -> None:
            await anyio.sleep(0.01)
            receiver.kill()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill)
            with pytest.raises(thalweg.PeerDied):
                while True:
                    await out.send(bytes(10_000))
        out.close()

    run(test)


def test_programs_in_loops_and_programs_that_block_meet(start: Start, place: str) -> None:
    text = """
        import asyncio, sys, thalweg
        async def main():
            async with thalweg.offer_async(sys.argv[1]) as out:
                for number in range(100):
                    await out.send(bytes(number))
        asyncio.run(main())
    """
    sender = start(text, place)
    assert [array.nbytes for array in thalweg.take(place)] == list(range(100))
    ended(sender)
    receiver = start(
        """
        import asyncio, sys, thalweg
        async def main():
            return [array.nbytes async for array in thalweg.take_async(sys.argv[1])]
        print(sum(asyncio.run(main())))
        """,
        place,
    )
    with thalweg.offer(place) as out:
        for number in range(100):
            out.send(bytes(number), timeout=PATIENCE)
    assert ended(receiver) == "4950"
    assert not Path(place).exists()


def test_a_loop_without_anyio_and_no_thread_left(place: str) -> None:
    """Runs a program with asyncio in a separate process. thalweg must import asyncio only when needed, and trio and anyio never."""
    text = f"""
import sys, thalweg
assert "asyncio" not in sys.modules
import asyncio
async def main():
    out, into = thalweg.offer_async({place!r}), thalweg.take_async({place!r})
    sending = asyncio.create_task(out.send(b"first"))
    print(bytes(await into.receive()))
    await sending
    try:
        await asyncio.wait_for(into.receive(), 0.05)
    except TimeoutError:
        print("nothing")
    await out.send(b"second")
    print(bytes(await asyncio.wait_for(into.receive(), 600)))
    out.close(); into.close()
asyncio.run(main())
assert "trio" not in sys.modules and "anyio" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "b'first'\nnothing\nb'second'\n", done.stderr


def test_asyncio_is_used_where_trio_is_there_but_does_not_run(place: str) -> None:
    import trio  # noqa: F401

    async def main() -> bytes:
        out, into = thalweg.offer_async(place), thalweg.take_async(place)
        sending = asyncio.create_task(out.send(b"sent"))
        got = bytes(await into.receive())
        await sending
        out.close()
        into.close()
        return got

    assert asyncio.run(main()) == b"sent"
