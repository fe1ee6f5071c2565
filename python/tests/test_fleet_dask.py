"""Trees copied by the workers of Dask: a real scheduler and real workers without a nanny. Some workers are killed, disconnected
or unfit."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import thalweg
from conftest import PATIENCE, Start, ended
from fleets import SLOW, Killing, count, expect_equal, note, plant, skip, stage, until
from test_docs import blocks

try:
    import dask
    import distributed
except ImportError:
    skip("test_fleet_dask", "dask.distributed is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
long = pytest.mark.long

CALLER = """
    import sys, thalweg
    from distributed import Client
    with Client(sys.argv[1], set_as_default=False) as client:
        tell = lambda files, moved: print("moves" if moved else "", flush=True)
        thalweg.copy_tree("tree", "copy", executor=client, task_bytes=1 << 18, limit=3 << 20, progress=tell)
"""


class Cluster:
    """A scheduler and workers, each in its own process, on 127.0.0.1."""

    def __init__(self, at: Path) -> None:
        self.at = at
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{found.getsockname()[1]}"
        #: The workers of a test.
        self.started: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            # Dask gives up the task of a killed worker at once. The tests check that the copy does not depend on that task.
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "30s",
            "DASK_DISTRIBUTED__ADMIN__EVENT_LOOP": "tornado",
        }
        self.scheduler = self.start_scheduler()

    def _start(self, *words: str, before: tuple[str, ...] = (), **variables: str) -> subprocess.Popen[bytes]:
        with open(self.at / "dask.log", "ab") as log:
            program = subprocess.Popen(
                [*before, sys.executable, "-m", *words],
                env={**self.environment, **variables},
                cwd=self.at,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return program

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        port = self.address.rpartition(":")[2]
        words = ("--host", "127.0.0.1", "--port", port, "--no-dashboard", "--no-show")
        return self._start("distributed.cli.dask_scheduler", *words)

    def worker(self, *, before: tuple[str, ...] = (), **variables: str) -> subprocess.Popen[bytes]:
        words = ("--no-nanny", "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1", "--death-timeout", "600")
        worker = self._start("distributed.cli.dask_worker", self.address, *words, before=before, **variables)
        self.started.append(worker)
        return worker

    def client(self, workers: int) -> Any:
        client = distributed.Client(self.address, timeout=60, set_as_default=False)
        client.wait_for_workers(workers, timeout=PATIENCE)
        return client

    def end(self, but: subprocess.Popen[bytes] | None = None) -> None:
        for program in self.started:
            if program is not but:
                program.kill()
                program.wait()
        self.started = [] if but is None else [but]


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("dask"))
    yield made
    made.scheduler.kill()
    made.scheduler.wait()


@pytest.fixture
def cluster(scheduler: Cluster) -> Iterator[Cluster]:
    """A cluster without workers. Each test starts its own."""
    yield scheduler
    scheduler.end()


@long
def test_a_local_cluster_loses_a_worker_with_a_task_in_hand_and_the_tree_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, copy = plant(tmp_path), tmp_path / "copy"
    monkeypatch.setenv("THALWEG_PROFILE", str(tmp_path / "profile.json"))
    killing = Killing(copy)
    with (
        dask.config.set({"temporary-directory": str(tmp_path / "dask")}),
        # Uses any free port, so that this test can run several times at once.
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        report = thalweg.copy_tree(tree, copy, executor=client, progress=killing, verify="xxh3", **SLOW)
        doctor = thalweg.fleet_doctor(client)
        # Increases the budget, because on a busy machine a short one may not suffice.
        for budget in (2, 16, 128, 512):
            tuned = thalweg.tune_fleet(client, f"file:pipe@{tmp_path}", quick=True, budget=budget, assume_idle=True)
            if not tuned.failed:
                break
    expect_equal(tree, copy)
    assert [worker.process for worker in report.lost] == killing.killed and len(killing.killed) == 1
    # The nanny replaces the killed worker. The new worker gets no work if the other worker has already done the rest.
    assert len({worker.process for worker in report.workers}) in (2, 3)
    assert report.files == count(tree) and report.verified >= report.files - 1
    host = os.uname().nodename
    assert list(doctor.hosts) == [host] and not doctor.failed and not doctor.differs
    assert doctor.rows["kernel"] == {host: os.uname().release} and "kernel: " in str(doctor)
    assert tuned.hosts[host].path == str(tmp_path / "profile.json") and tuned.rows and not tuned.differs


@long
def test_the_lines_of_the_page_survive_a_kill(start: Start, tmp_path: Path) -> None:
    tree, copy = plant(tmp_path, large=30 << 20), tmp_path / "copy"
    [block] = blocks("docs/guides/many-machines.md")
    (tmp_path / "lines.py").write_text(block)
    program = start("import runpy; runpy.run_path('lines.py', run_name='__main__')", cwd=tmp_path)
    until(lambda: list(stage(copy).glob("journal.*")) or program.poll() is not None, "a worker")
    [journal, *_] = [*stage(copy).glob("journal.*"), None]
    assert journal is not None, program.communicate()
    killed = int(journal.name.split("-")[-3])
    os.kill(killed, signal.SIGKILL)
    assert str(killed) in ended(program)
    expect_equal(tree, copy)


@long
def test_without_any_worker_it_ends_with_a_list_of_files_and_one_that_comes_late_takes_part(
    cluster: Cluster, tmp_path: Path
) -> None:
    tree, copy = plant(tmp_path), tmp_path / "copy"
    cluster.worker()
    with cluster.client(1) as client:
        alone = Killing(copy)
        with pytest.raises(thalweg.Incomplete, match="no worker is available") as told:
            thalweg.copy_tree(tree, copy, executor=client, progress=alone, wait=1, **SLOW)
        assert told.value.files and told.value.folder == str(stage(copy)) and not copy.exists()
        assert all((tree / file).is_file() for file in told.value.files)
        cluster.worker()
        client.wait_for_workers(1, timeout=PATIENCE)
        late: list[int] = []

        def kill(process: int) -> None:
            late.append(cluster.worker().pid)
            until(lambda: len(client.nthreads()) == 2, "a second worker")
            os.kill(process, signal.SIGKILL)

        killing = Killing(copy, kill=kill)
        killing.killed += alone.killed
        killing.kills = 2
        report = thalweg.copy_tree(tree, copy, executor=client, progress=killing, **SLOW)
    expect_equal(tree, copy)
    # On a busy machine, a living worker may not have reported its end yet when the tree is complete.
    assert report.resumed > 0 and set(killing.killed) <= {worker.process for worker in report.lost}
    assert late[0] in [worker.process for worker in report.workers if worker.tasks]
    # The copy has continued, although Dask has given up the tasks of killed workers.
    assert any("KilledWorker" in trouble for trouble in report.troubles)


@long
def test_a_scheduler_that_is_restarted_is_found_again(cluster: Cluster, tmp_path: Path) -> None:
    tree, copy = plant(tmp_path), tmp_path / "copy"
    cluster.worker()

    def restart(_process: int) -> None:
        cluster.scheduler.kill()
        cluster.scheduler.wait()
        cluster.scheduler = cluster.start_scheduler()
        cluster.worker()

    killing = Killing(copy, kill=restart)
    with cluster.client(1) as client:
        report = thalweg.copy_tree(tree, copy, executor=client, progress=killing, wait=PATIENCE, **SLOW)
    expect_equal(tree, copy)
    assert killing.killed and report.files == count(tree)


@long
def test_after_a_closed_client_and_a_killed_caller_the_same_call_goes_on(
    cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    tree, copy = plant(tmp_path), tmp_path / "copy"
    cluster.worker()
    client = cluster.client(1)
    killing = Killing(copy, kill=lambda _process: client.close())
    with pytest.raises(thalweg.Incomplete, match="closed") as told:
        thalweg.copy_tree(tree, copy, executor=client, progress=killing, **SLOW)
    assert told.value.files and not copy.exists()
    with cluster.client(1) as client:
        caller = start(CALLER, cluster.address, cwd=tmp_path)
        assert caller.stdout is not None
        while caller.stdout.readline() != "moves\n":
            assert caller.poll() is None, caller.communicate()
        caller.kill()
        caller.wait()
        assert not copy.exists()
        report = thalweg.copy_tree(tree, copy, executor=client.get_executor(pure=False), **SLOW)
    expect_equal(tree, copy)
    assert report.resumed > 0 and not report.lost


@long
def test_a_worker_with_another_version_or_that_sees_other_folders_is_named(cluster: Cluster, tmp_path: Path) -> None:
    tree, copy = plant(tmp_path, folders=2), tmp_path / "copy"
    other = tmp_path / "other" / "thalweg-9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: thalweg\nVersion: 9.9\n")
    fit = cluster.worker()
    unfit = {cluster.worker(PYTHONPATH=str(other.parent)).pid: "it has thalweg 9.9"}
    if os.geteuid() == 0 and shutil.which("unshare") and not subprocess.run(["unshare", "-m", "true"]).returncode:
        # Creates the staging directory, which must exist before it can be hidden.
        stage(copy).mkdir(0o700)
        for hidden, why in [(tree, "another directory at the path of the source"), (stage(copy), "file system")]:
            hide = f'mount -t tmpfs none "{hidden}" && exec "$@"'
            unfit[cluster.worker(before=("unshare", "-m", "sh", "-c", hide, "sh")).pid] = why
    else:
        note("a worker that sees other folders", "mount namespaces need root")
    with cluster.client(1 + len(unfit)) as client:
        with pytest.raises(thalweg.Incomplete, match="a worker cannot take part") as told:
            thalweg.copy_tree(tree, copy, executor=client)
        said = told.value.troubles
        assert len(said) == len(unfit) and not any(f"process {fit.pid}" in one for one in said)
        for process, why in unfit.items():
            assert any(f"process {process}" in one and why in one for one in said), said
        cluster.end(but=fit)
        until(lambda: len(client.nthreads()) == 1, "one worker is left")

        def join(_process: int) -> None:
            cluster.worker(PYTHONPATH=str(other.parent))
            until(lambda: len(client.nthreads()) == 2, "another worker")

        late = Killing(copy, kill=join)
        report = thalweg.copy_tree(tree, copy, executor=client, progress=late, **SLOW | {"limit": 1 << 20})
    expect_equal(tree, copy)
    assert any("it has thalweg 9.9" in trouble for trouble in report.troubles) and not report.lost


def test_an_asynchronous_client_is_refused_and_tables_name_what_differs() -> None:
    class Asynchronous:
        asynchronous = True
        get_executor = None

    Asynchronous.__module__ = "distributed.client"
    with pytest.raises(TypeError, match="asynchronous"):
        thalweg.copy_tree("tree", "copy", executor=Asynchronous())
    rows = {"kernel": {"a": "6.1", "b": "6.18", "c": "6.1"}, "cpu": {"a": "x", "b": "x", "c": "x"}}
    table = thalweg.Machines({"a": 1, "b": 2, "c": 3}, {"d": "no thalweg"}, rows)
    assert list(table.differs) == ["kernel"]
    assert str(table).splitlines() == [
        "3 of 4 machines: a, b, c",
        "d: no thalweg",
        "kernel: differs",
        "    6.1: a, c",
        "    6.18: b",
        "cpu: x",
    ]
