#!/usr/bin/env python3
"""Draws benchmarks-light.svg and benchmarks-dark.svg from committed results; draws nothing that is not in one of them.

usage: chart.py
"""
import html
import json
import math
from pathlib import Path

HERE = Path(__file__).parent
PEERS = HERE.parent / "benchmarks" / "peers"
RESULTS = HERE.parent.parent / "studies" / "results" / "amd-epyc-family-25-model-1-stepping-1-2c-6.18.44-fc-v657"

WIDTH, LABELS, RIGHT, ROW, TOP = 860, 330, 112, 23, 78
LEAST, MOST = 0.08, 1.6
THEMES = {
    "light": {"text": "#1f2328", "faint": "#59636e", "grid": "#d1d9e0", "better": "#1a7f37", "equal": "#6e7781", "worse": "#cf222e", "other": "#59636e"},
    "dark": {"text": "#e6edf3", "faint": "#9198a1", "grid": "#3d444d", "better": "#3fb950", "equal": "#9198a1", "worse": "#f85149", "other": "#9198a1"},
}


def peer_ratio(file, row, arm):
    """The ratio of an arm to the baseline of its row, with its interval."""
    rows = json.loads((PEERS / file).read_text())["rows"]
    arms = next(found["arms"] for found in rows if found["row"] == row)
    found = next(found for found in arms if found["name"] == arm)
    return found["wall"]["ratio"] if "wall" in found else {key: found[key] for key in ("ratio", "lo", "hi")}


def study_ratio(file, ours, other, size):
    """The time of our arm over that of the other; results hold both directions."""
    for found in json.loads((RESULTS / file).read_text())["ratios"]:
        if found["metric"] != "wall" or found["size"] != size:
            continue
        if (found["a"], found["b"]) == (ours, other):
            return {key: found[key] for key in ("ratio", "lo", "hi")}
        if (found["b"], found["a"]) == (ours, other):
            return {"ratio": 1 / found["ratio"], "lo": 1 / found["hi"], "hi": 1 / found["lo"]}
    raise KeyError((file, ours, other, size))


def groups():
    """Title, baseline, rows: label, our ratio, the best other tool and its ratio."""
    noon, copies, large, channels = "2026-11-26.json", "2026-11-26T214210Z/104.json", "2026-11-27T053535Z/104.json", "2026-11-26T214315Z/103.json"
    network = "network.json"
    return [
        ("Copy", "cp", [
            ("1 GiB file, ext4", study_ratio(large, "ext4: thalweg", "ext4: cp", "1GiB"), None),
            ("64 MiB file, ext4", study_ratio(copies, "ext4: thalweg", "ext4: cp", "64MiB"), None),
            ("10,000 small files, ext4", peer_ratio(noon, "small", "thalweg copy -r"), ("cpz", peer_ratio(noon, "small", "cpz"))),
            ("10,000 small files, tmpfs", peer_ratio(noon, "small-tmpfs", "thalweg copy -r"), ("cpz", peer_ratio(noon, "small-tmpfs", "cpz"))),
        ]),
        ("Pipe", "cat", [
            ("1 GiB to a reader", peer_ratio(noon, "pipe", "thalweg pipe"), ("pv", peer_ratio(noon, "pipe", "pv"))),
            ("1 GiB to a reader, --zero-copy", peer_ratio(noon, "pipe", "thalweg pipe --zero-copy"), ("pv", peer_ratio(noon, "pipe", "pv"))),
        ]),
        ("Pipe", "dd bs=16M", [
            ("16 GiB of zeros", peer_ratio(noon, "zero", "thalweg pipe"), ("dd bs=256K", peer_ratio(noon, "zero", "dd bs=256K"))),
        ]),
        ("Fetch a tree", "rsync", [
            ("one file of 1 GiB", peer_ratio(network, "fetch-r-big", "thalweg fetch -r -a"), ("tar", peer_ratio(network, "fetch-r-big", "tar over a socket"))),
            ("10,000 small files", peer_ratio(network, "fetch-r-small", "thalweg fetch -r -a"), ("tar", peer_ratio(network, "fetch-r-small", "tar over a socket"))),
        ]),
        ("Serve, CPU time", "nginx", [
            ("1 KiB", peer_ratio(network, "serve-1k", "thalweg serve"), ("nginx, sendfile on", peer_ratio(network, "serve-1k", "nginx, sendfile on"))),
            ("64 KiB", peer_ratio(network, "serve-64k", "thalweg serve"), ("nginx, sendfile on", peer_ratio(network, "serve-64k", "nginx, sendfile on"))),
            ("1 MiB", peer_ratio(network, "serve-1m", "thalweg serve"), ("nginx, sendfile on", peer_ratio(network, "serve-1m", "nginx, sendfile on"))),
        ]),
        ("Ring", "Aeron", [
            ("64 B there and back", study_ratio(channels, "ping-pong: thalweg hybrid", "ping-pong: aeron", "64"), None),
            ("64 B one way", study_ratio(channels, "stream: thalweg hybrid", "stream: aeron", "64"), None),
            ("1 MiB one way", study_ratio(channels, "stream: thalweg hybrid", "stream: aeron", "1MiB"), None),
        ]),
    ]


def across(ratio):
    share = (math.log(ratio) - math.log(LEAST)) / (math.log(MOST) - math.log(LEAST))
    return LABELS + share * (WIDTH - LABELS - RIGHT)


def text(x, y, colour, value, anchor="start", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{extra}>{html.escape(value)}</text>'


def diamond(x, y, colour):
    return f'<path d="M{x:.1f} {y - 6}l6 6l-6 6l-6 -6z" fill="none" stroke="{colour}" stroke-width="2"/>'


def row_marks(y, colours, ours, other):
    kind = "better" if ours["hi"] < 1 else "worse" if ours["lo"] > 1 else "equal"
    colour = colours[kind]
    marks = [f'<line x1="{across(ours["lo"]):.1f}" x2="{across(ours["hi"]):.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"/>']
    if other is not None:
        colour_of_other = colours["worse" if other[1]["ratio"] < ours["lo"] else "other"]
        marks.append(diamond(across(other[1]["ratio"]), y, colour_of_other))
        marks.append(text(WIDTH - 4, y + 4, colours["faint"], other[0], "end", ' font-size="11"'))
    marks.append(f'<circle cx="{across(ours["ratio"]):.1f}" cy="{y}" r="5" fill="{colour}"/>')
    return marks


def drawn(colours):
    found = groups()
    height = TOP + ROW * sum(len(rows) for _, _, rows in found) + 8 * len(found) + 52
    bottom = height - 48
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        'aria-label="Time of thalweg divided by the time of the other tool, with intervals" '
        'font-family="-apple-system,BlinkMacSystemFont,Segoe UI,Helvetica,Arial,DejaVu Sans,sans-serif" font-size="13">',
        text(4, 18, colours["text"], "Time of thalweg / time of the other tool", extra=' font-weight="bold" font-size="15"'),
        text(4, 38, colours["faint"], "left of 1: thalweg takes less; lines are intervals; logarithmic scale"),
    ]
    for tick in (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5):
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
    parts.append(text(4, y + 20, colours["faint"], "2-core virtual machines, Linux 6.18. Serve: CPU time of the server, quartiles, against nginx with sendfile off. Everything else: wall time, 95 % intervals.", extra=' font-size="11"'))
    return "\n".join([*parts, "</svg>", ""])


def main():
    for theme, colours in THEMES.items():
        (HERE / f"benchmarks-{theme}.svg").write_text(drawn(colours))


if __name__ == "__main__":
    main()
