"""Objects through queues: a dict of twenty arrays, 50 MB in all, pickled or not."""

import contextlib
import os
import tempfile
import time

import numpy as np
import thalweg
from rounds import SPAWN, senders, taken
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


def dict_of_arrays(rounds):
    """Seconds from the word to send until the item is there."""
    ways = {}
    with contextlib.ExitStack() as stack:
        begin = stack.enter_context(senders())
        place = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "objects")

        def way(name, tell, get):
            def once(stamp):
                began = time.perf_counter()
                tell(stamp)
                item = get()
                seconds = time.perf_counter() - began
                assert len(item) == ARRAYS and item["array 7"][0] == stamp and (item["array 19"] == 19).all(), name
                return seconds

            ways[name] = once

        ours, others = Queue(), SPAWN.Queue()
        way("thalweg.multiprocessing.Queue", begin(put, ours), ours.get)
        way("multiprocessing.Queue", begin(put, others), others.get)
        tell, into = begin(sent, place), thalweg.take(place)
        way("thalweg send_object, views", tell, into.receive_object)
        return taken(ways, rounds)
