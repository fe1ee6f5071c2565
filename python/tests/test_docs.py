"""The programs of README.md and of pages about Python run as they stand, and the stubs match the module."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import PATIENCE, ROOT, Start, ended, skip

# Each page has two programs: one calls `offer`, the other calls `take`.
PAIRS = ["README.md", "docs/reference/python.md", "python/README.md", "docs/tutorials/two-processes-in-python.md"]
PAGES = [*PAIRS, "docs/guides/arrays-between-processes.md", "docs/guides/feed-a-dataloader.md"]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)


def is_of_two(block: str) -> bool:
    return "thalweg.offer(" in block or "thalweg.take(" in block


@pytest.mark.parametrize("page", PAIRS)
@pytest.mark.parametrize("receiver_first", [False, True])
def test_the_two_programs_run_in_either_order(page: str, receiver_first: bool, start: Start) -> None:
    sender, receiver = [block for block in blocks(page) if is_of_two(block)]
    programs = []
    for block in [receiver, sender] if receiver_first else [sender, receiver]:
        programs.append(start("print('runs', flush=True)\n" + block))
        assert programs[-1].stdout is not None and programs[-1].stdout.readline() == "runs\n"
    for program in programs:
        printed = ended(program)
        assert not printed or re.search(r"\d", printed)


@pytest.mark.parametrize("block", [block for page in PAGES for block in blocks(page) if not is_of_two(block)])
def test_an_example_runs(block: str, start: Start) -> None:
    if "thalweg.torch" in block and find_spec("torch") is None:
        skip("torch is not installed, for an example")
    assert ended(start(block))


@pytest.mark.long
@pytest.mark.parametrize("tool", ["mypy --strict -p thalweg", "mypy.stubtest thalweg._native --ignore-disjoint-bases"])
def test_the_types_and_stubs_say_what_there_is(tool: str, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    # Allows a difference in these methods, because only Python 3.12 and later show them.
    allowed.write_text("thalweg._native.(Loan|Message).__buffer__\n")
    options = ["--allowlist", str(allowed), "--ignore-unused-allowlist"] if "stubtest" in tool else []
    command = [sys.executable, "-m", *tool.split(), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
