"""The arms of rows that `thalweg compare` measures, and commands that they share."""

import shlex
import shutil
from pathlib import Path
from typing import Callable, NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Skip(Exception):
    """The row cannot run here. The message is the reason."""


class Arm(NamedTuple):
    name: str
    command: str
    promises: str = "a copy"


class Row(NamedTuple):
    name: str
    what: str
    arms: list[Arm]
    # Called before the first round.
    prepare: Callable[[], None]
    # Commands that run before (reset) and after (check) each run of each arm. They are not timed.
    reset: str = ""
    check: str = ""


def have(tool: str) -> str | None:
    """Returns the path of a peer, from .tools/bin or PATH."""
    own = ROOT / ".tools" / "bin" / tool
    return str(own) if own.exists() else shutil.which(tool)


def words(*parts: object) -> str:
    return shlex.join(map(str, parts))


def warm(path: Path) -> str:
    """Returns a command that reads files once, so that they are in the page cache."""
    return f"find {words(path)} -type f -exec cat {{}} + >/dev/null"


def drop(path: Path) -> str:
    return words("rm", "-rf", path)


def same_tree(source: Path, copy: Path) -> str:
    return words("diff", "-r", "--no-dereference", source, copy)
