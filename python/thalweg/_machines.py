"""Runs one function on all machines of a Dask cluster, and compares the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from thalweg._commands import Doctor, Prefer, Tuned, doctor, tune
from thalweg._engines import is_client
from thalweg._member import who

_T = TypeVar("_T")


@dataclass(frozen=True)
class Machines(Generic[_T]):
    """The result of each machine. Its text form is a table."""

    #: The results by machine name.
    hosts: dict[str, _T]
    #: The reasons why other machines have no result, by address or machine name.
    failed: dict[str, str]
    #: The answers as text, by question and machine.
    rows: dict[str, dict[str, str]]

    @property
    def differs(self) -> dict[str, dict[str, str]]:
        """The rows in which the machines differ."""
        return {asked: answers for asked, answers in self.rows.items() if len(set(answers.values())) > 1}

    def __str__(self) -> str:
        lines = [f"{len(self.hosts)} of {len(self.hosts) + len(self.failed)} machines: {_named(sorted(self.hosts))}"]
        lines += [f"{host}: {why}" for host, why in sorted(self.failed.items())]
        differs = self.differs
        for asked, answers in differs.items():
            lines.append(f"{asked}: differs")
            for answer in sorted(set(answers.values())):
                lines.append(f"    {answer}: {_named(sorted(host for host in answers if answers[host] == answer))}")
        same = [(asked, answers) for asked, answers in self.rows.items() if asked not in differs]
        lines += [f"{asked}: {next(iter(answers.values()))}" for asked, answers in same if answers]
        return "\n".join(lines)


def _named(hosts: list[str]) -> str:
    most = 4
    more = f" and {len(hosts) - most} more" if len(hosts) > most else ""
    return ", ".join(hosts[:most]) + more


def tune_fleet(
    client: Any,
    *pairs: str,
    quick: bool = False,
    budget: float | None = None,
    objective: Prefer = "wall",
    assume_idle: bool = False,
) -> Machines[Tuned]:
    """Runs `thalweg.tune` on every machine of a Client of dask.distributed at the same time, in one worker of each machine. Each machine
    saves the results in its own profile. New workers of the machine use this profile; workers that have copied before do not read it
    again."""
    found, failed = _asked(client, tune, *pairs, quick=quick, budget=budget, objective=objective, assume_idle=assume_idle)
    rows: dict[str, dict[str, str]] = {}
    for host, told in found.items():
        for pair, ways in _advised(told).items():
            rows.setdefault(pair, {})[host] = ways
    # A machine may have no result for a pair, because its file system does not exist there, or because the time budget was used up.
    for answers in rows.values():
        answers.update({host: "not measured" for host in found if host not in answers})
    return Machines(found, failed, rows)


def fleet_doctor(client: Any) -> Machines[Doctor]:
    """Runs `thalweg.doctor` on every machine of a Client of dask.distributed, in one worker of each."""
    found, failed = _asked(client, doctor)
    rows: dict[str, dict[str, str]] = {}
    for host, told in found.items():
        for fact, value in {**told.machine, "profile": told.profile.state}.items():
            rows.setdefault(fact, {})[host] = value
    works = {host: {(name, pair) for name, all in told.works.items() for pair in all} for host, told in found.items()}
    for name, pair in sorted(set().union(*works.values())):
        answers = {host: "works" if (name, pair) in all else "does not" for host, all in works.items()}
        if len(set(answers.values())) > 1:
            rows[f"{name}, {pair}"] = answers
    return Machines(found, failed, rows)


def _advised(told: Tuned) -> dict[str, str]:
    """Returns the recommendation for each pair by size. Leaves out the measurements, because they always differ."""
    by_pair: dict[str, list[str]] = {}
    for line in told.more["advice"]:
        for band in line["bands"]:
            way = band["way"]
            name = f"the default ({band['default']})" if way is None else str(way)
            upto = "" if band["upto"] is None else f" up to {band['upto']}"
            by_pair.setdefault(band["pair"], []).append(name + upto)
    return {pair: ", ".join(ways) for pair, ways in by_pair.items()}


def _asked(client: Any, function: Callable[..., _T], *arguments: object, **options: object) -> tuple[dict[str, _T], dict[str, str]]:
    """Returns the result of one worker of each machine, and the reasons why other machines have no result."""
    if not is_client(client):
        raise TypeError(f"client must be a Client of dask.distributed, not {type(client).__name__}")
    told: dict[str, Any] = client.run(who, on_error="return")
    failed = {address: str(answer) for address, answer in told.items() if isinstance(answer, Exception)}
    chosen = {answer[0]: address for address, answer in sorted(told.items()) if address not in failed}
    # `Client.run` would block the worker's event loop, and the scheduler would consider the worker dead.
    asked = {
        host: client.submit(function, *arguments, **options, workers=[address], allow_other_workers=False, pure=False)
        for host, address in chosen.items()
    }
    found: dict[str, _T] = {}
    for host, future in asked.items():
        try:
            found[host] = future.result()
        except Exception as error:
            failed[host] = f"{type(error).__name__}: {error}"
    return found, failed
