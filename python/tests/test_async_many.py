"""Broadcast and many-to-one in event loops."""

import os
import signal
import threading
from collections.abc import Callable

import anyio
import numpy as np
import pytest
import thalweg
from conftest import Start, Test


def test_a_loop_gathers_from_threads_and_from_itself(run: Callable[[Test], None]) -> None:
    async def test(place: str) -> None:
        def work(number: int) -> None:
            with thalweg.join(place, capacity=1 << 14) as out:
                for each in range(50):
                    out.send(np.array([number, each]))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        got: dict[int, list[int]] = {number: [] for number in range(3)}
        async with thalweg.gather_async(place, producers=3) as results:
            for thread in threads:
                thread.start()
            async for number, each in results:
                got[int(number)].append(int(each))
            assert results.received == 150 and results.producers == 0 and results.peer == os.getpid()
            with pytest.raises(thalweg.Closed):
                await results.receive_bytes()
        assert all(got[number] == list(range(50)) for number in range(3))
        for thread in threads:
            thread.join()
        with pytest.raises(ValueError, match="closed"):
            await results.receive()

    run(test)


def test_a_gather_that_is_cancelled_loses_no_message(run: Callable[[Test], None]) -> None:
    async def test(place: str) -> None:
        def work() -> None:
            with thalweg.join(place, capacity=1 << 14) as out:
                for number in range(300):
                    out.send_object(number)

        results = thalweg.gather_async(place, producers=2)
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        got = []
        while len(got) < 600:
            with anyio.move_on_after(0.0005 * (len(got) % 3)):
                got.append(await results.receive_object())
        assert sorted(got) == sorted([*range(300), *range(300)])
        results.close()
        for thread in threads:
            thread.join()

    run(test)


def test_a_task_that_waits_is_woken_by_who_comes_late_and_by_a_death(run: Callable[[Test], None], start: Start) -> None:
    async def test(place: str) -> None:
        async with thalweg.gather_async(place, producers=1) as results:
            got: list[bytes] = []

            async def receive() -> None:
                got.append(await results.receive_bytes())

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(receive)
                await anyio.sleep(0.05)
                with pytest.raises(RuntimeError, match="another task"):
                    await results.receive()
                with pytest.raises(RuntimeError, match="another task"):
                    results.close()
                program = start(
                    """
                    import sys, thalweg
                    out = thalweg.join(sys.argv[1])
                    out.send_bytes(b"late")
                    sys.stdin.read()
                    """,
                    place,
                )
            assert got == [b"late"]
            threading.Timer(0.1, os.kill, (program.pid, signal.SIGKILL)).start()
            with pytest.raises(thalweg.Closed):
                await results.receive()
            assert [departed.pid for departed in results.departed()] == [program.pid]

    run(test)


def test_a_broadcast_to_a_loop(run: Callable[[Test], None]) -> None:
    async def test(place: str) -> None:
        async with thalweg.broadcast_async(place, capacity=1 << 14) as out:
            got: dict[int, list[int]] = {0: [], 1: []}

            async def receive(number: int) -> None:
                async with thalweg.subscribe_async(place, copy=True) as into:
                    async for array in into:
                        got[number].append(int(array[0]))
                    assert into.missed == 0

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(receive, 0)
                tasks.start_soon(receive, 1)
                await out.wait(2)
                for number in range(100):
                    # The rings have room for a few of these arrays.
                    await out.send(np.full(500, number))
                assert (out.subscribers, out.sent) == (2, 100)
                out.close()
        assert got == {0: list(range(100)), 1: list(range(100))}

    run(test)


def test_a_broadcast_that_is_cancelled_reaches_nobody(run: Callable[[Test], None]) -> None:
    async def test(place: str) -> None:
        out, into = thalweg.broadcast_async(place, capacity=1 << 12), thalweg.subscribe_async(place)
        async with anyio.create_task_group() as tasks:
            got: list[int] = []

            async def receive() -> None:
                got.append(int((await into.receive())[0]))

            tasks.start_soon(receive)
            await out.wait()
            await out.send(np.zeros(200, np.int64))
        assert got == [0]
        sent = 0
        with anyio.move_on_after(0.05):
            while True:
                sent += 1
                await out.send(np.full(200, sent))
        # The last array was not sent.
        for number in range(1, sent):
            assert int((await into.receive())[0]) == number
        with anyio.move_on_after(0.02) as moved:
            await into.receive()
        assert moved.cancelled_caught and out.sent == sent
        with pytest.raises(thalweg.TooLarge):
            await out.send(np.zeros(10_000))
        into.close()
        await out.send_bytes(b"to nobody")
        await out.send_object({"to": "nobody"})
        out.close()

    run(test)


def test_with_a_backlog_nothing_waits_and_missed_counts(run: Callable[[Test], None]) -> None:
    async def test(place: str) -> None:
        out, into = thalweg.broadcast_async(place, capacity=1 << 12, backlog=3), thalweg.subscribe_async(place)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(into.receive)
            await out.wait()
            await out.send(np.zeros(100))
        for number in range(50):
            await out.send(np.full(100, number))
        got = []

        async def receive() -> None:
            async for array in into:
                got.append(int(array[0]))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            await out.flush()
            out.close()
        assert got[-1] == 49 and into.missed == 50 - len(got) > 0

    run(test)


def test_batches_in_a_loop(run: Callable[[Test], None]) -> None:
    async def test(place: str) -> None:
        out, into = thalweg.offer_async(place, capacity=1 << 14), thalweg.take_async(place)

        async def send() -> None:
            await out.send_all([])
            await out.send_all(np.full(300, number) for number in range(100))
            assert out.sent == 100
            out.close()

        got: list[int] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            with pytest.raises(thalweg.Closed):
                while True:
                    got += [int(each[0]) for each in await into.receive_all(10)]
        assert got == list(range(100))
        into.close()

    run(test)
