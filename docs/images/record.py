#!/usr/bin/env python3
"""Records a real run of copy, Ctrl-C, --resume and verify in a terminal, and writes copy-resume.svg beside this file.

usage: record.py THALWEG     (the program; a release build)
"""
import html
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
import time
import fcntl
from pathlib import Path

COLUMNS, ROWS = 88, 14
FILES, FILE_BYTES = 12, 128 << 20
INTERRUPT_AFTER = 1.6  # seconds
COMMANDS = [  # the line that is typed, whether Ctrl-C ends it
    ("thalweg copy -a --limit 500M videos backup", True),
    ("thalweg copy -a --resume videos backup", False),
    ("thalweg verify videos backup", False),
]
FRAME_SECONDS = 0.2
LAST_FRAME_SECONDS = 5
CELL_WIDTH, LINE_HEIGHT, MARGIN, BAR = 8.43, 19, 16, 34


class Screen:
    """The few control sequences that thalweg's progress line uses: carriage return, newline, erase to the end of line."""

    def __init__(self):
        self.lines, self.column = [""], 0

    def write(self, text):
        position = 0
        while position < len(text):
            character = text[position]
            if character == "\x1b":
                end = position + 2
                while end < len(text) and not text[end].isalpha():
                    end += 1
                if text[end : end + 1] == "K":
                    self.lines[-1] = self.lines[-1][: self.column]
                position = end
            elif character == "\r":
                self.column = 0
            elif character == "\n":
                self.lines.append("")
                self.column = 0
            else:
                if self.column == COLUMNS:
                    self.lines.append("")
                    self.column = 0
                line = self.lines[-1].ljust(self.column)
                self.lines[-1] = line[: self.column] + character + line[self.column + 1 :]
                self.column += 1
            position += 1


def run(program, line, interrupted, directory, frames, screen, clock):
    """Runs one command under a pseudo terminal; returns the time at its end."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(directory)
        os.environ["NO_COLOR"] = "1"
        os.environ["TERM"] = "xterm"
        os.environ["THALWEG_PROFILE"] = str(directory / "profile.json")
        os.execv(program, line.split())
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began = time.monotonic()
    is_interrupted = False
    while True:
        ready, _, _ = select.select([terminal], [], [], 0.05)
        elapsed = time.monotonic() - began
        if interrupted and not is_interrupted and elapsed > INTERRUPT_AFTER:
            os.write(terminal, b"\x03")
            is_interrupted = True
        if not ready:
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        if not data:
            break
        screen.write(data.decode())
        frames.append((clock + time.monotonic() - began, list(screen.lines)))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    expected = [128 + signal.SIGINT] if interrupted else [0]
    if code not in expected:
        sys.exit(f"{line}: exit status {code}: {screen.lines}")
    return clock + time.monotonic() - began


def record(program):
    """Returns the frames: pairs of a time in seconds and the lines on the screen."""
    frames, screen, clock = [], Screen(), 0.0
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/tmp")) as name:
        directory = Path(name)
        (directory / "videos").mkdir()
        block = os.urandom(1 << 20)
        for number in range(FILES):
            with open(directory / "videos" / f"clip-{number:02}.mkv", "wb") as file:
                for _ in range(FILE_BYTES >> 20):
                    file.write(block)
        for line, interrupted in COMMANDS:
            typed = ""
            for character in "$ " + line:
                typed += character
                screen.write(character)
                clock += 0.03
                frames.append((clock, list(screen.lines)))
            clock += 0.4
            screen.write("\n")
            clock = run(program, line, interrupted, directory, frames, screen, clock)
            if screen.column:
                screen.write("\n")
            clock += 1.2
    frames.append((clock, list(screen.lines)))
    return frames


def thinned(frames):
    """At most one frame for each FRAME_SECONDS, always the last of its interval."""
    kept = {}
    for moment, lines in frames:
        kept[int(moment / FRAME_SECONDS)] = lines
    return [(key * FRAME_SECONDS, kept[key]) for key in sorted(kept)]


def drawn(frames):
    width = int(COLUMNS * CELL_WIDTH + 2 * MARGIN)
    height = BAR + ROWS * LINE_HEIGHT + MARGIN
    total = frames[-1][0] + LAST_FRAME_SECONDS
    rules, groups = [], []
    for number, (moment, lines) in enumerate(frames):
        is_last = number == len(frames) - 1
        end = total if is_last else frames[number + 1][0]
        first, after = 100 * moment / total, 100 * end / total
        rules.append(
            f"@keyframes f{number}{{0%,{first:.3f}%{{opacity:0}}{first + 0.001:.3f}%,{after:.3f}%{{opacity:1}}"
            + ("" if is_last else f"{after + 0.001:.3f}%,100%{{opacity:0}}")
            + "}"
        )
        rules.append(f"#f{number}{{animation:f{number} {total:.1f}s infinite step-end}}")
        rows = []
        for row, line in enumerate(lines[-ROWS:]):
            y = BAR + (row + 1) * LINE_HEIGHT
            kind = ' class="typed"' if line.startswith("$ ") else ""
            if line.strip():
                rows.append(f'<text x="{MARGIN}" y="{y}"{kind} xml:space="preserve">{html.escape(line.rstrip())}</text>')
        opacity = 1 if is_last else 0
        groups.append(f'<g id="f{number}" opacity="{opacity}">{"".join(rows)}</g>')
    still = "".join(f"#f{n}{{animation:none}}" for n in range(len(frames)))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" \
aria-label="A copy is interrupted with Ctrl-C, resumed with --resume and compared with verify">
<style>
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d4d8de}}
.typed{{fill:#8ddb8c;font-weight:bold}}
{"".join(rules)}
@media (prefers-reduced-motion:reduce){{{still}}}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#1b1f24"/>
<circle cx="20" cy="17" r="5.5" fill="#ff6057"/><circle cx="39" cy="17" r="5.5" fill="#febc2e"/><circle cx="58" cy="17" r="5.5" fill="#28c840"/>
{chr(10).join(groups)}
</svg>
"""


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    frames = thinned(record(os.path.realpath(sys.argv[1])))
    print("\n".join(frames[-1][1]))
    Path(__file__).with_name("copy-resume.svg").write_text(drawn(frames))


if __name__ == "__main__":
    main()
