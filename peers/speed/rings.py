"""Rows between two processes: the programs of study 103, started again for every sample."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from lab import MIB, ROOT, Lab, nothing
from measure import Failed, Usage, end_with_parent
from row import Plan, Skip, Variant, row

SECTION = "Between processes"
START = ROOT / "peers/channel/start"
BUILT = ROOT / ".tools/peers"
CHECKED = "the first bytes of each message; every byte once per sample"


class Worker:
    """A program that speaks the worker protocol (docs/reference/formats.md)."""

    def __init__(self, words: list[str], size: int, scratch: Path) -> None:
        self.words = [str(START), *words, f"bytes={size}", f"scratch={scratch}"]
        self.process = subprocess.Popen(self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        start_new_session=True, preexec_fn=end_with_parent)

    def ask(self, line: str) -> str:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer or answer.startswith(("unfit", "wrong")):
            raise Failed(f"{' '.join(self.words)}: {line}: {answer or 'no answer'}")
        return answer

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.process.stdin.write("quit\n")
            self.process.stdin.close()
            self.process.wait(timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def worker(words: list[str], size: int, count: int) -> Callable[[Path], Usage]:
    """Measures the wall time of the worker's command `run`. The worker reports the CPU time, with that of its helpers."""

    def run(place: Path) -> Usage:
        with Worker(words, size, place) as one:
            for line in ("hello", "warm", "check", f"run {max(count // 5, 1)}"):
                one.ask(line)
            begin = time.perf_counter()
            answer = json.loads(one.ask(f"run {count}"))
            wall = time.perf_counter() - begin
        return Usage(wall / count, (answer["user_us"] + answer["sys_us"]) / 1e6 / count)

    return run


def plan(lab: Lab, job: str, size: int, count: int, programs: dict[str, list[str]]) -> Plan:
    """Compares the programs that `peers/install` has built."""
    names = {name: name.split()[0].rstrip(":") for name in programs}
    if not (BUILT / "thalweg").exists():
        raise Skip("the worker is not built: peers/install thalweg line plain; peers/install aeron openmpi for the others")
    base = lab.directory(lab.memory, "row")
    variants = [
        Variant(name, worker([names[name], f"job={job}", "pin=1", *words], size, lab.count(count)), ours=names[name] == "thalweg")
        for name, words in programs.items() if (BUILT / names[name]).exists()
    ]
    absent = sorted({one for name, one in names.items() if not (BUILT / one).exists()})
    notes = [f"the figure is the time of one message, of {lab.count(count)}; two processes, a core each",
             "thalweg's worker is that of `peers/install thalweg`, not the measured program"]
    notes += [f"not run: {one} (peers/install {one})" for one in absent]
    return Plan(variants, lambda: nothing(base), lambda *_: None, CHECKED, notes, "both processes, as they report it")


OTHERS = {"aeron": ["driver=invoker"], "openmpi": [], "line: raw cache line, a limit": []}


@row("ring-there-and-back", "64 B there and back", SECTION)
def there_and_back(lab: Lab) -> Plan:
    return plan(lab, "ping-pong", 64, 500_000, {**OTHERS, "plain pipe": ["way=pipe"], "thalweg": ["wait=hybrid"]})


@row("ring-one-way", "64 B one way", SECTION)
def one_way(lab: Lab) -> Plan:
    one = plan(lab, "stream", 64, 2_000_000, {**OTHERS, "thalweg": ["wait=hybrid"]})
    one.notes.append("in flight: at most 1 MiB, headers included (thalweg, aeron), 1,024 lines (line)")
    return one


@row("bulk", "64 MiB one way", SECTION)
def bulk(lab: Lab) -> Plan:
    return plan(lab, "bulk", 64 * MIB, 20, {"openmpi": [], "plain unix": ["way=unix"], "thalweg": ["arm=auto"]})
