"""Copies of files and trees."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
import thalweg
from conftest import Start, ended
from thalweg._commands import PROGRAM


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "from"
    (tree / "sub").mkdir(parents=True)
    for number in range(20):
        (tree / "sub" / str(number)).write_bytes(os.urandom(number * 1000))
    (tree / "link").symlink_to("sub/3")
    return tree


def same(one: Path, other: Path) -> None:
    names = sorted(path.relative_to(one) for path in one.rglob("*"))
    assert names == sorted(path.relative_to(other) for path in other.rglob("*"))
    for name in names:
        assert (one / name).is_symlink() == (other / name).is_symlink()
        if (one / name).is_file():
            assert (one / name).read_bytes() == (other / name).read_bytes()


def test_a_tree_is_copied_and_told_of(tree: Path, tmp_path: Path) -> None:
    report = thalweg.copy(tree, tmp_path / "to", verify="xxh3")
    same(tree, tmp_path / "to")
    assert (report.files, report.links, report.bytes) == (20, 1, 190_000)
    assert report.verified == 20 and report.seconds > 0
    assert sum(share.bytes for share in report.shares) == 190_000
    again = thalweg.copy(tree, tmp_path / "to", no_clobber=True, archive=False)
    assert again.files == 0 and again.skipped > 0


def test_a_file_is_copied(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"some bytes")
    report = thalweg.copy(str(tmp_path / "one"), str(tmp_path / "two"), fsync="always", threads=1)
    assert report.files == 1 and (tmp_path / "two").read_bytes() == b"some bytes"


def test_what_cannot_be_copied_says_why(tmp_path: Path) -> None:
    with pytest.raises(thalweg.Error) as told:
        thalweg.copy(tmp_path / "absent", tmp_path / "to")
    assert told.value.errno == 2 and told.value.moved == 0
    assert "absent" in str(told.value)
    with pytest.raises(ValueError, match="sha256, blake3, xxh3"):
        thalweg.copy(tmp_path, tmp_path / "to", verify="md5")  # type: ignore[arg-type]


def test_progress_is_told_and_can_end_a_copy(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(4 << 20))
    calls: list[tuple[int, int]] = []

    def enough(files: int, moved: int) -> None:
        calls.append((files, moved))
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        thalweg.copy(tmp_path / "large", tmp_path / "to", limit=1 << 20, progress=enough)
    assert len(calls) == 1 and not (tmp_path / "to").exists()


def test_an_interrupt_ends_a_copy_and_leaves_no_name(start: Start, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(8 << 20))
    program = start(
        """
        import signal, sys, thalweg
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            thalweg.copy(sys.argv[1], sys.argv[2], limit=1 << 20, progress=lambda *far: print("moves", flush=True))
        except KeyboardInterrupt:
            print("interrupted")
        """,
        tmp_path / "large",
        tmp_path / "to",
    )
    assert program.stdout is not None and program.stdout.readline() == "moves\n"
    os.kill(program.pid, signal.SIGINT)
    assert ended(program).splitlines()[-1] == "interrupted"
    assert not (tmp_path / "to").exists()


def test_the_mechanisms_are_those_of_the_command() -> None:
    listed = json.loads(subprocess.run([PROGRAM, "list", "--json"], capture_output=True, check=True).stdout)
    between_files = [told["name"] for told in listed["mechanisms"]]
    ours = [mechanism.name for mechanism in thalweg.mechanisms()]
    assert ours and ours == between_files[: len(ours)]
    assert all(mechanism.calls is not None and mechanism.summary for mechanism in thalweg.mechanisms())
