"""Rows between two processes in one language or two: a message there and back, compared with C."""

import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from lab import ROOT, Lab, nothing, quiet
from measure import Failed, Usage, end_with_parent
from row import Plan, Skip, Variant, row

sys.path.append(str(ROOT / "peers"))
import jdk  # noqa: E402

SECTION = "Languages"
# Batches that `ping` measures, and those before, in which a JVM compiles its code.
BATCHES, WARM_UP = 21, 5
# Seconds after which a sample counts as hanging.
HANGS = 300


def c(lab: Lab) -> list[object]:
    archive = Path(lab.thalweg).parent / "libthalweg_c.a"
    if not archive.exists():
        raise Skip(f"{archive} does not exist: make programs")
    return [lab.compile(ROOT / "crates/capi/examples/pingpong.c", f"-I{ROOT}/crates/capi/include", archive, "-lgcc_s", "-lm")]


def rust(lab: Lab) -> list[object]:
    program = Path(lab.thalweg).parent / "examples/pingpong"
    if not program.exists():
        raise Skip(f"{program} does not exist: cargo build --release -p thalweg-channel --example pingpong")
    return [program]


def java(_: Lab) -> list[object]:
    home = jdk.find()
    places = [ROOT / "java/target" / name for name in ("classes", "test-classes")]
    if not home or not (places[1] / "dev/thalweg/ring/PingPong.class").exists():
        raise Skip(f"it needs a JDK {jdk.LEAST}, make jars and tests/setup/java test-compile")
    return [home / "bin/java", "--enable-native-access=ALL-UNNAMED", "-cp", os.pathsep.join(map(str, places)), "dev.thalweg.ring.PingPong"]


def python(lab: Lab) -> list[object]:
    wheels = sorted((ROOT / "target/wheels").glob("*.whl"))
    if not wheels:
        raise Skip("target/wheels has no wheel: make wheel")
    place = lab.directory(lab.memory, "python")
    quiet(sys.executable, "-m", "venv", place)
    quiet(place / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", wheels[-1])
    return [place / "bin/python", "-B", Path(__file__).with_name("pingpong.py")]


PROGRAMS = {"C": c, "Rust": rust, "Java": java, "Python": python}


def round_trips(sides: list[list[object]], wait: str, trips: int, is_inherited: bool) -> Callable[[Path], Usage]:
    """Measures a round trip between two processes, a core each. The first one reports the wall time."""

    def run(_: Path) -> Usage:
        links = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2 if is_inherited else 0)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory() as folder, ExitStack() as processes:
            running = []
            for side, (words, role) in enumerate(zip(sides, ("ping", "pong"), strict=True)):
                fds = tuple(link[side].fileno() for link in links)
                place = "fd:" + ",".join(map(str, fds)) if fds else folder
                process = subprocess.Popen(["taskset", "-c", str(side), *map(str, words), role, place, wait, str(trips), str(BATCHES)],
                                           stdout=subprocess.PIPE, text=True, pass_fds=fds, preexec_fn=end_with_parent)
                processes.callback(process.wait)
                processes.callback(process.kill)
                running.append(process)
            for link in links:
                for end in link:
                    end.close()
            try:
                printed = running[0].communicate(timeout=HANGS)[0]
                statuses = [process.wait(HANGS) for process in running]
            except subprocess.TimeoutExpired as error:
                raise Failed(f"no answer after {HANGS} s") from error
        if any(statuses):
            raise Failed(f"the statuses of ping and pong are {statuses}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Usage(float(printed.split(" ns")[0]) / 1e9, cpu / (trips * (BATCHES + WARM_UP)))

    return run


# The language of each side, how both wait, and whether they inherit sockets or use a listener.
VARIANTS = {
    "C": ("C", "C", "hybrid", False), "Rust": ("Rust", "Rust", "hybrid", False), "Java": ("Java", "Java", "hybrid", False),
    "Python": ("Python", "Python", "hybrid", False),
    "Java asks C": ("Java", "C", "hybrid", False), "C asks Java": ("C", "Java", "hybrid", False),
    "Python asks C, inherited": ("Python", "C", "hybrid", True), "C asks Python, inherited": ("C", "Python", "hybrid", True),
    "C, inherited": ("C", "C", "hybrid", True), "Python, inherited": ("Python", "Python", "hybrid", True),
    "C, spin": ("C", "C", "spin", False), "Rust, spin": ("Rust", "Rust", "spin", False), "Java, spin": ("Java", "Java", "spin", False),
}


@row("languages", "64 B there and back in each language", SECTION)
def languages(lab: Lab) -> Plan:
    notes = ["the figure is the time of a round trip: the median of 21 batches; all are thalweg, with default options and over a listener unless named"]
    programs = {}
    for name, find in PROGRAMS.items():
        try:
            programs[name] = find(lab)
        except Skip as reason:
            if name == "C":
                raise
            notes.append(f"not run: {name}: {reason}")
    base, trips = lab.directory(lab.memory, "row"), lab.count(50_000)
    variants = [Variant(label, round_trips([programs[ping], programs[pong]], wait, trips, is_inherited), ours=label != "C")
                for label, (ping, pong, wait, is_inherited) in VARIANTS.items() if {ping, pong} <= programs.keys()]
    return Plan(variants, lambda: nothing(base), lambda *_: None, "the length of each answer", notes, "both processes, with their start")
