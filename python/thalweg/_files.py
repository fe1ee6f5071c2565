"""Copies of files and trees, and the mechanisms that there are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from thalweg import _native


@dataclass(frozen=True)
class Share:
    """What one mechanism moved."""

    mechanism: str
    bytes: int


@dataclass(frozen=True)
class CopyReport:
    """What a copy did. Counts are of files; sizes are bytes; times are seconds."""

    files: int
    dirs: int
    links: int
    specials: int
    bytes: int
    #: Of these bytes, those that share their blocks with the source.
    cloned: int
    #: Bytes that an earlier run had moved.
    resumed: int
    #: Files left as they were.
    skipped: int
    #: Files that were read again and are equal.
    verified: int
    seconds: float
    cpu_seconds: float
    #: Which mechanism moved how much, the largest first.
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
    """Copies a file, or a folder with all it holds, to the name `destination`.

    It appears under its name when it is whole; a folder that is there is merged into, file by file. With `archive`
    (the default) links stay links and times, owners, attributes are kept, as `cp -a` does; without it the bytes and
    the permissions, as `cp -r`. `resume` goes on where an earlier copy with `resume` was interrupted, `verify` reads
    everything again and compares. With `fsync="always"` everything is on stable storage at return; with "auto" (the
    default) a power cut leaves a replaced file with its old contents or the new. `threads` 0 is one for each processor, `limit` the most bytes per second. `progress(files, bytes)` is called some times a second; what it
    raises ends the copy, as Ctrl-C does.

    Error if the copy is not complete, with `moved` bytes and the errno of what failed first.
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
    """One way to move bytes, as `thalweg list --json` tells of it."""

    name: str
    summary: str
    #: The system calls that it is made of.
    calls: tuple[str, ...]
    #: Everything else: pairs of ends with their promises, knobs, and what it is like.
    more: dict[str, Any]


def mechanisms() -> list[Mechanism]:
    """All mechanisms between open files, safest first."""
    found = []
    for text in _native.listed():
        told = json.loads(text)
        found.append(Mechanism(told.pop("name"), told.pop("summary"), tuple(told.pop("calls")), told))
    return found
