"""Compares copies of a large file and of many small ones with shutil and with the command, in
one directory."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import thalweg
from rounds import taken, timed
from thalweg._commands import PROGRAM

SMALL, LARGE = 10_000, 1 << 30


def copies(rounds, place=None):
    """Returns the times for a large file, and for a directory of small ones."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        one, many = Path(folder, "one"), Path(folder, "many")
        block = os.urandom(1 << 20)
        with open(one, "wb") as out:
            for _ in range(LARGE >> 20):
                out.write(block)
        for number in range(SMALL):
            part = many / str(number % 100)
            part.mkdir(parents=True, exist_ok=True)
            (part / str(number)).write_bytes(block[: number % 8000])
        to = Path(folder, "to")

        def way(copy, source):
            def once(_):
                cost, _ = timed(lambda: copy(source, to))
                if to.is_dir():
                    assert sum(len(names) for _, _, names in os.walk(to)) == SMALL
                    shutil.rmtree(to)
                else:
                    assert to.stat().st_size == LARGE
                    to.unlink()
                return cost

            return once

        def command(source, to):
            subprocess.run([PROGRAM, "copy", "-a", "--quiet", source, to], check=True)

        ours = {"thalweg.copy": thalweg.copy, "thalweg copy -a": command}
        file = ours | {"shutil.copy2": shutil.copy2}
        tree = ours | {"shutil.copytree": shutil.copytree}
        return (
            taken({name: way(copy, one) for name, copy in file.items()}, rounds),
            taken({name: way(copy, many) for name, copy in tree.items()}, rounds),
        )
