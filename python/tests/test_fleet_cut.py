"""Simulates machines by network namespaces and a bridge. One machine is disconnected without notice; the shared file system stays
available."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import PATIENCE
from fleets import expect_equal, plant, skip, until

CALLER = """
    import subprocess, sys, time, thalweg
    from distributed import Client
    cut = []
    def tell(files, moved):
        if moved and not cut:
            subprocess.run(["ip", "link", "set", "machine1", "down"], check=True)
            cut.append(time.monotonic())
    with Client("tcp://10.99.0.1:8786", set_as_default=False) as client:
        client.wait_for_workers(2)
        report = thalweg.copy_tree("tree", "copy", executor=client, progress=tell, task_bytes=1 << 18, limit=1 << 20)
        print(len(cut), report.files, len(report.lost), time.monotonic() - cut[0])
        sys.stdout.flush()
        import os
        # A normal exit would wait for an answer of the disconnected worker.
        os._exit(0)
"""
VARIABLES = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s", "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "15s"}
SCRIPT = """
set -e
ip link set lo up
ip link add bridge type bridge
ip addr add 10.99.0.1/24 dev bridge
ip link set bridge up
for n in 1 2; do
    unshare -n sleep infinity &
    echo $! >machine$n
    # Until it is in a namespace of its own.
    until [[ $(readlink /proc/$!/ns/net) != "$(readlink /proc/$$/ns/net)" ]]; do sleep 0.05; done
    ip link add machine$n type veth peer name eth0 netns $!
    ip link set machine$n master bridge up
    for line in "link set lo up" "addr add 10.99.0.1$n/24 dev eth0" "link set eth0 up"; do nsenter -t $! -n ip $line; done
done
: >ready
exec sleep infinity
"""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[list[str]]]:
    """Returns the commands that run something on the hub and on two machines."""
    if "THALWEG_KILLS" not in os.environ:
        skip("a machine that is cut off", "long: `make campaign` does it")
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("unshare") and shutil.which("nsenter")):
        skip("a machine that is cut off", "network namespaces need root, ip and nsenter")
    place = tmp_path / "machines"
    place.mkdir()
    hub = subprocess.Popen(["unshare", "-n", "bash", "-c", SCRIPT], cwd=place, start_new_session=True)
    try:
        until(lambda: (place / "ready").exists() or hub.poll() is not None, "the network")
        if hub.poll() is not None and not (place / "machine1").exists():
            skip("a machine that is cut off", "the kernel refuses bridges or namespaces")
        assert hub.poll() is None
        inside = [(place / f"machine{number}").read_text().strip() for number in (1, 2)]
        yield [["nsenter", "-t", process, "-n"] for process in [str(hub.pid), *inside]]
    finally:
        # Kills the hub and its children. The namespaces end with the last of these processes.
        with suppress(ProcessLookupError):
            os.killpg(hub.pid, signal.SIGKILL)
        hub.wait()


def test_a_machine_that_is_cut_off_is_as_good_as_killed(
    machines: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = plant(tmp_path)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    hub, *others = machines
    with open(tmp_path / "dask.log", "ab") as log:
        programs = []
        for inside, words in [
            (hub, ["dask_scheduler", "--host", "10.99.0.1", "--port", "8786", "--no-dashboard", "--no-show"]),
            *((other, ["dask_worker", "tcp://10.99.0.1:8786", "--no-nanny", "--nthreads", "1", "--no-dashboard"]) for other in others),
        ]:
            command = [*inside, sys.executable, "-m", f"distributed.cli.{words[0]}", *words[1:]]
            programs.append(subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        command = [*hub, sys.executable, "-c", textwrap.dedent(CALLER)]
        caller = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
        for program in programs:
            program.kill()
            program.wait()
    assert caller.returncode == 0, caller.stderr
    cut, files, _, seconds = caller.stdout.split()
    assert int(cut) == 1 and int(files) > 90
    expect_equal(tree, tmp_path / "copy")
    print(f"the copy was there {float(seconds):.1f} s after a machine was cut off")
