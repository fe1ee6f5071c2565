"""Rows of syncs on one machine: nothing changed, few changes, a snapshot, one large file."""

import itertools
import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from lab import GIB, MIB, Lab, changed_file, need, nothing, program, quiet, same_file, same_tree, tree
from measure import Failed, command
from places import new_directory, on_xfs, with_old
from row import Plan, Skip, Variant, row

SECTION = "Sync"
HERE = Path(__file__).resolve().parent
PARTS, ALL = "times, owners", "times, owners, hard links, ACLs, xattrs"
# The names of the tools, with the commands of a row.
Commands = dict[str, list[object]]


def few_bytes(rng: random.Random) -> int:
    return rng.choice([10, 200, 1000])


def commands(lab: Lab, source: Path, ours: object, theirs: object, rsync: list[object], sync: list[object]) -> Commands:
    """Returns the commands. `rsync` and `sync` are options of this row."""
    return {
        "rsync -aHAX": ["rsync", "-aHAX", *rsync, f"{source}/", theirs],
        "rsync -a": ["rsync", "-a", *rsync, f"{source}/", theirs],
        "thalweg sync": [lab.thalweg, "sync", *sync, source, ours],
    }


def variants_of(named: Commands) -> list[Variant]:
    return [Variant(name, command(*words), PARTS if name == "rsync -a" else ALL, ours=name == "thalweg sync") for name, words in named.items()]


def peak_memory(lab: Lab, named: Commands) -> str:
    """Runs each command once. Returns a remark with the peak memory of its largest process."""
    peak = lab.compile(HERE / "peak.c")
    log = lab.directory(lab.memory, "peak") / "log"
    for words in named.values():
        quiet(peak, log, *words)
    peaks = [int(line) / 1024 for line in log.read_text().split()]
    shown = [f"{name} {mib:.1f} MiB" for name, mib in zip(named, peaks, strict=True)]
    return f"peak memory of the largest process: {', '.join(shown)}"


def same_content(one: Path, other: Path) -> None:
    """Compares trees, without the file in which a sync with `--delete` records the file system of its source."""
    quiet("diff", "-rq", "--no-dereference", "--exclude=.thalweg-sync", one, other)


def kept(lab: Lab, change: Callable[[Path], None]) -> Plan:
    """Plans syncs of 100,000 files to destinations that stay from sample to sample. `change` changes the source before each sample."""
    need("rsync")
    base = lab.directory(lab.memory, "row")
    source = tree(base / "source", lab.count(100_000), few_bytes)
    for copy in ("theirs", "ours"):
        quiet("cp", "-a", source, base / copy)
    named = commands(lab, source, base / "ours", base / "theirs", ["--delete"], ["--delete"])
    notes = [peak_memory(lab, named)]
    variants = variants_of(named) + others(base, source)
    places = {"thalweg sync": "ours", "rclone sync": "rclone", "unison": "unison"}

    def fresh() -> AbstractContextManager[Path]:
        change(source)
        return nothing(base)

    def check(_: Path, variant: Variant) -> None:
        same_content(source, base / ("ours" if variant.ours else places.get(variant.name, "theirs")))

    return Plan(variants, fresh, check, "diff -r", notes)


def others(base: Path, source: Path) -> list[Variant]:
    """Returns rclone and unison, each with a destination of its own, if they are installed."""
    unison = ["env", f"UNISON={base}/archives", "unison", "-batch", "-silent", "-times", source, base / "unison"]
    for name in ("rclone", "unison"):
        if program(name):
            quiet("cp", "-a", source, base / name)
    if program("unison"):
        quiet(*unison)
    return [
        Variant("rclone sync", command("rclone", "sync", "-q", source, base / "rclone"), "times; checks hashes of what it copied", ("rclone",)),
        Variant("unison", command(*unison), "modes, times; both directions", ("unison",)),
    ]


@row("sync-unchanged", "100,000 files, none changed, --delete, tmpfs", SECTION)
def sync_unchanged(lab: Lab) -> Plan:
    return kept(lab, lambda _: None)


