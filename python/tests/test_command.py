"""`python -m thalweg` and the installed script `thalweg` behave like the command itself."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE
from thalweg._commands import PROGRAM

WAYS = [[sys.executable, "-m", "thalweg"], [str(Path(sys.executable).with_name("thalweg"))]]


@pytest.mark.parametrize("way", WAYS, ids=["module", "script"])
@pytest.mark.parametrize("words", [["--version"], ["list"], ["copy"], ["copy", "/no/such/file", "x"], ["no-such"]])
def test_it_answers_as_the_program_does(way: list[str], words: list[str], tmp_path: Path) -> None:
    answers = [
        subprocess.run([*command, *words], capture_output=True, cwd=tmp_path, timeout=PATIENCE)
        for command in (way, [str(PROGRAM)])
    ]
    assert answers[0].returncode == answers[1].returncode
    assert (answers[0].stdout, answers[0].stderr) == (answers[1].stdout, answers[1].stderr)


@pytest.mark.parametrize("way", WAYS, ids=["module", "script"])
def test_it_copies(way: list[str], tmp_path: Path) -> None:
    (tmp_path / "from").write_bytes(b"some bytes" * 1000)
    subprocess.run([*way, "copy", "-q", "from", "to"], check=True, cwd=tmp_path, timeout=PATIENCE)
    assert (tmp_path / "to").read_bytes() == b"some bytes" * 1000


@pytest.mark.parametrize("way", WAYS, ids=["module", "script"])
def test_it_dies_of_a_closed_pipe_as_other_tools_do(way: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    program = subprocess.run([*way, "list"], stdout=writer, stderr=subprocess.PIPE, timeout=PATIENCE)
    os.close(writer)
    assert program.returncode == -signal.SIGPIPE, program.stderr


def test_an_interrupted_command_ends_with_its_own_status() -> None:
    # Restores the default action, as in a terminal, because the program would inherit an ignored signal.
    program = subprocess.Popen(
        [*WAYS[0], "pipe"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert program.stdin is not None and program.stdout is not None
    program.stdin.write(b"x" * 10)
    program.stdin.flush()
    # Waits for output, which shows that the process runs the command now.
    assert program.stdout.read(10) == b"x" * 10
    os.kill(program.pid, signal.SIGINT)
    # The input of the command stays open, so that only the signal can end it.
    assert program.wait(timeout=PATIENCE) == 130
    program.communicate()
