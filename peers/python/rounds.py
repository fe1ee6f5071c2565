"""Rounds in which ways take turns, each time in an order of its own, and what they show. See `run`."""

import contextlib
import multiprocessing
import random
import statistics
from collections.abc import Callable, Iterator

#: A way, told a number that is new in every round: the seconds that it took.
Way = Callable[[int], float]
SPAWN = multiprocessing.get_context("spawn")


def taken(ways: dict[str, Way], rounds: int) -> dict[str, list[float]]:
    """Seconds of every way, in every round but the first, which makes all memory resident."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name in random.sample(list(ways), len(ways)):
            took = ways[name](number % 250 + 2)
            if number:
                seconds[name].append(took)
    return seconds


def printed(title: str, seconds: dict[str, list[float]]) -> None:
    """Medians, quartiles, and the median of the ratios to the first way in the same round."""
    print(title)
    base = next(iter(seconds.values()))
    for name, took in sorted(seconds.items(), key=lambda item: statistics.median(item[1])):
        low, middle, high = statistics.quantiles(took, n=4)
        ratio = statistics.median(other / ours for other, ours in zip(took, base, strict=True))
        print(f"  {name:38} {middle * 1e6:12.1f} us ({low * 1e6:.1f} to {high * 1e6:.1f})  {ratio:6.2f} x")


@contextlib.contextmanager
def senders() -> Iterator[Callable[..., Callable[[int], None]]]:
    """Starts processes that send when they are told to, by `target(told, ...)`; ends them with None."""
    tells, processes = [], []

    def begin(target: Callable[..., None], *arguments: object) -> Callable[[int], None]:
        tell, told = SPAWN.Pipe()
        process = SPAWN.Process(target=target, args=(told, *arguments))
        process.start()
        tells.append(tell)
        processes.append(process)
        return tell.send

    try:
        yield begin
    finally:
        for tell in tells:
            tell.send(None)
        for process in processes:
            process.join()
