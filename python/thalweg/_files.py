"""Copies of files and trees, and the list of mechanisms."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from thalweg import _native


@dataclass(frozen=True)
class Share:
    """The bytes that one mechanism moved."""

    mechanism: str
    bytes: int


@dataclass(frozen=True)
class CopyReport:
    """The result of a copy. Sizes are in bytes, times in seconds."""

    files: int
    dirs: int
    links: int
    specials: int
    bytes: int
    #: The part of `bytes` that shares blocks with the source.
    cloned: int
    #: Bytes moved by an earlier run.
    resumed: int
    #: Files that needed no copy.
    skipped: int
    #: Files that were read again and compared equal.
    verified: int
    seconds: float
    cpu_seconds: float
    #: Bytes moved by each mechanism, the largest first.
    shares: tuple[Share, ...] = field(default=())


def copy(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    archive: bool = True,
    resume: bool = False,
    no_clobber: bool = False,
    one_file_system: bool = False,
    dry_run: bool = False,
    threads: int = 0,
    limit: int | None = None,
    verify: Literal["sha256", "blake3", "xxh3"] | None = None,
    fsync: Literal["never", "auto", "always"] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> CopyReport:
    """Copies a file, or a directory with its contents, to the path `destination`.

    Each file appears under its name when it is complete. If the directory `destination` exists, the files are merged
    into it. With `archive` (the default) links, times, owners and attributes are preserved, as by `cp -a`; without it
    only contents and permissions, as by `cp -r`. `resume` continues an interrupted copy that also used `resume`;
    `verify` reads everything again and compares. With `fsync="always"` everything is on stable storage at return. With
    "auto" (the default), a replaced file has its old or its new contents after a power cut. `threads=0` means one thread
    for each processor; `limit` is the maximum number of bytes per second. `progress(files, bytes)` is called several
    times a second. If it raises an exception, the copy ends, as after Ctrl-C.

    Raises Error if the copy is not complete, with the number of bytes in `moved` and the errno of the first failure.
    """
    options: dict[str, Any] = {
        "resume": resume,
        "no_clobber": no_clobber,
        "one_file_system": one_file_system,
        "dry_run": dry_run,
        "threads": threads,
        "limit": limit,
        "verify": verify,
        "fsync": fsync,
    }
    told = _native.copied(source, destination, archive, options, progress)
    shares = tuple(Share(*share) for share in told.pop("shares"))
    return CopyReport(**told, shares=shares)


@dataclass(frozen=True)
class Mechanism:
    """A mechanism that moves bytes, with the fields of `thalweg list --json`."""

    name: str
    summary: str
    #: The system calls that it uses.
    calls: tuple[str, ...]
    #: All other fields, such as pairs of endpoints with their guarantees, and knobs.
    more: dict[str, Any]


def mechanisms() -> list[Mechanism]:
    """Returns all mechanisms between open files, safest first."""
    found = []
    for text in _native.listed():
        told = json.loads(text)
        found.append(Mechanism(told.pop("name"), told.pop("summary"), tuple(told.pop("calls")), told))
    return found
