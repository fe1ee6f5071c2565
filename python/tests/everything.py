"""Two processes that exchange arrays by all methods: everything.py PLACE. The arrays are larger than small
file systems."""

import multiprocessing
import subprocess
import sys
from typing import Any

import numpy as np
import thalweg
from thalweg.multiprocessing import Queue

BYTES = 5_000_000


def content(number: int) -> np.ndarray[Any, Any]:
    return np.arange(number, number + BYTES // 8)


def sends(place: str) -> None:
    with thalweg.offer(place, capacity=1 << 24) as out:
        out.send(content(1))
        lent = out.empty(BYTES // 8, np.int64)
        lent[:] = content(2)
        out.commit(lent)
        out.send_object({"array": content(3)})
        # Larger than the ring.
        out.send(np.stack([content(4)] * 5))


def puts(queue: Queue, region: thalweg.Region) -> None:
    region.array(BYTES // 8, np.int64)[:] = content(6)
    queue.put((content(5), region))


def main(place: str) -> None:
    sender = subprocess.Popen([sys.executable, __file__, place, "sends"])
    into = thalweg.take(place)
    kept = into.receive()
    assert (kept == content(1)).all()
    # While `kept` exists, it occupies its room in the ring and all room after it.
    del kept
    assert (into.receive() == content(2)).all()
    assert (into.receive_object()["array"] == content(3)).all()
    assert (into.receive() == content(4)).all()
    assert sender.wait() == 0
    queue, region = Queue(), thalweg.Region(BYTES)
    child = multiprocessing.get_context("spawn").Process(target=puts, args=(queue, region))
    child.start()
    array, again = queue.get()
    assert (array == content(5)).all() and (again.array(BYTES // 8, np.int64) == content(6)).all()
    child.join()
    print("everything")


if __name__ == "__main__":
    (sends if sys.argv[2:] else main)(sys.argv[1])
