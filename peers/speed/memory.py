"""Rows under memory pressure: a large copy in a control group, beside a file whose pages another program needs."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import groups
from lab import GIB, MIB, Lab, need_disk, random_file, remove, same_file
from measure import Usage, command
from media import forget, resident
from row import Plan, Skip, Variant, row

SECTION = "Memory pressure"
WORKING_SET = 512 * MIB


def pressure(lab: Lab, size: int, limit: int, shared: bool) -> Plan:
    """Plans copies while a working set is in memory. If `shared`, its pages belong to the control group of the copy."""
    size, working = lab.size(size), lab.size(WORKING_SET)
    need_disk(lab.disk)
    if shutil.disk_usage(lab.disk).free < 2.5 * size:
        raise Skip(f"{lab.disk} has less than {2.5 * size / GIB:.0f} GiB free")
    group = lab.enter(groups.group("memory", "memory"))
    groups.limit_memory(group, max(lab.size(limit), 64 * MIB))
    base = lab.directory(lab.disk, "row")
    source, needed = random_file(base / "source", size), random_file(base / "needed", working)
    lab.undo.callback(forget, needed)
    read = command("cat", needed, cgroup=group if shared else None)

    @contextmanager
    def fresh() -> Iterator[Path]:
        for file in (source, needed):
            forget(file)
        read(base)
        (base / "sample").mkdir()
        try:
            yield base / "sample"
        finally:
            remove(base / "sample")
            subprocess.run(["sync", "-f", str(base)], check=True)

    def beside(run: Callable[[Path], Usage]) -> Callable[[Path], Usage]:
        """Adds two numbers to the result: the share of the working set that the copy evicted, and the time to read the set again."""

        def measured(place: Path) -> Usage:
            before = resident(needed)
            usage = run(place)
            evicted = 1 - resident(needed) / before
            begin = time.perf_counter()
            read(place)
            return Usage(usage.wall, usage.cpu, {"evicted_share": round(evicted, 4), "next_reading_seconds": time.perf_counter() - begin})

        return measured

    how = {"cgroup": group}
    words = {
        "cp": ["cp", source, "{}/copy"],
        "rsync": ["rsync", "--whole-file", source, "{}/copy"],
        "dd direct": ["dd", f"if={source}", "of={}/copy", "bs=4M", "iflag=direct", "oflag=direct", "status=none"],
        "thalweg copy": [lab.thalweg, "copy", source, "{}/copy"],
        "thalweg copy --direct": [lab.thalweg, "copy", "--direct", source, "{}/copy"],
    }
    variants = [
        Variant(name, beside(command(*line, **how)), needs=("rsync",) if name == "rsync" else (), ours=name.startswith("thalweg"))
        for name, line in words.items()
    ]
    notes = [f"the group has {limit // MIB} MiB; the working set of {working // MIB} MiB belongs to {'the group' if shared else 'another group'}; "
             "nothing is synced in the timed part"]
    return Plan(variants, fresh, lambda at, _: same_file(source, at / "copy"), "cmp", notes)


@row("pressure-apart", "4 GiB in a group of 256 MiB, the working set outside", SECTION, warm_up=0)
def pressure_apart(lab: Lab) -> Plan:
    return pressure(lab, 4 * GIB, 256 * MIB, False)


@row("pressure-shared", "2 GiB in a group of 768 MiB that has the working set, too", SECTION, warm_up=0)
def pressure_shared(lab: Lab) -> Plan:
    return pressure(lab, 2 * GIB, 768 * MIB, True)
