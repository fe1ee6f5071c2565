"""Runs all rows, or those that are named. See `run`."""

import argparse
import os
import sys

import arrays
import calls
import files
import loaders
import numpy as np
import objects
from rounds import printed

ROWS = ["large", "frames", "turns", "calls", "objects", "loaders", "copies"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="peers/python/run", description="Python's own ways beside ours")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one of {', '.join(ROWS)}; all without")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--megabytes", type=float, default=100, help="of a large array")
    parser.add_argument("--at", help="the folder of copies")
    asked = parser.parse_args()
    if unknown := set(asked.rows) - set(ROWS):
        parser.error(f"no row {', '.join(sorted(unknown))}")
    if asked.rounds < 2:
        parser.error("at least two rounds")
    rows, rounds, size = asked.rows or ROWS, asked.rounds, int(asked.megabytes * 1_000_000)
    print(f"Python {sys.version.split()[0]}, numpy {np.__version__}, {os.cpu_count()} processors, {rounds} rounds")
    if "large" in rows:
        printed(f"{size} bytes into own memory", arrays.large(rounds, size))
    if "frames" in rows:
        printed("a frame of 1080 x 1920 x 3 bytes, written and read where it is", arrays.frames(rounds))
    if "turns" in rows:
        printed("64 bytes there and back", arrays.turns(rounds))
    if "calls" in rows:
        printed("a call that finds nothing", calls.empty(rounds))
    if "objects" in rows:
        printed("a dict of 20 arrays of 2.5 MB", objects.dict_of_arrays(rounds))
    if "loaders" in rows and (took := loaders.batches(rounds)):
        printed("batches of 64 MB from two workers of a DataLoader, each read once", took)
    if "copies" in rows:
        file, tree = files.copies(rounds, asked.at)
        printed("a file of 1 GiB", file)
        printed("10,000 files of up to 8000 bytes", tree)


if __name__ == "__main__":
    main()
