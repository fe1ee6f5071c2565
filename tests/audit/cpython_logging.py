"""Runs CPython's tests of logging.handlers.QueueHandler and QueueListener. `thalweg.multiprocessing.Queue` replaces
`queue.Queue` and `multiprocessing.Queue`."""

import multiprocessing
import queue
import types

import cpython_told
import test.test_logging as theirs
import thalweg.multiprocessing as ours


def replaced(module: types.ModuleType) -> types.ModuleType:
    """Returns a copy of a module whose Queue is `thalweg.multiprocessing.Queue`."""
    copy = types.ModuleType(module.__name__)
    copy.__dict__.update(module.__dict__, Queue=ours.Queue)
    return copy


if __name__ == "__main__":
    theirs.queue = replaced(queue)
    theirs.multiprocessing = replaced(multiprocessing)
    cpython_told.run([theirs.QueueHandlerTest, theirs.QueueListenerTest])
