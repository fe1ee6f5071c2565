"""Trees copied by the workers of an executor, some of which are killed. diff, find and sha256sum check the copies."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import thalweg
from conftest import PATIENCE, Start, ended
from fleets import SLOW, Killing, count, expect_equal, plant, stage, until

INTERRUPTED = """
    import signal, sys, thalweg
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from concurrent.futures import ThreadPoolExecutor
    try:
        with ThreadPoolExecutor(2) as pool:
            tell = lambda files, moved: print("moves", flush=True)
            thalweg.copy_tree("tree", "copy", executor=pool, task_bytes=1 << 18, limit=1 << 20, progress=tell)
    except KeyboardInterrupt:
        print("interrupted")
"""
POOL = """
    import multiprocessing, sys, thalweg
    from concurrent.futures import ProcessPoolExecutor
    with ProcessPoolExecutor(int(sys.argv[1]), multiprocessing.get_context("fork")) as pool:
        thalweg.copy_tree("tree", "copy", executor=pool, task_bytes=1 << 18, limit=2 << 20)
"""


def test_threads_of_this_process_copy_a_tree_and_who_comes_again_finds_it(tmp_path: Path) -> None:
    tree, copy = plant(tmp_path), tmp_path / "copy"
    said: list[tuple[int, int]] = []
    report = thalweg.copy_tree(
        tree, copy, verify="xxh3", task_bytes=256 << 10, progress=lambda files, moved: said.append((files, moved))
    )
    expect_equal(tree, copy)
    assert report.files == count(tree) and report.verified >= report.files - 1 and not report.lost
    assert report.resumed == 0 and report.bytes >= 6 << 20 and not report.troubles and not report.was_there
    assert sum(report.hosts[os.uname().nodename].values()) == report.bytes
    assert said == sorted(said) and said[-1][1] >= 6 << 20
    again = thalweg.copy_tree(tree, copy)
    assert again.was_there and (again.files, again.bytes) == (0, 0)


class Twice(ThreadPoolExecutor):
    """An executor that runs each part twice at the same time, as Dask does if it has lost contact to a worker."""

    def submit(self, *call: Any, **named: Any) -> Future[Any]:
        super().submit(*call, **named)
        return super().submit(*call, **named)


def test_parts_that_an_engine_runs_twice_do_not_move_every_byte_twice(tmp_path: Path) -> None:
    tree, copy = plant(tmp_path), tmp_path / "copy"
    with Twice(2) as pool:
        report = thalweg.copy_tree(tree, copy, executor=pool, **SLOW)
    expect_equal(tree, copy)
    # Every byte twice would be 13.7 MiB. On a busy machine, both runs of a part often start at the same time.
    assert report.files == count(tree) and 6 << 20 <= report.bytes < 13 << 20
    assert sum(worker.bytes for worker in report.workers) + sum(share.bytes for share in report.shares) == report.bytes


def test_threads_of_an_executor_share_it_and_a_relative_path_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = plant(tmp_path)
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(3) as pool:
        report = thalweg.copy_tree("tree", "copy", executor=pool, **SLOW)
    expect_equal(tree, tmp_path / "copy")
    assert len([worker for worker in report.workers if worker.tasks]) == 3
    assert report.files == count(tree)


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_pool_whose_process_is_killed_with_a_task_in_hand_is_made_anew(tmp_path: Path, method: str) -> None:
    tree, copy = plant(tmp_path), tmp_path / "copy"
    killing = Killing(copy)
    with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        report = thalweg.copy_tree(tree, copy, executor=pool, progress=killing, **SLOW)
    expect_equal(tree, copy)
    # Only one worker was killed, because the pool ends its other processes after a kill.
    assert len(killing.killed) == 1 and killing.killed[0] in [worker.process for worker in report.lost]
    assert any("recreated" in trouble for trouble in report.troubles)
    assert len(report.workers) > 2 and report.files == count(tree)


def test_a_pool_that_breaks_twice_ends_with_what_is_left_and_the_same_call_goes_on(tmp_path: Path) -> None:
    tree, copy = plant(tmp_path, large=5 << 20), tmp_path / "copy"
    killing = Killing(copy, kills=2)
    with (
        ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool,
        pytest.raises(thalweg.Incomplete, match="the pool broke.*repeat the call to continue") as told,
    ):
        thalweg.copy_tree(tree, copy, executor=pool, progress=killing, **SLOW | {"limit": 1 << 20})
    assert len(killing.killed) == 2 and told.value.folder == str(stage(copy)) and not copy.exists()
    assert told.value.files and all((tree / file).is_file() for file in told.value.files)
    report = thalweg.copy_tree(tree, copy)
    expect_equal(tree, copy)
    assert report.resumed > 0 and set(killing.killed) <= {worker.process for worker in report.lost}
    assert report.bytes + report.resumed >= 15 << 20 and report.bytes < 16 << 20


def test_ctrl_c_stops_all_workers_and_the_command_goes_on(start: Start, tmp_path: Path) -> None:
    tree, copy = plant(tmp_path), tmp_path / "copy"
    program = start(INTERRUPTED, cwd=tmp_path)
    assert program.stdout is not None and program.stdout.readline() == "moves\n"
    os.kill(program.pid, signal.SIGINT)
    assert ended(program).endswith("interrupted")
    assert not copy.exists() and not (stage(copy) / "epoch").exists()
    command = [sys.executable, "-m", "thalweg", "copy", "-a", "--shard", "0/1", "tree", "copy"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=PATIENCE)
    expect_equal(tree, copy)


def test_what_progress_raises_ends_it_and_a_killed_caller_is_followed_by_another(start: Start, tmp_path: Path) -> None:
    tree, copy = plant(tmp_path), tmp_path / "copy"

    def enough(_files: int, moved: int) -> None:
        if moved:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        thalweg.copy_tree(tree, copy, progress=enough, **SLOW)
    program = start(INTERRUPTED, cwd=tmp_path)
    assert program.stdout is not None and program.stdout.readline() == "moves\n"
    program.kill()
    program.wait()
    assert not copy.exists()
    report = thalweg.copy_tree(tree, copy)
    expect_equal(tree, copy)
    assert report.resumed > 0 and program.pid in [worker.process for worker in report.lost]


def test_whoever_is_killed_at_whatever_moment_the_next_call_makes_the_tree_whole(start: Start, tmp_path: Path) -> None:
    random.seed(18)
    landed = 0
    # `make campaign` sets 1,000 kills, of which this test does one twentieth.
    for number in range(max(1, int(os.environ.get("THALWEG_KILLS", "0")) // 20)):
        place = tmp_path / str(number)
        place.mkdir()
        tree, copy = plant(place), place / "copy"
        nothing = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")}
        program = start(POOL, random.randint(2, 4), cwd=place, **nothing)
        until(lambda: (stage(copy) / "epoch").exists() or program.poll() is not None, "a plan")
        time.sleep(random.random())
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        # Kills the caller or one of its workers, which are the last of its children.
        victim = random.choice([program.pid, *map(int, children[-2:])])
        if program.poll() is None:
            os.kill(victim, signal.SIGKILL)
            landed += 1
        program.wait(PATIENCE)
        if not copy.exists():
            thalweg.copy_tree(tree, copy)
        elif stage(copy).exists():
            # The caller was killed between publishing the copy and removing this directory.
            assert thalweg.copy_tree(tree, copy).was_there
        expect_equal(tree, copy)
        # Kills the workers, which continue for some seconds after the death of the caller, and then wait for ever.
        for child in map(int, children):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
    assert landed


def test_a_source_that_changed_is_named_and_the_rest_is_there(tmp_path: Path) -> None:
    tree, copy = plant(tmp_path), tmp_path / "copy"

    def change(_files: int, _moved: int) -> None:
        if (tree / "holed").stat().st_size > 5:
            (tree / "holed").write_bytes(b"other")

    with pytest.raises(thalweg.Incomplete, match="1 of the sources changed.*holed") as told:
        thalweg.copy_tree(tree, copy, progress=change, **SLOW)
    assert told.value.files == (str(tree / "holed"),) and told.value.folder is None
    assert told.value.report is not None and told.value.report.files == count(tree)
    expect_equal(tree, copy)


class Refusing(Executor):
    """An executor with the fault `how`."""

    def __init__(self, how: str) -> None:
        self.how = how

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.how == "closed":
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self.how == "loses" and function.__name__ == "move":
            future.cancel()
            future.set_running_or_notify_cancel()
        else:
            future.set_result(function(*arguments))
        return future


def test_an_engine_that_does_nothing_ends_it_and_nothing_is_lost(tmp_path: Path) -> None:
    tree, copy = plant(tmp_path, folders=1), tmp_path / "copy"
    for how, why in [("closed", "accepts no more work"), ("loses", "no progress")]:
        with pytest.raises(thalweg.Incomplete, match=why) as told:
            thalweg.copy_tree(tree, copy, executor=Refusing(how))
        assert told.value.folder == str(stage(copy)) and not copy.exists()
    assert "holed" in told.value.files
    # `submit` runs the work at once, and returns a finished future.
    thalweg.copy_tree(tree, copy, executor=Refusing("works"))
    expect_equal(tree, copy)


def test_what_cannot_be_done_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    tree, copy = plant(tmp_path, folders=1), tmp_path / "copy"
    copy.mkdir()
    with pytest.raises(thalweg.Error, match="exists"):
        thalweg.copy_tree(tree, copy)
    with pytest.raises(thalweg.Error, match="is not a directory"):
        thalweg.copy_tree(tree / "holed", tmp_path / "new")
    with pytest.raises(TypeError, match="Executor"):
        thalweg.copy_tree(tree, tmp_path / "new", executor="tcp://scheduler:8786")
    with pytest.raises(ValueError, match="xxh3"):
        thalweg.copy_tree(tree, tmp_path / "new", verify="md5")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Client"):
        thalweg.tune_fleet(None)
    left = {name for name in os.listdir(tmp_path)}
    assert left == {"tree", "copy"}


def test_workers_of_two_callers_help_each_other(start: Start, tmp_path: Path) -> None:
    tree, copy = plant(tmp_path), tmp_path / "copy"
    text = "import sys, thalweg; print(thalweg.copy_tree('tree', 'copy', task_bytes=1 << 18, limit=3 << 20).files)"
    programs = [start(text, cwd=tmp_path) for _ in range(2)]
    said = [int(ended(program)) for program in programs]
    assert sorted(said)[-1] == count(tree)
    until(lambda: not stage(copy).exists(), "the folder of the fleet goes")
    expect_equal(tree, copy)
