"""The warning for too many held messages names the line that received the oldest one."""

import asyncio
import gc
import warnings
from pathlib import Path

import numpy as np
import pytest
import thalweg
from conftest import PATIENCE


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == text)


def test_the_oldest_is_named_before_the_next_is_received() -> None:
    out, into = thalweg.pair(hold=2)
    for number in range(5):
        out.send(np.arange(number + 1))
    oldest = into.receive()
    others = [into.receive(), into.receive()]
    with pytest.warns(RuntimeWarning, match="3 received messages are in use, more than hold=2") as told:
        others.append(into.receive())
    assert told[0].filename == __file__
    assert f"{__file__}:{line_of('oldest = into.receive()')}" in str(told[0].message)
    assert [array.size for array in (oldest, *others)] == [1, 2, 3, 4]
    # Checks that no message is lost if the warning filter turns the warning into an exception.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            into.receive()
        others.clear()
        gc.collect()
        assert into.receive().size == 5


def test_who_lets_go_and_who_copies_is_not_told() -> None:
    for options in ({"hold": 1}, {"hold": 0, "copy": True}):
        out, into = thalweg.pair(**options)  # type: ignore[arg-type]
        kept = []
        for number in range(10):
            out.send(np.full(10, number))
            array = into.receive()
            if "copy" in options:
                kept.append(array)
            else:
                del array
    # Checks that messages of objects count too.
    out, into = thalweg.pair(hold=0)
    for _ in range(2):
        out.send_object([np.arange(10)])
    kept = into.receive_object()
    with pytest.warns(RuntimeWarning, match="hold=0"):
        into.receive_object()
    del kept
    with pytest.raises(OverflowError):
        thalweg.pair(hold=-1)


def test_in_an_event_loop_the_line_is_the_coroutines(tmp_path: Path) -> None:
    async def main() -> None:
        async with thalweg.offer_async(str(tmp_path / "x")) as out, thalweg.take_async(str(tmp_path / "x"), hold=0) as into:
            sending = asyncio.create_task(send(out))
            kept = await into.receive()
            with pytest.warns(RuntimeWarning, match="hold=0") as told:
                await into.receive()
            assert f"{__file__}:{line_of('kept = await into.receive()')}" in str(told[0].message)
            await sending
            del kept

    async def send(out: thalweg.AsyncProducer) -> None:
        for _ in range(2):
            await out.send(np.arange(3))

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
