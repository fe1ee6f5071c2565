"""Ratios within rounds, their intervals and the verdict."""

import random
import statistics
from typing import NamedTuple

RESAMPLES = 4000


class Ratio(NamedTuple):
    """The median of the ratios of all rounds, and its 95 % interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def interval(values: list[float], seed: int = 1) -> tuple[float, float]:
    """Returns the 95 % interval of the median by a bootstrap over the rounds."""
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[round(0.025 * (RESAMPLES - 1))], medians[round(0.975 * (RESAMPLES - 1))]


def ratio(ours: list[float], theirs: list[float]) -> Ratio | None:
    """Divides the samples of two variants round by round. Returns None if a sample is zero."""
    if not ours or min(ours) <= 0 or min(theirs) <= 0:
        return None
    quotients = [one / other for one, other in zip(ours, theirs, strict=True)]
    return Ratio(statistics.median(quotients), *interval(quotients))


def band(again: Ratio) -> float:
    """Returns the factor by which two runs of one variant differ, at the far end of the A/A interval."""
    return max(again.high, 1 / again.low, 1.0)


def verdict(measured: Ratio, again: Ratio) -> str:
    """Returns `won` or `lost` if the interval excludes 1 and the median is farther from 1 than the A/A interval, else `even`."""
    factor = band(again)
    if measured.high < 1 and measured.median < 1 / factor:
        return "won"
    if measured.low > 1 and measured.median > factor:
        return "lost"
    return "even"