@row("sync-few", "10 of 100,000 files changed, --delete, tmpfs", SECTION)
def sync_few(lab: Lab) -> Plan:
    # rsync compares whole seconds, and unison steps of two, so every change gets another time.
    times = itertools.count(1_600_000_000, 10)

    def change(source: Path) -> None:
        time = next(times)
        for directory in sorted(source.iterdir())[:10]:
            file = directory / "file-0001"
            file.write_bytes(os.urandom(200))
            os.utime(file, (time, time))

    return kept(lab, change)


@row("sync-million", "1,000,000 empty files, none changed, tmpfs", SECTION)
def sync_million(lab: Lab) -> Plan:
    """All tools use one destination, because they change nothing, and tmpfs limits the number of files."""
    need("rsync")
    base, count = lab.directory(lab.memory, "row"), lab.count(1_000_000)
    if os.statvfs(lab.memory).f_favail < 2.1 * count:
        raise Skip(f"{lab.memory} has fewer than {2.1 * count:,.0f} free inodes")
    source, copy = tree(base / "source", count, lambda _: 0), base / "copy"
    quiet("cp", "-a", source, copy)
    named = commands(lab, source, copy, copy, [], [])
    notes = [peak_memory(lab, named)]

    def check(*_: object) -> None:
        for directory in source.iterdir():
            if len(os.listdir(directory)) != len(os.listdir(copy / directory.name)):
                raise Failed(f"{copy / directory.name}: missing files")

    return Plan(variants_of(named), lambda: nothing(base), check, "number of names", notes)


@row("sync-snapshot", "100,000 unchanged files linked to an earlier snapshot, tmpfs", SECTION)
def sync_snapshot(lab: Lab) -> Plan:
    need("rsync")
    base = lab.directory(lab.memory, "row")
    source = tree(base / "source", lab.count(100_000), few_bytes)
    earlier = base / "earlier"
    quiet("cp", "-a", source, earlier)
    named = commands(lab, source, "{}/copy", "{}/copy", [f"--link-dest={earlier}"], ["--reference", earlier])

    def check(at: Path, _: Variant) -> None:
        same_tree(source, at / "copy")
        for directory in earlier.iterdir():
            if not (directory / "file-0000").samefile(at / "copy" / directory.name / "file-0000"):
                raise Failed(f"{at / 'copy' / directory.name}: copied instead of linked")

    return Plan(variants_of(named), lambda: new_directory(base / "sample"), check, "diff -r; hard links")


def large_file(lab: Lab, base: Path, notes: list[str]) -> Plan:
    """Plans syncs of a file that differs from its old copy in `base`. The source is on tmpfs."""
    need("rsync")
    source, old = lab.directory(lab.memory, "large") / "source", base / "old"
    changed_file(old / "file", source / "file", lab.size(GIB))
    named = commands(lab, source, "{}/copy", "{}/copy", [], [])
    delta = Variant("rsync -a --no-whole-file", command("rsync", "-a", "--no-whole-file", f"{source}/", "{}/copy"), PARTS)
    return Plan([*variants_of(named), delta], lambda: with_old(base, old), lambda at, _: same_file(source / "file", at / "copy/file"), "cmp",
                notes)


@row("sync-large", "One file of 1 GiB, 1 % of its blocks of 4 KiB changed, tmpfs", SECTION)
def sync_large(lab: Lab) -> Plan:
    return large_file(lab, lab.directory(lab.memory, "row"), ["thalweg, and rsync without --no-whole-file, write the whole file"])


@row("sync-clone", "One file of 1 GiB, 1 % of its blocks of 4 KiB changed, xfs with clones", SECTION)
def sync_clone(lab: Lab) -> Plan:
    base = on_xfs(lab, 3 * lab.size(GIB) + 512 * MIB) / "row"
    return large_file(lab, base, ["the source is on tmpfs, and the copy on xfs in an image on tmpfs; thalweg clones the old file and writes what differs"])
