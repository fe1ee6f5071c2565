"""What the command tells of this machine, as data; and bytes between open files, moved by it.

Each function is the command of its name in a process of its own: docs/reference/json.md has every field.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from thalweg._errors import made

PROGRAM = Path(__file__).with_name("_bin") / "thalweg"

Prefer = Literal["wall", "cpu", "memory"]
Load = Literal["idle", "loaded"]
Name = str | os.PathLike[str]


class File(Protocol):
    """An open file, pipe or socket."""

    def fileno(self) -> int: ...


def _run(words: Sequence[str], source: int | None = None, sink: int | None = None) -> dict[str, Any]:
    """The JSON that the command answers: its last line, on standard error where its output is the data."""
    command = [str(PROGRAM), "--json", *words]
    into = subprocess.DEVNULL if source is None else source
    out = subprocess.PIPE if sink is None else sink
    try:
        ran = subprocess.run(command, stdin=into, stdout=out, stderr=subprocess.PIPE, check=False)
    except OSError as error:
        raise made("Error", error.errno, f"cannot start {PROGRAM}: {error.strerror}", 0, None) from error
    said = ran.stderr.decode(errors="replace")
    answer = said if sink is not None else ran.stdout.decode()
    lines = [line for line in answer.splitlines() if line.startswith("{")] if sink is not None else [answer]
    told: dict[str, Any] = json.loads(lines[-1]) if lines and lines[-1] else {}
    if ran.returncode != 0 and not told.get("impossible"):
        complaint = told.get("error") or said.strip().removeprefix("thalweg: ")
        raise made("Error", None, complaint, told.get("bytes", 0), told.get("mechanism"))
    return told


def _options(**given: object) -> list[str]:
    """As the command has them: `method="splice"` is `--method=splice`, True is the name alone, None and False are nothing."""
    words = []
    for name, value in given.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words.append(f"{option}={value}")
    return words


@dataclass(frozen=True)
class Transfer:
    """What moved between two open files. Sizes are bytes, times seconds."""

    bytes: int
    seconds: float
    cpu_seconds: float
    #: What moved most of it; None if there was nothing.
    mechanism: str | None
    #: Everything else that `thalweg pipe --json` tells.
    more: dict[str, Any]


def transfer(
    source: File | int,
    sink: File | int,
    *,
    size: int | None = None,
    limit: int | None = None,
    zero_copy: bool = False,
    prefer: Prefer = "wall",
    method: str | None = None,
) -> Transfer:
    """Moves what `source` still has, or `size` bytes of it, into `sink`: open files, pipes or sockets, or their descriptors.

    A file is read and written from the offset of its descriptor on, which is behind the bytes afterwards. What Python has
    in a buffer of its own for `sink` is written out first; what it has read ahead of `source` is not seen. `zero_copy`
    lets pages of the source go along, so that a later change of it may show; `limit` is the most bytes per second;
    `method` is a mechanism's name.

    Error if not all of it moved, with `moved` bytes. Ctrl-C ends it.
    """
    flush = getattr(sink, "flush", None)
    if flush is not None:
        flush()
    words = _options(size=size, stop_at_size=size is not None, limit=limit)
    words += _options(zero_copy=zero_copy, prefer=prefer, method=method)
    into, out = (end if isinstance(end, int) else end.fileno() for end in (source, sink))
    told = _run(["pipe", "--quiet", *words], into, out)
    first = {name: told.pop(name) for name in ("bytes", "seconds", "cpu_seconds", "mechanism")}
    return Transfer(**first, more=told)


@dataclass(frozen=True)
class Verdict:
    """What a plan says of one mechanism."""

    mechanism: str
    #: Knobs that are not at their default.
    tuning: dict[str, Any]
    verdict: Literal["chosen", "tie", "slower", "unmeasured", "unfit"]
    #: Why it is chosen, or cannot be used.
    why: str | None
    #: What was measured and when, in words.
    cited: str | None
    #: Everything else: how much slower, the figures.
    more: dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How the command would move something, and why no other way."""

    #: How many, where that is known.
    bytes: int | None
    #: One for every mechanism, the chosen one first.
    verdicts: tuple[Verdict, ...]
    #: Why nothing can do it.
    impossible: str | None
    profile: Profile
    #: Everything else: the two ends, promises, what was tried.
    more: dict[str, Any]

    @property
    def chosen(self) -> Verdict | None:
        """The mechanism that would move it."""
        return next((verdict for verdict in self.verdicts if verdict.verdict == "chosen"), None)


