"""Measures a row: all variants once in each round, in random order, thalweg twice."""

import random
import statistics
import time
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import stats
from lab import Lab, missing
from measure import Failed, Usage, with_other_program
from row import BEFORE, Plan, Row, Skip, Variant

AGAIN = " (again)"
# A row that exceeds its time limit still runs this many rounds.
FEWEST = 3


@dataclass
class Samples:
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    other: dict[str, list[float]] = field(default_factory=dict)

    def add(self, usage: Usage) -> None:
        self.wall.append(usage.wall)
        self.cpu.append(usage.cpu)
        for name, value in usage.other.items():
            self.other.setdefault(name, []).append(value)

    def data(self) -> dict:
        shown = {"wall": [short(value) for value in self.wall], "cpu": [short(value) for value in self.cpu]}
        return shown | ({"other": self.other} if self.other else {})


def short(value: float) -> float:
    """Rounds to six digits. A message between processes takes less than a microsecond."""
    return float(f"{value:.6g}")


class Absent(NamedTuple):
    name: str
    reason: str


def present(variants: list[Variant]) -> tuple[list[Variant], list[Absent]]:
    """Separates the variants whose programs are installed from the others."""
    absent = [Absent(one.name, "; ".join(map(missing, one.needs))) for one in variants if any(map(missing, one.needs))]
    names = {one.name for one in absent}
    return [one for one in variants if one.name not in names], absent


def earlier(variants: list[Variant], lab: Lab) -> list[Variant]:
    """Returns the variants of thalweg with the program of `--before`. Leaves out variants that the row already contains."""
    if not lab.before:
        return []
    names = {one.name for one in variants}
    return [replace(one, name=one.name + BEFORE, run=with_other_program(one.run, lab.thalweg, lab.before), before=True)
            for one in variants if one.ours and not one.before and one.name + BEFORE not in names]


def measure(row: Row, plan: Plan, lab: Lab, rounds: int, seconds: float) -> dict:
    """Runs all rounds. Stops early after this time, but not before three rounds. Returns the row's part of the JSON file."""
    variants, absent = present(plan.variants)
    variants += earlier(variants, lab)
    ours = [one for one in variants if one.ours]
    if len(ours) == len(variants):
        raise Skip("; ".join(f"{one.name}: {one.reason}" for one in absent) or "no other tool")
    again = Variant(ours[0].name + AGAIN, ours[0].run, ours[0].guarantee, ours=True)
    rng = random.Random(row.name)
    samples = {one.name: Samples() for one in [*variants, again]}
    end = time.monotonic() + seconds
    for number in range(-row.warm_up, rounds):
        if number >= FEWEST and time.monotonic() > end:
            plan.notes.append(f"stopped after {number} of {rounds} rounds, because the row took {seconds / 60:.1f} minutes")
            rounds = number
            break
        for variant in rng.sample([*variants, again], len(variants) + 1):
            try:
                with plan.fresh() as place:
                    usage = variant.run(place)
                    plan.check(place, variant)
            except Failed as error:
                # The row continues without an earlier version of thalweg, and without a tool that need not be installed.
                if not variant.before and not variant.needs:
                    raise
                first = str(error).splitlines()[0].replace(lab.before or lab.thalweg, "thalweg").replace(lab.thalweg, "thalweg")
                absent.append(Absent(variant.name, first.replace(str(lab.memory), "MEMORY").replace(str(lab.disk), "DISK")[:160]))
                variants.remove(variant)
                del samples[variant.name]
                continue
            if number >= 0:
                samples[variant.name].add(usage)
    result = {
        "row": row.name, "what": row.what, "section": row.section, "rounds": rounds, "verified": plan.verified, "cpu": plan.cpu,
        "notes": plan.notes,
        "not_run": [one._asdict() for one in absent],
        "variants": [
            {"name": name, "guarantee": next((one.guarantee for one in variants if one.name == name), ""), **samples[name].data()}
            for name in samples
        ],
    }
    return result | {"contests": contests(variants, samples, again.name)}


def contests(variants: list[Variant], samples: dict[str, Samples], again: str) -> list[dict]:
    """Compares every variant of thalweg with the other tools that it names, or with all if it names none, and with its earlier
    version."""
    ours = [one for one in variants if one.ours and not one.before]
    theirs = [one for one in variants if not one.ours or one.before]
    shown = []
    for one in ours:
        for other in theirs:
            if other.name == one.name + BEFORE if other.before else not one.against or other.name in one.against:
                contest = {"thalweg": one.name, "other": other.name, "before": other.before}
                for figure in ("wall", "cpu"):
                    of = lambda name: getattr(samples[name], figure)  # noqa: E731
                    contest[figure] = figures(of(one.name), of(other.name), of(ours[0].name), of(again))
                shown.append(contest)
    return shown


def figures(ours: list[float], theirs: list[float], first: list[float], second: list[float]) -> dict | None:
    measured, noise = stats.ratio(ours, theirs), stats.ratio(second, first)
    if not measured or not noise:
        return None
    rounded = {"ratio": measured.median, "low": measured.low, "high": measured.high, "again_low": noise.low, "again_high": noise.high}
    return {name: round(value, 4) for name, value in rounded.items()} | {
        "seconds": short(statistics.median(ours)), "other_seconds": short(statistics.median(theirs)),
        "verdict": stats.verdict(measured, noise, len(ours)),
    }
