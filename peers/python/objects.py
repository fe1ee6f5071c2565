"""Sends objects through queues: a dict of twenty arrays, 50 MB in total, pickled or not."""

import contextlib
import os
import tempfile

import numpy as np
import thalweg
from rounds import SPAWN, answered, senders, taken, timed
from thalweg.multiprocessing import Queue

ARRAYS, EACH = 20, 2_500_000


def made():
    return {f"array {number}": np.full(EACH, number, np.uint8) for number in range(ARRAYS)}


def put(told, queue):
    item = made()
    while (number := told.recv()) is not None:
        item["array 7"][0] = number
        queue.put(item)


def sent(told, place):
    item = made()
    with thalweg.offer(place, capacity=4 * ARRAYS * EACH) as out:
        while (number := told.recv()) is not None:
            item["array 7"][0] = number
            out.send_object(item)


def written(told, pipe, path):
    """Sends with pyarrow, either in a new file each time, or in one file that stays mapped and resident."""
    import pyarrow as pa

    item = made()
    kept = None
    while (number := told.recv()) is not None:
        item["array 7"][0] = number
        batch = pa.record_batch([pa.array(array) for array in item.values()], names=list(item))
        if path:
            if kept is None:
                pa.create_memory_map(path, ARRAYS * EACH + (1 << 20)).close()
                kept = pa.memory_map(path, "r+")
            kept.seek(0)
            with pa.ipc.new_stream(kept, batch.schema) as stream:
                stream.write(batch)
            pipe.send(path)
            continue
        name = f"/dev/shm/thalweg-peers-{os.getpid()}-{number}"
        with pa.OSFile(name, "wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
            stream.write(batch)
        pipe.send(name)


def pyarrow_ways(begin, way, stack):
    try:
        import pyarrow as pa
    except ImportError:
        print("pyarrow left out: peers/install python")
        return
    path = f"/dev/shm/thalweg-peers-{os.getpid()}"
    stack.callback(lambda: os.path.exists(path) and os.unlink(path))
    mapped = []

    def read(here, keeps):
        name = here.recv()
        if not keeps or not mapped:
            file = pa.memory_map(name)
            if keeps:
                mapped.append(file)
            else:
                os.unlink(name)
        else:
            file = mapped[0]
        file.seek(0)
        batch = pa.ipc.open_stream(file).read_next_batch()
        return {name: column.to_numpy() for name, column in zip(batch.schema.names, batch.columns, strict=True)}

    for name, keeps in (("pyarrow IPC, new files in /dev/shm", False), ("pyarrow IPC, one file kept", True)):
        here, there = SPAWN.Pipe()
        way(name, begin(written, there, path if keeps else None), lambda here=here, keeps=keeps: read(here, keeps))


def seen(item):
    """Runs in joblib's worker. Returns evidence that the item has arrived. Does not return the item, because the
    comparison sends items in one direction only."""
    return int(item["array 7"][0]), len(item)


def joblib_ways(ways, stack):
    try:
        import joblib
    except ImportError:
        print("joblib left out: peers/install python")
        return
    parallel = stack.enter_context(joblib.Parallel(n_jobs=2, backend="loky", max_nbytes=1 << 20, mmap_mode="r"))

    def once(stamp):
        # Creates a new item each time, because joblib writes an array to a file only once and later recognises it
        # by its identity.
        item = made()
        item["array 7"][0] = stamp
        cost, (found,) = timed(lambda: parallel([joblib.delayed(seen)(item)]))
        assert found == (stamp, ARRAYS), "something else has come"
        return cost

    ways["joblib, loky with memory maps"] = once


def dict_of_arrays(rounds):
    """Returns for each method the times from the command to send until the item has arrived."""
    ways = {}
    with contextlib.ExitStack() as stack:
        begin = stack.enter_context(senders())
        place = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "objects")

        def is_right(item, stamp):
            return len(item) == ARRAYS and item["array 7"][0] == stamp and (item["array 19"] == 19).all()

        def way(name, tell, get):
            ways[name] = answered(tell, get, is_right)

        ours, others = Queue(), SPAWN.Queue()
        way("thalweg.multiprocessing.Queue", begin(put, ours), ours.get)
        way("multiprocessing.Queue", begin(put, others), others.get)
        tell, into = begin(sent, place), thalweg.take(place)
        way("thalweg send_object, views", tell, into.receive_object)
        pyarrow_ways(begin, way, stack)
        joblib_ways(ways, stack)
        return taken(ways, rounds)
