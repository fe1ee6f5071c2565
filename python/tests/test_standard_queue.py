"""The reason for thalweg's queue: with the standard library's queue, these programs hang when a process is
killed."""

import os
import signal
import subprocess

import pytest
from conftest import PATIENCE, Start

#: Time in seconds after which the program counts as hanging. The rest of the program takes far less time.
HANGS = 3
SCRIPT = """
    import importlib, multiprocessing, signal, sys, time, numpy as np
    Queue = importlib.import_module(sys.argv[1]).Queue

    def puts(queue):
        for number in range(100):
            queue.put(np.full(100_000, number))
        signal.pause()

    def puts_one(queue):
        queue.put("after")

    if __name__ == "__main__":
        context, queue = multiprocessing.get_context("fork"), Queue()
        first = context.Process(target=puts, args=(queue,))
        first.start()
        # The first process puts items until the queue is full. The kill then comes in the middle of an item.
        assert (queue.get() == 0).all()
        time.sleep(0.5)
        first.kill()
        first.join()
        print("killed", flush=True)
        second = context.Process(target=puts_one, args=(queue,))
        second.start()
        whole = 1
        while not isinstance(item := queue.get(), str):
            assert (item == whole).all()
            whole += 1
        print(item, flush=True)
"""


@pytest.mark.parametrize("module", ["multiprocessing", "thalweg.multiprocessing"])
def test_a_process_killed_in_mid_put(start: Start, module: str) -> None:
    program = start(SCRIPT, module, start_new_session=True)
    assert program.stdout is not None and program.stdout.readline() == "killed\n"
    if module == "multiprocessing":
        with pytest.raises(subprocess.TimeoutExpired):
            program.communicate(timeout=HANGS)
        # Kills the whole group: the program's child waits for the lock of the killed process.
        os.killpg(program.pid, signal.SIGKILL)
    else:
        printed, complaint = program.communicate(timeout=PATIENCE)
        assert (printed, complaint) == ("after\n", "")
