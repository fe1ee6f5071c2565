"""Rows whose source is not in memory: a cold page cache, a disk with a limit of its rate, a file system with a delay."""

import ctypes
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import groups
import servers
from lab import GIB, MIB, Lab, need, need_disk, need_root, random_file, remove, same_file, same_tree, small_sizes, tree
from measure import LIBC, Failed, command, end_with_parent
from network import with_server
from places import make_image, mounted
from row import Plan, Variant, row

COLD, THROTTLED, DELAYED = "Cold page cache", "Disk limited to 200 MB/s", "File system with a delay of 2 ms per call"
HERE = Path(__file__).resolve().parent
RATE = 200_000_000
DELAY = 0.002


def resident(path: Path) -> int:
    """Returns the number of pages of a file that are in the page cache."""
    size = path.stat().st_size
    vector = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    LIBC.mmap.restype = ctypes.c_void_p
    with path.open("rb") as file:
        address = LIBC.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), ctypes.c_long(0))
    wrong = LIBC.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), vector)
    LIBC.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    if wrong:
        raise Failed(f"mincore: {path}")
    return sum(byte & 1 for byte in bytes(vector))


def forget(path: Path) -> None:
    """Drops the pages of a file from the page cache. Repeats this until none is left, because pages in use stay for a moment."""
    for _ in range(100):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if not (left := resident(path)):
            return
        time.sleep(0.05)
    raise Failed(f"{left} pages of {path} stay in memory")


class Medium:
    """A source directory that is not in the page cache when a sample begins. `cgroup` contains the processes of a sample."""

    def __init__(self, source: Callable[[Path], str], fresh: Callable, cgroup: Path | None, notes: list[str]) -> None:
        self.source, self.fresh, self.cgroup, self.notes = source, fresh, cgroup, notes


def images(lab: Lab, fill: Callable[[Path], object], size: int, rate: int) -> Medium:
    """Mounts the source again for each sample, so that neither data nor names are in memory. The loop device reads the disk without the
    page cache."""
    need_root("a new mount per sample")
    need("losetup", "mkfs.ext4")
    need_disk(lab.disk)
    base = lab.directory(lab.disk, "row")
    image = make_image(base, fill, size)
    target = lab.directory(lab.memory, "row")
    group = lab.enter(groups.group("blkio", "io")) if rate else None

    @contextmanager
    def fresh() -> Iterator[Path]:
        forget(image)
        (target / "sample").mkdir()
        try:
            with mounted(image, base / "mount", direct=True) as at:
                device = os.stat(at).st_dev
                if group:
                    groups.limit_reads(group, device, rate)
                try:
                    yield target / "sample"
                finally:
                    if group:
                        groups.limit_reads(group, device, 0)
        finally:
            remove(target / "sample")

    notes = ["ext4 in an image on the disk, mounted for every sample; the copy is on tmpfs"]
    return Medium(base / "mount", fresh, group, notes)


def delayed(lab: Lab, fill: Callable[[Path], object], _: int, __: int = 0) -> Medium:
    """Provides the source on a FUSE file system that waits before each answer."""
    need_root("mounting FUSE")
    base, target = lab.directory(lab.memory, "row"), lab.directory(lab.memory, "target")
    fill(base)
    at = lab.directory(lab.memory, "fuse")
    lab.enter(fuse(base, at))

    @contextmanager
    def fresh() -> Iterator[Path]:
        (target / "sample").mkdir()
        try:
            yield target / "sample"
        finally:
            remove(target / "sample")

    return Medium(at, fresh, None, ["FUSE with 16 threads; the kernel drops the pages of a file when it is opened; the copy is on tmpfs"])


@contextmanager
def fuse(backing: Path, at: Path) -> Iterator[None]:
    server = subprocess.Popen([sys.executable, "-B", HERE / "slowfs.py", backing, at, str(DELAY)], start_new_session=True,
                              preexec_fn=end_with_parent)
    try:
        end = time.monotonic() + 10
        while not os.path.ismount(at):
            if server.poll() is not None or time.monotonic() > end:
                raise Failed("the FUSE file system was not mounted")
            time.sleep(0.02)
        yield
    finally:
        # Unmounts lazily, which does not fail if a process still uses the directory.
        subprocess.run(["umount", "--lazy", str(at)], check=False)
        server.terminate()
        server.wait()


def one_file(lab: Lab, medium: Medium, kept: Path) -> Plan:
    """Copies one file to tmpfs."""
    source, how = medium.source / "source", {"cgroup": medium.cgroup}
    variants = [
        Variant("cp", command("cp", source, "{}/copy", **how)),
        Variant("rsync -a", command("rsync", "-a", source, "{}/copy", **how), needs=("rsync",)),
        Variant("dd bs=1M iflag=direct", command("dd", f"if={source}", "of={}/copy", "bs=1M", "iflag=direct", "status=none", **how)),
        Variant("thalweg copy", command(lab.thalweg, "copy", source, "{}/copy", **how), "appears when complete", ours=True),
    ]
    return Plan(variants, medium.fresh, lambda at, _: same_file(kept, at / "copy"), "cmp", medium.notes)


