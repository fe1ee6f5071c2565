"""Results of the command `thalweg` as Python objects, and transfers between open files.

`plan`, `doctor` and `tune` run the command of the same name in a process, and `transfer` runs `thalweg pipe`.
docs/reference/json.md describes every field.
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
    """Returns the JSON that the command prints: its standard output, or the last line of JSON on standard error if standard
    output carries the data."""
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
    """Converts options to command-line arguments: `method="splice"` to `--method=splice`, and True to the name alone. None
    and False add no argument."""
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
    """The result of a transfer between two open files. Sizes are in bytes, times in seconds."""

    bytes: int
    seconds: float
    cpu_seconds: float
    #: The mechanism that moved most bytes; None if none were moved.
    mechanism: str | None
    #: All other fields of `thalweg pipe --json`.
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
    """Moves the rest of `source`, or `size` bytes of it, to `sink`. Both are open files, pipes or sockets, or descriptors.

    Files are read and written at the offset of their descriptor, which advances by the bytes moved. Python's buffer of
    `sink` is flushed first; bytes in Python's buffer of `source` are not moved. With `zero_copy`, the sink may receive
    pages of the source instead of copies, and so see later changes of the source. `limit` is the maximum number of bytes
    per second, and `method` the name of a mechanism.

    Raises Error if not everything was moved; its `moved` is the number of bytes. Ctrl-C ends the transfer.
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
    """The plan's verdict on one mechanism."""

    mechanism: str
    #: Knobs that are not at their default.
    tuning: dict[str, Any]
    verdict: Literal["chosen", "tie", "slower", "unmeasured", "unfit"]
    #: The reason why the mechanism is chosen or cannot be used.
    why: str | None
    #: The measurement, and its time.
    cited: str | None
    #: All other fields, such as ratios and measurements.
    more: dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How the command would move the bytes, and why it rejects the other mechanisms."""

    #: Number of bytes, if known.
    bytes: int | None
    #: One verdict for every mechanism, that of the chosen mechanism first.
    verdicts: tuple[Verdict, ...]
    #: The reason why no mechanism can be used.
    impossible: str | None
    profile: Profile
    #: All other fields, such as the endpoints, the guarantees and the probes.
    more: dict[str, Any]

    @property
    def chosen(self) -> Verdict | None:
        """The mechanism that would be used."""
        return next((verdict for verdict in self.verdicts if verdict.verdict == "chosen"), None)


@dataclass(frozen=True)
class Profile:
    """The profile of this machine, with the results that `tune` has saved. Only a current profile is used."""

    #: `current`, or the reason why the profile is not used: `absent`, `stale`, `broken`.
    state: str
    #: Path of the profile, whether it exists or not.
    path: str | None
    entries: int
    #: Time of the newest measurement, in UTC.
    newest: str | None
    #: Changes of the machine since the measurements, which make the profile stale.
    stale: tuple[str, ...]
    #: The reason why the file cannot be read.
    broken: str | None

    @classmethod
    def now(cls) -> Profile:
        """Returns the profile that the command and `copy` use on this machine."""
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
    """Returns which mechanism would move `source` to `sink`. Nothing is written, and `sink` need not exist. `memory:`,
    `pipe:`, `unix:`, `tcp:` and `process:` name endpoints that are not open yet, as for `thalweg plan`."""
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
    """The mechanisms that work on this machine."""

    #: Kernel, processor and limits, as text.
    machine: dict[str, str]
    #: Maps each mechanism to the kinds of endpoints between which it works, as `source -> sink`.
    works: dict[str, tuple[str, ...]]
    profile: Profile
    #: All other fields, such as file systems, reasons of failures, and thresholds of the C library.
    more: dict[str, Any]


def doctor() -> Doctor:
    """Tests every mechanism between all kinds of endpoints."""
    told = _run(["doctor"])
    works = {
        one["name"]: tuple(f"{pair['source']} -> {pair['sink']}" for pair in one["works"]) for one in told["mechanisms"]
    }
    return Doctor(told.pop("machine"), works, Profile._of(told.pop("profile")), told)


@dataclass(frozen=True)
class Tuned:
    """The results of `tune`."""

    seconds: float
    #: Number of processes that measured.
    sessions: int
    #: Recommendations for this machine, one line for each measured group: files, pipes, sockets, memory, processes.
    advice: tuple[str, ...]
    #: Failures and omissions.
    troubles: tuple[str, ...]
    #: Path of the saved profile; None if saving failed.
    path: str | None
    #: All other fields, including every measurement.
    more: dict[str, Any]


def tune(
    *pairs: str,
    quick: bool = False,
    budget: float | None = None,
    objective: Prefer = "wall",
    assume_idle: bool = False,
) -> Tuned:
    """Measures this machine for some minutes and saves the results in its profile. Measures the usual pairs of endpoints,
    or the given ones, such as `file:pipe` or `file:tcp@/directory`. `budget` is the maximum time in seconds. Raises Error
    if a measurement failed."""
    seconds = None if budget is None else f"{budget:g}s"
    words = _options(quick=quick, budget=seconds, objective=objective, assume_idle=assume_idle)
    told = _run(["tune", *words, *(f"--pair={pair}" for pair in pairs)])
    advice = tuple(one["text"] for one in told["advice"])
    troubles = tuple(told.pop("troubles"))
    return Tuned(told.pop("seconds"), told.pop("sessions"), advice, troubles, told.pop("profile"), told)
