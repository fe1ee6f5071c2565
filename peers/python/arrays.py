"""The rows: an array into own, writable, resident memory, and 64 bytes there and back. See `run`.

Every way has a process of its own that is told over a pipe to send; the time is from that word until the array is in
the receiver's memory, checked outside of it. Ways take turns in every round, in an order of its own. A ratio is of the
medians; the quartiles stand beside it.
"""

import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from multiprocessing import shared_memory

import numpy as np
import thalweg

SPAWN = multiprocessing.get_context("spawn")
TURNS = 2000


def ours(told, place, size):
    array = np.full(size, 1, np.uint8)
    with thalweg.offer(place, capacity=4 * size) as out:
        while (number := told.recv()) is not None:
            array[:: 1 << 12] = number
            out.send(array)


def ours_lent(told, place, size):
    with thalweg.offer(place, capacity=4 * size) as out:
        while (number := told.recv()) is not None:
            array = out.empty(size, np.uint8)
            array[:: 1 << 12] = number
            out.commit(array)


def piped(told, end, size):
    array = np.full(size, 1, np.uint8)
    while (number := told.recv()) is not None:
        array[:: 1 << 12] = number
        end.send_bytes(array)


def queued(told, queue, size):
    array = np.full(size, 1, np.uint8)
    while (number := told.recv()) is not None:
        array[:: 1 << 12] = number
        queue.put(array)


def shared(told, name, lock, full, size):
    array = np.full(size, 1, np.uint8)
    memory = shared_memory.SharedMemory(name)
    there = np.ndarray(size, np.uint8, memory.buf)
    while (number := told.recv()) is not None:
        array[:: 1 << 12] = number
        with lock:
            np.copyto(there, array)
        full.release()
    del there
    memory.close()


def bulk(rounds, size):
    """Seconds of every way, in every round."""
    into = np.zeros(size, np.uint8)
    source = np.full(size, 1, np.uint8)
    folder = tempfile.TemporaryDirectory()
    ways, tells, ends = {}, {}, []

    def begin(name, target, *arguments):
        tell, told = SPAWN.Pipe()
        process = SPAWN.Process(target=target, args=(told, *arguments, size))
        process.start()
        tells[name] = tell
        ends.append(process)

    for name, target in (("thalweg send, receive_into", ours), ("thalweg empty, receive_into", ours_lent)):
        place = os.path.join(folder.name, target.__name__)
        begin(name, target, place)
        taken = thalweg.take(place)
        ways[name] = lambda taken=taken: taken.receive_into(into)
    here, there = SPAWN.Pipe()
    begin("Pipe.send_bytes, recv_bytes_into", piped, there)
    ways["Pipe.send_bytes, recv_bytes_into"] = lambda: here.recv_bytes_into(into)
    queue = SPAWN.Queue()
    begin("multiprocessing.Queue", queued, queue)
    # What get returns is its own memory already.
    ways["multiprocessing.Queue"] = lambda: queue.get()
    memory = shared_memory.SharedMemory(create=True, size=size)
    lock, full = SPAWN.Lock(), SPAWN.Semaphore(0)
    begin("shared_memory, copied in and out", shared, memory.name, lock, full)
    seen = np.ndarray(size, np.uint8, memory.buf)

    def copied_out():
        full.acquire()
        with lock:
            np.copyto(into, seen)

    ways["shared_memory, copied in and out"] = copied_out
    ways["one copyto in one process"] = lambda: np.copyto(into, source)

    taken = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name in random.sample(list(ways), len(ways)):
            stamp = number % 250 + 2
            if name not in tells:
                source[:: 1 << 12] = stamp
            began = time.perf_counter()
            if name in tells:
                tells[name].send(stamp)
            got = ways[name]()
            seconds = time.perf_counter() - began
            array = got if isinstance(got, np.ndarray) else into
            assert (array[:: 1 << 12] == stamp).all() and array[1] == 1 or "empty" in name, name
            # The first round makes all memory resident.
            if number:
                taken[name].append(seconds)
    for tell in tells.values():
        tell.send(None)
    for process in ends:
        process.join()
    del seen
    memory.close()
    memory.unlink()
    folder.cleanup()
    return taken


def answering(place, back):
    with thalweg.offer(back) as out:
        for message in thalweg.take(place):
            out.send(message)


def answering_piped(end):
    while message := end.recv_bytes():
        end.send_bytes(message)


def turns(rounds):
    """Seconds of one turn of 64 bytes there and back."""
    small = np.zeros(64, np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        place, back = os.path.join(folder, "there"), os.path.join(folder, "back")
        process = SPAWN.Process(target=answering, args=(place, back))
        here, there = SPAWN.Pipe()
        other = SPAWN.Process(target=answering_piped, args=(there,))
        process.start()
        other.start()
        taken = {"thalweg": [], "Pipe": []}
        with thalweg.offer(place) as out, thalweg.take(back) as into:

            def ours_once():
                out.send(small)
                into.receive()

            def pipe_once():
                here.send_bytes(small)
                here.recv_bytes()

            for number in range(rounds + 1):
                for name, once in random.sample([("thalweg", ours_once), ("Pipe", pipe_once)], 2):
                    began = time.perf_counter()
                    for _ in range(TURNS):
                        once()
                    if number:
                        taken[name].append((time.perf_counter() - began) / TURNS)
        here.send_bytes(b"")
        process.join()
        other.join()
    return taken


def printed(title, taken, against):
    print(title)
    ours = statistics.median(taken[against])
    for name, seconds in sorted(taken.items(), key=lambda item: statistics.median(item[1])):
        low, middle, high = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else seconds * 3
        print(f"  {name:34} {middle * 1e6:12.1f} us ({low * 1e6:.1f} to {high * 1e6:.1f})  {middle / ours:6.2f} x")


def main(rounds=11, megabytes=100):
    rounds, size = int(rounds), int(float(megabytes) * 1_000_000)
    print(f"Python {sys.version.split()[0]}, numpy {np.__version__}, {os.cpu_count()} processors, {rounds} rounds")
    printed(f"{size} bytes into own memory", bulk(rounds, size), "thalweg send, receive_into")
    printed("64 bytes there and back", turns(rounds), "thalweg")


if __name__ == "__main__":
    main(*sys.argv[1:])
