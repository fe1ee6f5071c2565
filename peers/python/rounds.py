"""Rounds in which ways take turns, each time in an order of its own, and what they show. See `run`."""

import contextlib
import multiprocessing
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

#: Seconds on the clock, and of all processors.
Cost = tuple[float, float]
#: A way, told a number that is new in every round: what it took.
Way = Callable[[int], Cost]
#: Of each way in each round.
Taken = dict[str, list[Cost]]
T = TypeVar("T")
SPAWN = multiprocessing.get_context("spawn")


def processor() -> float:
    """Seconds of processors that this process and those that it started have used until now."""
    # A process's clock by its number: CPUCLOCK_SCHED of clock_gettime(2).
    clocks = [time.CLOCK_PROCESS_CPUTIME_ID]
    clocks += [~child.pid << 3 | 2 for child in multiprocessing.active_children() if child.pid]
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(time.clock_gettime(clock) for clock in clocks) + ended.ru_utime + ended.ru_stime


def timed(work: Callable[[], T]) -> tuple[Cost, T]:
    """What it took, and what it came to."""
    before, began = processor(), time.perf_counter()
    found = work()
    seconds = time.perf_counter() - began
    return (seconds, processor() - before), found


def answered(tell: Callable[[int], object], get: Callable[[], T], is_right: Callable[[T, int], object]) -> Way:
    """From the word to send until what was sent is there; it is looked at afterwards."""

    def once(stamp: int) -> Cost:
        cost, got = timed(lambda: (tell(stamp), get())[1])
        assert is_right(got, stamp), "something else has come"
        return cost

    return once


def taken(ways: dict[str, Way], rounds: int) -> Taken:
    """What every way took in every round but the first, which makes all memory resident."""
    took: Taken = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name in random.sample(list(ways), len(ways)):
            cost = ways[name](number % 250 + 2)
            if number:
                took[name].append(cost)
    return took


def printed(title: str, took: Taken) -> None:
    """Medians and quartiles on the clock, and the medians of the ratios to the first way in the same round, on the clock and of
    processors."""
    print(title)
    base = next(iter(took.values()))
    for name, rounds in sorted(took.items(), key=lambda item: statistics.median(wall for wall, _ in item[1])):
        low, middle, high = statistics.quantiles((wall for wall, _ in rounds), n=4)
        wall, cpu = (statistics.median(one[at] / ours[at] for one, ours in zip(rounds, base, strict=True)) for at in (0, 1))
        times = f"{middle * 1e6:12.2f} us ({low * 1e6:.2f} to {high * 1e6:.2f})"
        print(f"  {name:38} {times}  {wall:6.2f} x  processors {cpu:6.2f} x")


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
