"""Processes that campaign.py kills during their work. Each records its progress in a file, which outlives
the process."""

import mmap
import os
import pickle
import random
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import thalweg
from thalweg.multiprocessing import Queue

CAPACITY = 1 << 16
Made = Callable[[np.ndarray[Any, Any]], object]


class Record:
    """The progress of a victim: whether it has begun to connect, and the number of its messages or items."""

    _BOTH = struct.Struct("QQ")

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self._file, mmap.PAGESIZE)

    def write(self, count: int) -> None:
        os.pwrite(self._file, self._BOTH.pack(1, count), 0)

    def read(self) -> tuple[bool, int]:
        begun, count = self._BOTH.unpack(os.pread(self._file, self._BOTH.size, 0))
        return bool(begun), count

    def close(self) -> None:
        os.close(self._file)


def content(number: int) -> np.ndarray[Any, Any]:
    """Returns the contents of message `number`, whose length depends on the number."""
    return np.arange(number, number + 1 + number * 37 % 900)


def is_whole(array: np.ndarray[Any, Any], number: int) -> bool:
    return array.dtype == np.int64 and np.array_equal(array, content(number))


def pause(dice: random.Random) -> None:
    """Sometimes pauses, for a moment, or so long that the other side stops polling and sleeps."""
    kind = dice.randrange(40)
    if kind < 2:
        time.sleep((0.0015, 0.00002)[kind])


def sends(name: str, record: Record, dice: random.Random, way: str) -> None:
    """Sends messages; `way` is sent, lent or object."""
    with thalweg.offer(name, capacity=CAPACITY) as out:
        number = 0
        while True:
            array = content(number)
            if way == "lent":
                lent = out.empty(array.size, np.int64)
                lent[:] = array
                out.commit(lent)
                del lent
            elif way == "object":
                out.send_object((number, array))
            else:
                out.send(array)
            number += 1
            record.write(number)
            pause(dice)


def takes(name: str, record: Record, dice: random.Random, way: str) -> None:
    """Receives messages; `way` is dropped or held."""
    into, held = thalweg.take(name), list[np.ndarray[Any, Any]]()
    number = 0
    while True:
        array = into.receive()
        assert is_whole(array, number), number
        if way == "held":
            held = [*held[-3:], array]
        del array
        number += 1
        record.write(number)
        pause(dice)


def puts(name: str, record: Record, dice: random.Random, way: str) -> None:
    """Puts into the queue whose pickle is in a file."""
    with open(name, "rb") as file:
        queue = pickle.load(file)
    number = 0
    while True:
        queue.put((number, content(number)))
        number += 1
        record.write(number)
        pause(dice)


def gets(name: str, record: Record, dice: random.Random, way: str) -> None:
    """Creates a queue, writes its pickle to a file, and gets from the queue."""
    queue = Queue(capacity=CAPACITY)
    with open(name + ".new", "wb") as file:
        pickle.dump(queue, file)
    os.rename(name + ".new", name)
    number = 0
    while True:
        found, array = queue.get()
        assert found == number and is_whole(array, number), number
        number += 1
        record.write(number)
        pause(dice)


#: The roles and their variants.
ROLES: dict[str, tuple[Callable[[str, Record, random.Random, str], None], list[str]]] = {
    "sends": (sends, ["sent", "lent", "object"]),
    "takes": (takes, ["dropped", "held"]),
    "puts": (puts, ["put"]),
    "gets": (gets, ["got"]),
}


def run(role: str, way: str, name: str, path: str, seed: str) -> None:
    """Runs one victim, from its start to its end."""
    record = Record(path)
    record.write(0)
    ROLES[role][0](name, record, random.Random(int(seed)), way)


def program(*words: str) -> list[str]:
    """Returns the command that starts a victim as an independent process."""
    return [sys.executable, str(Path(__file__).resolve()), *words]


if __name__ == "__main__":
    run(*sys.argv[1:])
