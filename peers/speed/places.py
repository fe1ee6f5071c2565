"""Places of samples: a new directory on tmpfs, or a new file system in an image."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from lab import GIB, MIB, Lab, missing, need, need_root, program, quiet, remove
from measure import Failed
from row import Skip

NOT_FRESH = "a new directory per sample on one file system, not a new ext4: mounting needs root, losetup and mkfs.ext4"


class Place(NamedTuple):
    """The source as a word of a command, a function that makes the places of samples, and remarks. A command copies to
    `{}/copy`."""

    source: str
    fresh: Callable[[], AbstractContextManager[Path]]
    notes: list[str]

    def original(self, place: Path) -> Path:
        return Path(self.source.replace("{}", str(place)))


def on_tmpfs(lab: Lab, fill: Callable[[Path], object], _: int = 0) -> Place:
    """Provides places on tmpfs. `fill` creates `source` in a directory, and every sample gets a new directory next to it."""
    return in_directory(lab.directory(lab.memory, "row"), fill, [])


def in_directory(base: Path, fill: Callable[[Path], object], notes: list[str]) -> Place:
    fill(base)
    return Place(str(base / "source"), lambda: new_directory(base / "sample"), notes)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    path.mkdir()
    try:
        yield path
    finally:
        remove(path)


@contextmanager
def with_old(base: Path, old: Path) -> Iterator[Path]:
    """Provides a directory in which the destination `copy` already exists, with the contents of `old`."""
    with new_directory(base / "sample") as place:
        quiet("cp", "-rp", "--reflink=never", old, place / "copy")
        # Otherwise the kernel would write these pages during the sample.
        quiet("sync", "-f", place)
        yield place


def on_xfs(lab: Lab, size: int) -> Path:
    """Mounts a new file system on which files can be cloned, for the whole row. Returns its directory."""
    need_root("mounting a file system with clones")
    need("mkfs.xfs", "losetup")
    base = lab.directory(lab.memory, "image")
    try:
        image = make_image(base, lambda _: None, size, "xfs")
        return lab.enter(mounted(image, base / "mount"))
    except Failed as error:
        raise Skip(f"xfs cannot be mounted: {error}") from error


def on_ext4(lab: Lab, fill: Callable[[Path], object], size: int) -> Place:
    """Provides a new file system with the source for every sample, if possible in memory, so that no disk disturbs it."""
    if os.geteuid() or any(map(missing, ("mkfs.ext4", "losetup"))):
        return in_directory(lab.directory(lab.disk, "row"), fill, [NOT_FRESH])
    parent = lab.memory if shutil.disk_usage(lab.memory).free > 4 * size else lab.disk
    base = lab.directory(parent, "row")
    template = make_image(base, fill, size)
    where = "tmpfs" if parent == lab.memory else "disk"
    return Place("{}/source", lambda: new_file_system(base, template), [f"a new ext4 per sample, in an image on {where}"])


# Commands that make a file system in an image.
MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-N", 400_000],
    "xfs": ["mkfs.xfs", "-q", "-m", "reflink=1"],
}


def make_image(base: Path, fill: Callable[[Path], object], size: int, system: str = "ext4") -> Path:
    """Creates an image of a file system, and fills it by `fill`."""
    image = base / "template"
    with image.open("wb") as file:
        file.truncate(size + 64 * MIB)
    mkfs, *options = MKFS[system]
    quiet(program(mkfs), *options, image)
    with mounted(image, base / "filling") as at:
        fill(at)
    return image


@contextmanager
def new_file_system(base: Path, template: Path) -> Iterator[Path]:
    image = base / "image"
    quiet("cp", "--sparse=always", template, image)
    try:
        with mounted(image, base / "mount") as at:
            read_all(at)
            yield at
    finally:
        image.unlink()


@contextmanager
def mounted(image: Path, at: Path, direct: bool = False) -> Iterator[Path]:
    """Mounts an image. With `direct`, the loop device reads the image without the page cache."""
    words = [program("losetup"), "--find", "--show", *(["--direct-io=on"] if direct else []), image]
    at.mkdir(exist_ok=True)
    try:
        device = quiet(*words).strip()
        quiet("mount", "-o", "noatime", device, at)
        # Detaches the device as soon as it is unmounted, also if the kernel unmounts it after SIGKILL of this process.
        quiet(program("losetup"), "--detach", device)
        yield at
    finally:
        if os.path.ismount(at):
            quiet("umount", at)
        for left in attached(image):
            quiet(program("losetup"), "--detach", left)
        at.rmdir()


def attached(image: Path) -> list[str]:
    """Returns the loop devices of an image that are still attached."""
    return quiet(program("losetup"), "--noheadings", "--output", "NAME", "--associated", image).split()


def read_all(at: Path) -> None:
    """Reads every file, so that it is in the page cache."""
    subprocess.run(["find", str(at), "-type", "f", "-exec", "cat", "{}", "+"], stdout=subprocess.DEVNULL, check=True)


def image_size(data: int) -> int:
    """Returns the size of an image for a source of `data` bytes, a copy of it and the inodes."""
    return max(2 * data + 512 * MIB, GIB)
