#!/usr/bin/env python3
"""Measures thalweg beside other tools, with one harness that is independent of thalweg. See docs/benchmarks/README.md."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import files  # noqa: E402, F401
import pipes  # noqa: E402, F401
import syncs  # noqa: E402, F401
import network  # noqa: E402, F401
import remote  # noqa: E402, F401
import media  # noqa: E402, F401
import link  # noqa: E402, F401
import rings  # noqa: E402, F401
import copies  # noqa: E402, F401
import languages  # noqa: E402, F401
import memory  # noqa: E402, F401
import machine  # noqa: E402
import page  # noqa: E402
import rounds  # noqa: E402
from lab import GIB, ROOT, Lab, complain  # noqa: E402
from measure import Failed, own_mounts  # noqa: E402
from row import ROWS, Row, Skip  # noqa: E402

PAGES = ROOT / "docs/benchmarks"
DISK, MEMORY = 12 * GIB, 6 * GIB
SMOKE_ROUNDS, LEAST_ROUNDS = 2, 7
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="peers/speed", description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="list the rows, and exit")
    parser.add_argument("--only", action="append", metavar="ROW", help="measure this row; may be repeated, and may be the start of a name")
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS, help=f"rounds per row, at least {LEAST_ROUNDS} [default: %(default)s]")
    parser.add_argument("--smoke", action="store_true", help=f"small sizes and {SMOKE_ROUNDS} rounds, to test the rows; write no file without --json")
    parser.add_argument("--time-limit", type=float, default=55, metavar="MINUTES", help="start no row after this [default: %(default)s]")
    parser.add_argument("--row-limit", type=float, default=4, metavar="MINUTES", help="stop a row that takes longer, but not before three rounds [default: %(default)s]")
    parser.add_argument("--at", type=Path, default=Path(os.environ.get("TMPDIR", "/var/tmp")), metavar="DIR", help="scratch directory on a disk [default: %(default)s]")
    parser.add_argument("--thalweg", type=Path, default=Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/thalweg",
                        metavar="PROGRAM", help="the program to measure [default: %(default)s]")
    parser.add_argument("--before", type=Path, metavar="PROGRAM", help="also measure an earlier version of thalweg in the same rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write here [default: docs/benchmarks/machines/DATE-CPU.json]")
    parser.add_argument("--page", action="store_true", help="also write the page: docs/benchmarks/DATE-CPU.md, or beside FILE of --json")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="print the page of this JSON file, without measuring")
    options = parser.parse_args()
    if options.rounds < (2 if options.json else LEAST_ROUNDS):
        parser.error(f"at least {LEAST_ROUNDS} rounds, or 2 with --json FILE")
    return options


def chosen(only: list[str] | None) -> list[Row]:
    for name in only or []:
        if not any(row.name.startswith(name) for row in ROWS):
            raise SystemExit(f"peers/speed: unknown row: {name} (--list shows them)")
    return [row for row in ROWS if not only or any(row.name.startswith(name) for name in only)]


def run_row(row: Row, lab: Lab, count: int, minutes: float) -> dict:
    """Prepares and measures a row. Undoes everything at the end, also after an error."""
    lab.undo = ExitStack()
    with lab.undo:
        return rounds.measure(row, row.prepare(lab), lab, count, minutes * 60)


def run_all(rows: list[Row], lab: Lab, options: argparse.Namespace, found: dict, keep) -> bool:
    """Measures the rows, and keeps the result after each. Returns `False` after an error of a row."""
    begin, fine = time.monotonic(), True
    for number, row in enumerate(rows):
        started = time.monotonic()
        if started - begin > options.time_limit * 60:
            found["not_run"] += [{"row": one.name, "reason": f"the time limit of {options.time_limit:g} minutes"} for one in rows[number:]]
            break
        try:
            result = run_row(row, lab, SMOKE_ROUNDS if options.smoke else options.rounds, options.row_limit)
            result["minutes"] = round((time.monotonic() - started) / 60, 2)
            found["rows"].append(result)
            complain(f"{row.name}: {summary(result)} ({time.monotonic() - started:.0f} s)")
        except Skip as reason:
            found["not_run"].append({"row": row.name, "reason": str(reason)})
            complain(f"{row.name}: not run: {reason}")
        except (Failed, OSError, subprocess.SubprocessError) as error:
            fine = False
            found["not_run"].append({"row": row.name, "reason": f"failed: {error}"})
            complain(f"{row.name}: failed: {error}")
        except KeyboardInterrupt:
            complain("interrupted; the finished rows are kept")
            found["not_run"] += [{"row": one.name, "reason": "interrupted"} for one in rows[number:]]
            fine = False
            break
        keep()
    keep()
    return fine


def summary(result: dict) -> str:
    return ", ".join(
        f"{one['thalweg']} / {one['other']} {one['wall']['ratio']:.2f} {one['wall']['verdict']}" for one in result["contests"] if one["wall"])


def enough_room(lab: Lab, smoke: bool) -> None:
    for path, least, hint in ((lab.disk, DISK, "; hint: --at DIR"), (lab.memory, MEMORY, "")):
        if not smoke and shutil.disk_usage(path).free < least:
            raise SystemExit(f"peers/speed: {path.parent}: less than {least / GIB:.0f} GiB of free space{hint}")


def environment(home: Path) -> None:
    """Removes thalweg's environment variables, and sets a state directory for thalweg that contains no profile."""
    for name in [name for name in os.environ if name.startswith("THALWEG_")]:
        del os.environ[name]
    os.environ |= {"LC_ALL": "C", "XDG_STATE_HOME": str(home), "PATH": f"{ROOT}/.tools/bin:{os.environ['PATH']}:/usr/sbin:/sbin"}


