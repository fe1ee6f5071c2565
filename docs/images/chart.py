#!/usr/bin/env python3
"""Draws benchmarks-light.svg and benchmarks-dark.svg from the newest file of docs/benchmarks/machines.

usage: chart.py [FILE]
"""
import html
import json
import math
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).parent
MACHINES = HERE.parent / "benchmarks" / "machines"

WIDTH, LABELS, RIGHT, ROW, TOP = 860, 330, 142, 23, 78
LEAST, MOST = 0.08, 3.0
THEMES = {
    "light": {"text": "#1f2328", "faint": "#59636e", "grid": "#d1d9e0", "better": "#1a7f37", "equal": "#6e7781", "worse": "#cf222e", "other": "#59636e"},
    "dark": {"text": "#e6edf3", "faint": "#9198a1", "grid": "#3d444d", "better": "#3fb950", "equal": "#9198a1", "worse": "#f85149", "other": "#9198a1"},
}
# Verdicts of the page, and their colours.
KINDS = {"won": "better", "even": "equal", "lost": "worse"}
# Title, tool with the ratio 1, figure, and the rows: label, row of the file, variant of thalweg, another tool.
GROUPS = [
    ("Copy", "cp", "wall", [
        ("512 MiB file, ext4", "copy-ext4", "thalweg copy", None),
        ("4 KiB file, whole command", "copy-4k", "thalweg copy", None),
    ]),
    ("Copy a tree", "cp -r", "wall", [
        ("10,000 small files, ext4", "small-ext4", "thalweg copy -r", "cpz"),
        ("10,000 small files, tmpfs", "small-tmpfs", "thalweg copy -r", "cpz"),
    ]),
    ("Sync", "rsync -aHAX", "wall", [
        ("100,000 files, unchanged", "sync-unchanged", "thalweg sync", None),
        ("100,000 files, snapshot", "sync-snapshot", "thalweg sync", None),
        ("1 GiB file, 1 % changed", "sync-large", "thalweg sync", None),
    ]),
    ("Sync over ssh", "rsync -a", "wall", [
        ("10,000 small files", "ssh-first", "thalweg sync", "tar over ssh"),
        ("100,000 files, unchanged", "ssh-unchanged", "thalweg sync", None),
    ]),
    ("Pipe", "cat", "wall", [
        ("1 GiB file to a reader", "file-to-pipe", "thalweg pipe", "pv"),
        ("4 KiB, whole command", "pipe-4k", "thalweg pipe", None),
    ]),
    ("Pipe, zero copy", "pv", "wall", [("1 GiB file to a reader", "file-to-pipe", "thalweg pipe --zero-copy", None)]),
    ("Pipe", "dd bs=256K", "wall", [("16 GiB of zeros", "zeros", "thalweg pipe", None)]),
    ("Hash a tree", "b3sum -P", "wall", [("10,000 files, BLAKE3", "manifest-blake3", "thalweg manifest --hash blake3", None)]),
    ("Fetch", "curl", "wall", [("512 MiB file", "fetch-512m", "thalweg fetch", "aria2c -x4")]),
    ("Fetch a tree", "rsync -a", "wall", [
        ("10,000 small files", "fetch-tree", "thalweg fetch -a", None),
        ("10,000 files, unchanged", "fetch-unchanged", "thalweg fetch -a", None),
    ]),
    ("Serve, CPU time", "nginx sendfile on", "cpu", [
        ("1 KiB", "serve-1k", "thalweg serve", "nginx sendfile off"),
        ("1 MiB, --zero-copy", "serve-1m", "thalweg serve --zero-copy", "nginx sendfile on, nopush"),
    ]),
    ("Ring", "aeron", "wall", [
        ("64 B there and back", "ring-there-and-back", "thalweg", "openmpi"),
        ("64 B one way", "ring-one-way", "thalweg", "openmpi"),
    ]),
]


def newest():
    return max(MACHINES.glob("*.json"), key=lambda file: json.loads(file.read_text())["conditions"]["date"])


def contest(row, ours, other, figure):
    """Returns the ratio of thalweg to the other tool, its interval and its verdict. `None` if there is none, or too few rounds."""
    for one in row["contests"]:
        shown = one[figure]
        if (one["thalweg"], one["other"], one["before"]) == (ours, other, False) and shown and shown["verdict"] in KINDS:
            return {"ratio": shown["ratio"], "lo": shown["low"], "hi": shown["high"], "kind": KINDS[shown["verdict"]]}
    return None


def ratio(row, one, other, figure):
    """Returns the ratio of two other tools."""
    samples = {variant["name"]: variant[figure] for variant in row["variants"]}
    return statistics.median(a / b for a, b in zip(samples[one], samples[other]))