def small_files(lab: Lab, medium: Medium, kept: Path) -> Plan:
    """Copies a tree to tmpfs."""
    source, how = medium.source / "source", {"cgroup": medium.cgroup}
    variants = [
        Variant("cp -r", command("cp", "-r", source, "{}/copy", **how), "modes"),
        Variant("rsync -a", command("rsync", "-a", f"{source}/", "{}/copy", **how), "times, owners", needs=("rsync",)),
        Variant("thalweg copy -r", command(lab.thalweg, "copy", "-r", source, "{}/copy", **how), "modes; appears when complete", ours=True),
        Variant("thalweg sync", command(lab.thalweg, "sync", source, "{}/copy", **how), "times, owners", (), True, ("rsync -a",)),
    ]
    return Plan(variants, medium.fresh, lambda at, _: same_tree(kept, at / "copy"), "diff -r", medium.notes)


def of_file(lab: Lab, make: Callable[..., Medium], size: int, rate: int = 0) -> Plan:
    size = lab.size(size)
    kept = random_file(lab.directory(lab.memory, "kept") / "source", size)
    medium = make(lab, lambda at: random_copy(kept, at), size + 256 * MIB, rate)
    return one_file(lab, medium, kept)


def random_copy(kept: Path, at: Path) -> None:
    subprocess.run(["cp", "-a", str(kept), str(at / "source")], check=True)


def of_tree(lab: Lab, make: Callable[..., Medium], count: int, rate: int = 0) -> Plan:
    kept = tree(lab.directory(lab.memory, "kept") / "source", lab.count(count), small_sizes)
    medium = make(lab, lambda at: random_copy(kept, at), GIB, rate)
    return small_files(lab, medium, kept)


@row("cold-file", "One file of 512 MiB", COLD, warm_up=0)
def cold_file(lab: Lab) -> Plan:
    return of_file(lab, images, 512 * MIB)


@row("cold-tree", "2,000 files of 100 B to 16 KiB", COLD, warm_up=0)
def cold_tree(lab: Lab) -> Plan:
    return of_tree(lab, images, 2000)


@row("throttled-file", "One file of 256 MiB", THROTTLED, warm_up=0)
def throttled_file(lab: Lab) -> Plan:
    return of_file(lab, images, 256 * MIB, RATE)


@row("throttled-tree", "2,000 files of 100 B to 16 KiB", THROTTLED, warm_up=0)
def throttled_tree(lab: Lab) -> Plan:
    return of_tree(lab, images, 2000, RATE)


@row("delayed-file", "One file of 64 MiB", DELAYED, warm_up=0)
def delayed_file(lab: Lab) -> Plan:
    return of_file(lab, delayed, 64 * MIB)


@row("delayed-tree", "100 files of 100 B to 16 KiB", DELAYED, warm_up=0)
def delayed_tree(lab: Lab) -> Plan:
    return of_tree(lab, delayed, 100)


@row("cold-serve", "Serve one file of 256 MiB", COLD, warm_up=0)
def cold_serve(lab: Lab) -> Plan:
    return serve(lab, None)


@row("throttled-serve", "Serve one file of 256 MiB", THROTTLED, warm_up=0)
def throttled_serve(lab: Lab) -> Plan:
    return serve(lab, RATE)


def serve(lab: Lab, rate: int | None) -> Plan:
    """curl fetches a file that the server has to read from the disk."""
    need("curl")
    need_disk(lab.disk)
    kept = random_file(lab.directory(lab.memory, "kept") / "source", lab.size(256 * MIB))
    root = lab.directory(lab.disk, "served")
    root.chmod(0o755)
    random_copy(kept, root)
    os.sync()
    group = None
    if rate:
        group = lab.enter(groups.group("blkio", "io"))
        groups.limit_reads(group, os.stat(root).st_dev, rate)
        lab.undo.callback(groups.limit_reads, group, os.stat(root).st_dev, 0)
    target = lab.directory(lab.memory, "row")

    @contextmanager
    def fresh() -> Iterator[Path]:
        # Removes the file, because pages that a server has just sent can stay in memory for seconds.
        (root / "source").unlink()
        random_copy(kept, root)
        forget(root / "source")
        (target / "sample").mkdir()
        try:
            yield target / "sample"
        finally:
            remove(target / "sample")

    started = {name: servers.nginx(lab, root, servers.NGINX[name], cgroup=group) for name in ("nginx sendfile on", "nginx sendfile off")}
    for name, words in servers.OURS.items():
        started[name] = servers.thalweg(lab, root, *words, cgroup=group)
    variants = [
        Variant(name, with_server(command("curl", "-sS", "-o", "{}/copy", f"http://127.0.0.1:{server.port}/source"), server),
                ours=name in servers.OURS, against=servers.alike(name))
        for name, server in started.items()
    ]
    return Plan(variants, fresh, lambda at, _: same_file(kept, at / "copy"), "cmp", ["every sample has a new file, whose pages are dropped"], "server")