def main() -> None:
    options = arguments()
    if options.source:
        print(page.page(json.loads(options.source.read_text())), end="")
        return
    rows = chosen(options.only)
    if options.list:
        for row in rows:
            print(f"{row.name:18} {row.section}: {row.what}")
        return
    for path in filter(None, (options.thalweg, options.before)):
        if not os.access(path, os.X_OK):
            raise SystemExit(f"peers/speed: {path}: not an executable file; hint: make programs")
    for number in SIGNALS:
        signal.signal(number, interrupt)
    own_mounts()
    with (tempfile.TemporaryDirectory(prefix="thalweg-speed-", dir=options.at) as disk,
          tempfile.TemporaryDirectory(prefix="thalweg-speed-", dir="/dev/shm") as fast):
        for path in (disk, fast):
            os.chmod(path, 0o755)
        lab = Lab(options.thalweg.resolve(), options.before and options.before.resolve(), Path(disk), Path(fast), options.smoke)
        enough_room(lab, options.smoke)
        (lab.disk / "state").mkdir()
        environment(lab.disk / "state")
        found = {"format": 1, "conditions": machine.conditions(lab.thalweg, lab.before, sys.argv, {"disk": lab.disk, "memory": lab.memory}), "rows": [], "not_run": []}
        found["not_run"] = [{"row": row.name, "reason": "not selected"} for row in ROWS if row not in rows]
        target = options.json or default_target(found["conditions"])

        def keep() -> None:
            if not options.smoke or options.json:
                target.parent.mkdir(parents=True, exist_ok=True)
                replace(target, json.dumps(found, indent=1) + "\n")
                if options.page:
                    replace((options.json or PAGES / target.name).with_suffix(".md"), page.page(found))

        fine = run_all(rows, lab, options, found, keep)
    print(page.page(found), end="")
    sys.exit(0 if fine else 1)


def interrupt(*_: object) -> None:
    """Ends the run. Further signals are ignored, because they would interrupt the cleanup."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def replace(path: Path, text: str) -> None:
    """Replaces a file atomically, so that an interrupted run does not leave half of it."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)


def default_target(conditions: dict) -> Path:
    return PAGES / "machines" / f"{conditions['date'][:10]}-{machine.slug(conditions)}.json"


try:
    main()
except KeyboardInterrupt:
    sys.exit("campaign-speed: interrupted")