def groups(found):
    """Returns title, baseline and rows of each group: label, our ratio, the other tool and its ratio. Leaves out what was not measured."""
    measured = {row["row"]: row for row in found["rows"]}
    shown = []
    for title, baseline, figure, lines in GROUPS:
        rows = []
        for label, name, ours, other in lines:
            row = measured.get(name, {"contests": [], "variants": []})
            names = [one["name"] for one in row["variants"]]
            # The names of some tools end with the number of cores.
            named = next((one for one in names if one.startswith(baseline)), baseline)
            if compared := contest(row, ours, named, figure):
                rows.append((label, compared, (other, ratio(row, other, named, figure)) if other in names else None))
        if rows:
            shown.append((title, baseline, rows))
    return shown


def caption(found):
    conditions = found["conditions"]
    processor = f"{conditions['cpu']}, family {conditions['family']} model {conditions['model']}"
    return (f"{processor}, {conditions['cores']} cores, Linux {conditions['kernel'].split('-')[0]}, {conditions['date'][:10]}. "
            "Serve: CPU time of the server. Everything else: wall time. 95 % intervals.")


def across(ratio):
    share = (math.log(min(max(ratio, LEAST), MOST)) - math.log(LEAST)) / (math.log(MOST) - math.log(LEAST))
    return LABELS + share * (WIDTH - LABELS - RIGHT)


def text(x, y, colour, value, anchor="start", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{extra}>{html.escape(value)}</text>'


def diamond(x, y, colour):
    return f'<path d="M{x:.1f} {y - 6}l6 6l-6 6l-6 -6z" fill="none" stroke="{colour}" stroke-width="2"/>'


def row_marks(y, colours, ours, other):
    colour = colours[ours["kind"]]
    marks = [f'<line x1="{across(ours["lo"]):.1f}" x2="{across(ours["hi"]):.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"/>']
    if other is not None:
        marks.append(diamond(across(other[1]), y, colours["worse" if other[1] < ours["lo"] else "other"]))
        marks.append(text(WIDTH - 4, y + 4, colours["faint"], other[0], "end", ' font-size="11"'))
    marks.append(f'<circle cx="{across(ours["ratio"]):.1f}" cy="{y}" r="5" fill="{colour}"/>')
    return marks


def drawn(colours, measured):
    found = groups(measured)
    height = TOP + ROW * sum(len(rows) for _, _, rows in found) + 8 * len(found) + 52
    bottom = height - 48
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        'aria-label="Time of thalweg divided by the time of the other tool, with intervals" '
        'font-family="-apple-system,BlinkMacSystemFont,Segoe UI,Helvetica,Arial,DejaVu Sans,sans-serif" font-size="13">',
        text(4, 18, colours["text"], "Time of thalweg / time of the other tool", extra=' font-weight="bold" font-size="15"'),
        text(4, 38, colours["faint"], "left of 1: thalweg takes less; lines are intervals; logarithmic scale"),
    ]
    for tick in (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3):
        x = across(tick)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{bottom}" stroke="{colours["grid"]}" stroke-width="{2 if tick == 1 else 1}"/>')
        parts.append(text(x, TOP - 12, colours["faint"], f"{tick:g}", "middle"))
    y = TOP + 8
    for title, baseline, rows in found:
        parts.append(text(4, y + 4, colours["text"], f"{title} ({baseline} = 1)", extra=' font-weight="bold"'))
        for label, ours, other in rows:
            parts.append(text(LABELS - 14, y + 4, colours["text"], label, "end"))
            parts.extend(row_marks(y, colours, ours, other))
            y += ROW
        y += 8
    y = bottom + 20
    x = 4
    for kind, words, step in (("better", "takes less", 92), ("equal", "no difference shown", 162)):
        parts.append(f'<circle cx="{x + 6}" cy="{y - 4}" r="5" fill="{colours[kind]}"/>' + text(x + 16, y, colours["faint"], words))
        x += step
    for kind, words, step in (("other", "another tool, named at the right", 240), ("worse", "the other tool takes less than thalweg", 0)):
        parts.append(diamond(x + 6, y - 4, colours[kind]) + text(x + 18, y, colours["faint"], words))
        x += step
    parts.append(text(4, y + 20, colours["faint"], caption(measured), extra=' font-size="11"'))
    return "\n".join([*parts, "</svg>", ""])


def main():
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else newest()
    measured = json.loads(file.read_text())
    for theme, colours in THEMES.items():
        (HERE / f"benchmarks-{theme}.svg").write_text(drawn(colours, measured))


if __name__ == "__main__":
    main()
