"""Objects through queues: a dict of twenty arrays, 50 MB in all, pickled or not."""

import contextlib
import os
import tempfile

import numpy as np
import thalweg
from rounds import SPAWN, answered, senders, taken
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
    """From the word to send until the item is there."""
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
        return taken(ways, rounds)
