"""Control groups of version 1 and 2. They are removed at the end of the row."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import complain, need_root
from row import Skip

MOUNTS = Path("/sys/fs/cgroup")


def parent_of(controller_v1: str, controller_v2: str) -> Path:
    """Returns the directory in which a group with the controller can be made."""
    controllers = MOUNTS / "cgroup.subtree_control"
    if (MOUNTS / controller_v1).is_dir():
        return MOUNTS / controller_v1
    if controllers.exists() and controller_v2 in controllers.read_text().split():
        return MOUNTS
    raise Skip(f"no control groups with {controller_v1} or {controller_v2} in {MOUNTS}")


@contextmanager
def group(controller_v1: str, controller_v2: str) -> Iterator[Path]:
    """Makes a group. Removes it when its processes have ended."""
    need_root("a control group")
    parent = parent_of(controller_v1, controller_v2)
    path = parent / f"thalweg-speed-{os.getpid()}-{time.monotonic_ns()}"
    try:
        path.mkdir()
    except OSError as error:
        raise Skip(f"no control group in {parent}: {error}") from error
    try:
        yield path
    finally:
        for _ in range(100):
            try:
                path.rmdir()
                break
            except OSError:
                time.sleep(0.05)
        else:
            complain(f"{path} was not removed: it still has processes")


def write(path: Path, names: dict[str, str]) -> None:
    """Writes the value of the first file that exists."""
    for name, value in names.items():
        if (path / name).exists():
            try:
                (path / name).write_text(value)
            except OSError as error:
                raise Skip(f"{path / name}: {error}") from error
            return
    raise Skip(f"{path} has none of {', '.join(names)}")


def limit_reads(path: Path, device: int, rate: int) -> None:
    """Limits the rate of reads from a block device, in bytes per second; 0 removes the limit."""
    number = f"{os.major(device)}:{os.minor(device)}"
    write(path, {"blkio.throttle.read_bps_device": f"{number} {rate}", "io.max": f"{number} rbps={rate or 'max'}"})


def limit_memory(path: Path, size: int) -> None:
    write(path, {"memory.limit_in_bytes": str(size), "memory.max": str(size)})
