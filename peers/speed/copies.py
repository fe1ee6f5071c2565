"""Rows in memory: `tw_memcpy` beside the memcpy of the C library, after `thalweg tune`."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from lab import KIB, MIB, ROOT, Lab, nothing, quiet
from measure import Usage
from row import Plan, Skip, Variant, row

SECTION = "Copies in memory"


def tuned(lab: Lab) -> Path:
    """Measures the kernels once per run. Returns the profile."""
    profile = lab.memory / "copies-profile.json"
    if not profile.exists():
        words = [lab.thalweg, "tune", "--quick", "--pair", "memory:memory", "--budget", "5s" if lab.smoke else "1m"]
        quiet(*words, env={**os.environ, "THALWEG_PROFILE": str(profile)})
    return profile


def copies(program: str, name: str, size: int, count: int, profile: Path) -> Callable[[Path], Usage]:
    """Measures `count` copies in a new process, which reports their time."""

    def run(_: Path) -> Usage:
        ran = subprocess.run([program, name, str(size), str(count)], env={**os.environ, "THALWEG_PROFILE": str(profile)},
                             check=True, capture_output=True, text=True)
        wall, cpu = map(int, ran.stdout.split())
        return Usage(wall / 1e9 / count, cpu / 1e9 / count)

    return run


def plan(lab: Lab, size: int) -> Plan:
    archive = Path(lab.thalweg).parent / "libthalweg_c.a"
    if not archive.exists():
        raise Skip(f"{archive} does not exist: make programs")
    program = lab.compile(Path(__file__).with_name("copies.c"), f"-I{ROOT}/crates/capi/include", archive, "-lgcc_s", "-lm")
    profile = tuned(lab)
    count = lab.count(max(8 * 1024 * MIB // (size + 512), 8))
    base = lab.directory(lab.memory, "row")
    variants = [Variant(label, copies(program, name, size, count, profile), ours=name == "thalweg")
                for label, name in (("memcpy of the C library", "libc"), ("tw_memcpy", "thalweg"))]
    notes = [f"the figure is the time of one copy, of {count}, in memory that was used before; kernels chosen by `thalweg tune --quick`"]
    return Plan(variants, lambda: nothing(base), lambda *_: None, "all bytes of the last copy", notes, "the copies")


@row("memcpy-200", "200 B", SECTION)
def small(lab: Lab) -> Plan:
    return plan(lab, 200)


@row("memcpy-4k", "4 KiB", SECTION)
def page(lab: Lab) -> Plan:
    return plan(lab, 4 * KIB)


@row("memcpy-1m", "1 MiB", SECTION)
def medium(lab: Lab) -> Plan:
    return plan(lab, MIB)


@row("memcpy-16m", "16 MiB", SECTION)
def large(lab: Lab) -> Plan:
    return plan(lab, 16 * MIB)
