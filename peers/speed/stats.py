"""Ratios within rounds, their intervals and the verdict."""

import math
import random
import statistics
from typing import NamedTuple

RESAMPLES = 4000
LEVEL = 0.95
# Minimum number of rounds. With fewer, even the range of all ratios contains the true median with a probability below `LEVEL`.
FEWEST = 6


class Ratio(NamedTuple):
    """The median of the ratios of all rounds, and its 95 % interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def interval(values: list[float], seed: int = 1) -> tuple[float, float]:
    """Returns the 95 % interval of the median by a bootstrap over the rounds, at least as wide as `exact`."""
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - LEVEL) / 2
    low, high = exact(values)
    return min(low, medians[round(tail * (RESAMPLES - 1))]), max(high, medians[round((1 - tail) * (RESAMPLES - 1))])


def exact(values: list[float]) -> tuple[float, float]:
    """Returns the two order statistics that contain the true median with a probability of at least `LEVEL`, or the range of all values.

    The bootstrap alone is too narrow for few values: with seven, its interval contains the true median with a probability of 88 %.
    """
    ordered, outside, count = sorted(values), 0.0, len(values)
    for below in range(count):
        outside += 2 * math.comb(count, below) / 2**count
        if outside > 1 - LEVEL:
            break
    first = max(below - 1, 0)
    return ordered[first], ordered[count - 1 - first]


def ratio(ours: list[float], theirs: list[float]) -> Ratio | None:
    """Divides the samples of two variants round by round. Returns None if a sample is zero."""
    if not ours or min(ours) <= 0 or min(theirs) <= 0:
        return None
    quotients = [one / other for one, other in zip(ours, theirs, strict=True)]
    return Ratio(statistics.median(quotients), *interval(quotients))


def band(again: Ratio) -> float:
    """Returns the factor by which two runs of one variant may differ: the end of the A/A interval that is farther from 1."""
    return max(again.high, 1 / again.low, 1.0)


def verdict(measured: Ratio, again: Ratio, rounds: int) -> str:
    """Returns `won` or `lost` if the interval excludes 1 and the median is farther from 1 than the A/A interval, else `even`.

    Returns `too few rounds` if there are too few rounds for an interval.
    """
    if rounds < FEWEST:
        return "too few rounds"
    factor = band(again)
    if measured.high < 1 and measured.median < 1 / factor:
        return "won"
    if measured.low > 1 and measured.median > factor:
        return "lost"
    return "even"
