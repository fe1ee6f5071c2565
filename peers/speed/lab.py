"""Code that rows share: scratch directories, sources, programs, and the cleanup at the end of a row."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from measure import Failed
from row import Skip

ROOT = Path(__file__).resolve().parents[2]
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# A smoke run divides sizes and numbers of files by this.
SMALLER = 64
PACKAGES = {"b3sum": "b3sum", "xxhsum": "xxhash", "pv": "pv", "rsync": "rsync", "curl": "curl", "aria2c": "aria2", "ssh": "openssh-client",
            "sshd": "openssh-server", "cc": "gcc", "ip": "iproute2", "tc": "iproute2", "mkfs.ext4": "e2fsprogs", "ssh-keygen": "openssh-client",
            "mkfs.xfs": "xfsprogs", "losetup": "mount"}
BUILT = {"cpz": "peers/install cpz", "xcp": "peers/install xcp", "nginx": "tests/setup/nginx"}


def program(name: str) -> str | None:
    """Returns the path of a program, also of one that the repository's scripts installed."""
    places = [ROOT / ".tools/bin", ROOT / ".tools/nginx/usr/sbin", "/usr/sbin", "/sbin"]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(str, places)))


def missing(name: str) -> str:
    """Returns how to install a missing program, or an empty text if it exists."""
    if program(name):
        return ""
    return f"{name} is not installed: {BUILT.get(name) or 'apt-get install ' + PACKAGES.get(name, name)}"


def need(*names: str) -> None:
    reasons = [reason for name in names if (reason := missing(name))]
    if reasons:
        raise Skip("; ".join(reasons))


def need_root(why: str) -> None:
    if os.geteuid():
        raise Skip(f"{why}: only as root")


def need_disk(path: Path) -> None:
    """Skips the row if the files of the directory are in memory."""
    if quiet("stat", "-f", "-c", "%T", path).strip() in ("tmpfs", "ramfs"):
        raise Skip(f"{path} is not on a disk: --at DIR sets the directory")


def quiet(*words: object, **options: object) -> str:
    """Runs a command outside the timed part. Returns its output."""
    ran = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, **options)
    if ran.returncode:
        raise Failed(f"{' '.join(map(str, words))}: {ran.stderr.strip() or ran.stdout.strip() or ran.returncode}")
    return ran.stdout


def remove(path: Path) -> None:
    subprocess.run(["rm", "-rf", str(path)], check=True)


class Lab:
    """The scratch directories of a run. `memory` is on tmpfs, and the user chooses `disk`."""

    def __init__(self, thalweg: Path, before: Path | None, disk: Path, memory: Path, smoke: bool) -> None:
        self.thalweg, self.before = str(thalweg), str(before or "")
        self.disk, self.memory, self.smoke = disk, memory, smoke
        # Contexts to leave and functions to call at the end of the row.
        self.undo = ExitStack()

    def size(self, usual: int) -> int:
        return max(usual // SMALLER, 4 * KIB) if self.smoke else usual

    def count(self, usual: int) -> int:
        return max(usual // SMALLER, 2) if self.smoke else usual

    def enter(self, context: AbstractContextManager) -> object:
        return self.undo.enter_context(context)

    def directory(self, parent: Path, name: str) -> Path:
        """Creates a directory that lives until the end of the row."""
        path = parent / name
        path.mkdir(parents=True)
        self.undo.callback(remove, path)
        return path

    def compile(self, source: Path, *words: object) -> str:
        """Compiles a C program for the row, with more arguments for the compiler. Returns its path."""
        need("cc")
        built = self.directory(self.memory, f"build-{source.stem}") / source.stem
        quiet(program("cc"), "-O2", "-Wall", "-Wextra", "-o", built, source, *words)
        return str(built)


def random_file(path: Path, size: int) -> Path:
    """Writes a file of random bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for begin in range(0, size, 8 * MIB):
            file.write(os.urandom(min(8 * MIB, size - begin)))
    return path


def changed_file(old: Path, new: Path, size: int) -> None:
    """Writes two files of random bytes that differ in 1 % of their blocks of 4 KiB. The first one is older."""
    random_file(old, size)
    new.parent.mkdir(parents=True, exist_ok=True)
    quiet("cp", old, new)
    with new.open("r+b") as file:
        for begin in range(0, size, 100 * 4 * KIB):
            file.seek(begin)
            file.write(os.urandom(4 * KIB))
    os.utime(old, (1_600_000_000, 1_600_000_000))


def tree(path: Path, files: int, sizes: Callable[[random.Random], int]) -> Path:
    """Writes files with random bytes and sizes, equal in every run, to at most 100 directories of at least ten files."""
    places = min(100, max(files // 10, 1))
    rng = random.Random(1)
    stock = rng.randbytes(1 * MIB)
    for number in range(places):
        (path / f"directory-{number:03}").mkdir(parents=True, exist_ok=True)
    for number in range(files):
        size = sizes(rng)
        begin = rng.randrange(len(stock) - size) if size < len(stock) else 0
        body = stock[begin:begin + size] if size < len(stock) else rng.randbytes(size)
        (path / f"directory-{number % places:03}" / f"file-{number // places:04}").write_bytes(body)
    return path


def small_sizes(rng: random.Random) -> int:
    return rng.randint(100, 16 * KIB)


def same_file(one: Path, other: Path) -> None:
    quiet("cmp", one, other)


def same_bytes(one: Path, other: Path) -> None:
    """Compares two short files without a process."""
    if one.read_bytes() != other.read_bytes():
        raise Failed(f"{other} differs from {one}")


def same_tree(one: Path, other: Path) -> None:
    quiet("diff", "-rq", "--no-dereference", one, other)


@contextmanager
def nothing(path: Path) -> Iterator[Path]:
    """The place of samples that write no files."""
    yield path


def complain(text: str) -> None:
    print(f"campaign-speed: {text}", file=sys.stderr, flush=True)
