"""Rounds in which methods are measured in random order, and their results. See `run`."""

import contextlib
import multiprocessing
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

#: Wall time and CPU time, in seconds.
Cost = tuple[float, float]
#: A method. The argument is a number that differs in every round; the result is the cost.
Way = Callable[[int], Cost]
#: The costs of each method in each round.
Taken = dict[str, list[Cost]]
T = TypeVar("T")
SPAWN = multiprocessing.get_context("spawn")


def processor() -> float:
    """Returns the CPU time of this process and of the processes that it started, in seconds."""
    # The clock id for the CPU time of another process: see CPUCLOCK_SCHED and clock_gettime(2).
    clocks = [time.CLOCK_PROCESS_CPUTIME_ID]
    clocks += [~child.pid << 3 | 2 for child in multiprocessing.active_children() if child.pid]
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(time.clock_gettime(clock) for clock in clocks) + ended.ru_utime + ended.ru_stime


def timed(work: Callable[[], T]) -> tuple[Cost, T]:
    """Returns the cost of the work, and its result."""
    before, began = processor(), time.perf_counter()
    found = work()
    seconds = time.perf_counter() - began
    return (seconds, processor() - before), found


def answered(tell: Callable[[int], object], get: Callable[[], T], is_right: Callable[[T, int], object]) -> Way:
    """Returns a method that measures the cost from the command to send until the data has arrived, and then checks the
    data."""

    def once(stamp: int) -> Cost:
        cost, got = timed(lambda: (tell(stamp), get())[1])
        assert is_right(got, stamp), "something else has come"
        return cost

    return once


def taken(ways: dict[str, Way], rounds: int) -> Taken:
    """Returns the costs of every method in every round but the first, which makes all memory resident."""
    took: Taken = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name in random.sample(list(ways), len(ways)):
            cost = ways[name](number % 250 + 2)
            if number:
                took[name].append(cost)
    return took


def printed(title: str, took: Taken) -> None:
    """Prints medians and quartiles of wall time. Also prints the medians of the ratios to the first method in the same round,
    for wall time and CPU time."""
    print(title)
    base = next(iter(took.values()))
    for name, rounds in sorted(took.items(), key=lambda item: statistics.median(wall for wall, _ in item[1])):
        low, middle, high = statistics.quantiles((wall for wall, _ in rounds), n=4)
        wall, cpu = (statistics.median(one[at] / ours[at] for one, ours in zip(rounds, base, strict=True)) for at in (0, 1))
        times = f"{middle * 1e6:12.2f} us ({low * 1e6:.2f} to {high * 1e6:.2f})"
        print(f"  {name:38} {times}  {wall:6.2f} x  processors {cpu:6.2f} x")


@contextlib.contextmanager
def senders() -> Iterator[Callable[..., Callable[[int], None]]]:
    """Returns a function that starts processes with `target(told, ...)`. They send when they receive a number, and end when
    they receive None."""
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
