"""Trees for fleets. Checks the copies by diff, find and sha256sum, which are independent of the tested code."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE
from thalweg import _native

#: Tasks are small, so that large files consist of several. The copy is slow, so that there is time for a kill.
SLOW: dict[str, Any] = {"task_bytes": 256 << 10, "limit": 3 << 20}


def note(test: str, why: str) -> None:
    """Records that a test, or a part of it, cannot run on this machine. `make test` counts these records."""
    print(f"skipped: {test}: {why}")
    skips = os.environ.get("THALWEG_SKIPS")
    if skips:
        with open(skips, "a") as file:
            file.write(f"{test}: {why}\n")


def skip(test: str, why: str) -> None:
    note(test, why)
    pytest.skip(why, allow_module_level=True)


def plant(at: Path, folders: int = 3, large: int = 2 << 20) -> Path:
    """Creates a tree of 7 MiB: small files, files of several tasks, holes, hard links, symbolic links, odd names,
    attributes."""
    tree = at / "tree"
    for number in range(folders):
        folder = tree / f"folder {number}" / "deeper"
        folder.mkdir(parents=True)
        for size in range(30):
            (folder / str(size)).write_bytes(bytes([number, size]) * 350 * size)
        (folder / "large").write_bytes(os.urandom(large + number))
        os.utime(folder / "large", (1e9 + number, 1e9 + number))
    with open(tree / "holed", "wb") as holed:
        holed.truncate(4 << 20)
        holed.seek(3 << 20)
        holed.write(os.urandom(5000))
    first = tree / "folder 0" / "deeper"
    os.link(first / "5", tree / "second name")
    (tree / "link").symlink_to("folder 1")
    (tree / "empty").mkdir()
    os.mkfifo(tree / "pipe", 0o640)
    for name in (b"new\nline", b"\xff\xfe", b" -rf ", "Stra\u00dfe".encode(), b"\x01\x7f"):
        (tree / os.fsdecode(name)).write_bytes(name)
    (first / "6").chmod(0o600)
    try:
        os.setxattr(first / "7", "user.thalweg", b"kept")
    except OSError:
        # The file system of temporary directories may not support extended attributes. Then neither tree has them.
        pass
    (tree / "empty").chmod(0o500)
    os.utime(tree, (1e9, 1e9))
    return tree


def _ran(command: str, folder: Path) -> list[bytes]:
    environment = {**os.environ, "LC_ALL": "C"}
    ran = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=environment, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split(b"\0")


def _seen(folder: Path) -> tuple[list[bytes], ...]:
    # Does not list the size of a directory, which depends on its file system.
    listing = r"find . \( -type d -printf '%p %y %m %T@ %n\0' -o -printf '%p %y %m %T@ %n %l %s\0' \) | sort -z"
    hashes = "find . -type f -print0 | sort -z | xargs -0 sha256sum -z"
    names = "find . ! -type l -print0"
    attributes = []
    for name in sorted(filter(None, _ran(names, folder))):
        path = os.path.join(os.fsencode(folder), name)
        attributes += [name + one.encode() + os.getxattr(path, one) for one in os.listxattr(path)]
    return _ran(listing, folder), _ran(hashes, folder), attributes


def expect_equal(tree: Path, copy: Path) -> None:
    """Checks that the copy is equal, and that no file of thalweg is left next to it."""
    # Excludes the FIFO, which diff would open. `find` compares it.
    done = subprocess.run(["diff", "-r", "--no-dereference", "-x", "pipe", tree, copy], capture_output=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert _seen(tree) == _seen(copy)
    holed = copy / "holed"
    if holed.exists():
        assert holed.stat().st_blocks * 512 <= max(2 << 20, (tree / "holed").stat().st_blocks * 512)
    assert not [name for name in os.listdir(copy.parent) if "thalweg" in name]


def count(tree: Path) -> int:
    """Returns the number of files of a tree. Hard links count once."""
    return len({one for one in _ran(r"find . -type f -printf '%i\0'", tree) if one})


def stage(copy: Path) -> Path:
    return copy.parent / f".{copy.name}.thalweg-fleet"


class Killing:
    """Observes a copy. After some work is done, kills workers that hold a task, one after the other."""

    def __init__(self, copy: Path, kills: int = 1, kill: Callable[[int], object] | None = None) -> None:
        self.copy, self.kills = copy, kills
        self.kill = kill or (lambda process: os.kill(process, signal.SIGKILL))
        self.killed: list[int] = []
        self.said: list[tuple[int, int]] = []

    def __call__(self, files: int, moved: int) -> None:
        self.said.append((files, moved))
        if len(self.killed) >= self.kills:
            return
        known = _native.fleet_status(self.copy)
        if known is None or known["done"] == 0:
            return
        for process in self._at_work(known)[:1]:
            # A broken pool ends its other workers, so this worker may not exist any more.
            with suppress(ProcessLookupError):
                # A stopped worker cannot finish its task before it is killed.
                os.kill(process, signal.SIGSTOP)
                try:
                    if process in self._at_work(_native.fleet_status(self.copy) or known):
                        self.killed.append(process)
                        self.kill(process)
                finally:
                    os.kill(process, signal.SIGCONT)

    def _at_work(self, known: dict[str, Any]) -> list[int]:
        """Returns the processes of workers without a report, each of which holds a task."""
        but = (os.getpid(), *self.killed)
        return [one["process"] for one in known["workers"] if one["lost"] and one["process"] not in but]


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)
