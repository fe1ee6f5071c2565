"""Runs a command, passes standard input and output through, and appends the numbers of bytes to a file.

counter.py FILE COMMAND...
"""

import json
import os
import signal
import subprocess
import sys
import threading


def relay(source: int, sink: int, count: list[int], way: int) -> None:
    while block := os.read(source, 1 << 20):
        count[way] += len(block)
        view = memoryview(block)
        while view:
            view = view[os.write(sink, view):]
    os.close(sink)


def main() -> None:
    log, *words = sys.argv[1:]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    count = [0, 0]
    back = threading.Thread(target=relay, args=(child.stdout.fileno(), 1, count, 1), daemon=True)
    there = threading.Thread(target=relay, args=(0, child.stdin.fileno(), count, 0), daemon=True)

    def end(*_: object) -> None:
        with open(log, "a") as file:
            file.write(json.dumps(count) + "\n")
        os._exit(0)

    # ssh ends this process with SIGHUP after the last byte.
    signal.signal(signal.SIGHUP, end)
    signal.signal(signal.SIGTERM, end)
    back.start()
    there.start()
    back.join()
    end()


main()