@dataclass(frozen=True)
class Profile:
    """What `tune` has measured and kept on this machine, as far as it holds."""

    #: `current`, or why it is not used: `absent`, `stale`, `broken`.
    state: str
    #: Where it is, or would be.
    path: str | None
    entries: int
    #: When the newest entry was measured, in UTC.
    newest: str | None
    #: What has changed on the machine since.
    stale: tuple[str, ...]
    #: What is wrong with a file that cannot be read.
    broken: str | None

    @classmethod
    def now(cls) -> Profile:
        """The one that the command, and `copy`, would use here."""
        return cls._of(_run(["plan", "memory:", "memory:"])["profile"])

    @classmethod
    def _of(cls, told: dict[str, Any]) -> Profile:
        stale = tuple(f"{one['key']}: {one['was']}, now {one['is']}" for one in told["stale"])
        return cls(told["state"], told["path"], told["entries"], told["newest"], stale, told["broken"])


def plan(
    source: Name,
    sink: Name,
    *,
    size: int | None = None,
    zero_copy: bool = False,
    prefer: Prefer = "wall",
    load: Load = "idle",
    method: str | None = None,
) -> Plan:
    """Which mechanism would move `source` to the name `sink`, which need not exist; nothing is written there. `memory:`,
    `pipe:`, `unix:`, `tcp:` and `process:` are ends that are not there yet, as for `thalweg plan`."""
    words = _options(size=size, zero_copy=zero_copy, prefer=prefer, load=load, method=method)
    told = _run(["plan", *words, "--", os.fspath(source), os.fspath(sink)])
    verdicts = tuple(_verdict(one) for one in told.pop("verdicts"))
    profile = Profile._of(told.pop("profile"))
    return Plan(told.pop("bytes"), verdicts, told.pop("impossible"), profile, told)


def _verdict(told: dict[str, Any]) -> Verdict:
    first = {name: told.pop(name) for name in ("mechanism", "tuning", "verdict")}
    why = told.pop("why", None) or told.pop("reason", None)
    return Verdict(**first, why=why, cited=told.pop("cited", None), more=told)


@dataclass(frozen=True)
class Doctor:
    """What works on this machine."""

    #: Kernel, processor, limits: each a text.
    machine: dict[str, str]
    #: Mechanism -> the kinds of ends between which it works, each `source -> sink`.
    works: dict[str, tuple[str, ...]]
    profile: Profile
    #: Everything else: file systems, why what fails does, thresholds of the C library.
    more: dict[str, Any]


def doctor() -> Doctor:
    """Tries every mechanism between every kind of ends."""
    told = _run(["doctor"])
    works = {
        one["name"]: tuple(f"{pair['source']} -> {pair['sink']}" for pair in one["works"]) for one in told["mechanisms"]
    }
    return Doctor(told.pop("machine"), works, Profile._of(told.pop("profile")), told)


@dataclass(frozen=True)
class Tuned:
    """What `tune` found."""

    seconds: float
    #: Fresh processes that measured.
    sessions: int
    #: What to use here, in a line each for files, pipes, sockets, memory and processes: as far as they were measured.
    advice: tuple[str, ...]
    #: What went wrong, or was left out.
    troubles: tuple[str, ...]
    #: Where it is kept; None if it could not be.
    path: str | None
    #: Everything else: every cell with its figures.
    more: dict[str, Any]


def tune(
    *pairs: str,
    quick: bool = False,
    budget: float | None = None,
    objective: Prefer = "wall",
    assume_idle: bool = False,
) -> Tuned:
    """Measures this machine, minutes long, and keeps that in its profile: all that usually matters, or these pairs of
    ends, each as `file:pipe` or `file:tcp@/folder`. `budget` is the most seconds. Error if something could not be
    measured."""
    seconds = None if budget is None else f"{budget:g}s"
    words = _options(quick=quick, budget=seconds, objective=objective, assume_idle=assume_idle)
    told = _run(["tune", *words, *(f"--pair={pair}" for pair in pairs)])
    advice = tuple(one["text"] for one in told["advice"])
    troubles = tuple(told.pop("troubles"))
    return Tuned(told.pop("seconds"), told.pop("sessions"), advice, troubles, told.pop("profile"), told)
