"""Environments that lack shared memory in the file system, processors, descriptors or system calls."""

import errno
import importlib.util
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import thalweg
from conftest import PATIENCE, Start, ended, skip
from places import denied, mounted, why_not

EVERYTHING = str(Path(__file__).with_name("everything.py"))
#: Each entry is a change of /dev/shm, and the resulting exit status of a program that needs 5 MB of standard shared memory.
SHM = {
    "1 MiB": ("mount -t tmpfs -o size=1m tmpfs /dev/shm", -signal.SIGBUS),
    "read-only": ("mount -t tmpfs -o ro tmpfs /dev/shm", 1),
}
OTHERS = """
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=5_000_000)
memory.buf[::4096] = bytes(1221)
"""


def everything(place: str, within: Callable[[list[str]], list[str]] = lambda command: command) -> None:
    """Runs a program as a command built by `within`."""
    command = within([sys.executable, EVERYTHING, place])
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (ran.returncode, ran.stdout) == (0, "everything\n"), ran.stderr


@pytest.mark.parametrize("how", SHM)
def test_it_needs_no_shared_memory_in_the_file_system(how: str, place: str) -> None:
    mounts, ending = SHM[how]
    if why := why_not(mounted(mounts, ["true"])):
        skip(f"a mount namespace needs root: {why}")
    # Checks by the standard library that the environment has the fault.
    theirs = subprocess.run(mounted(mounts, [sys.executable, "-c", OTHERS]), capture_output=True, timeout=PATIENCE)
    assert theirs.returncode == ending, theirs.stderr
    everything(place, lambda command: mounted(mounts, command))


@pytest.mark.parametrize(
    ("calls", "error"), [("futex_waitv", errno.ENOSYS), ("pidfd_open", errno.EPERM), ("futex_waitv,pidfd_open", errno.EPERM)]
)
def test_without_these_calls_the_same_bytes_come(calls: str, error: int, place: str) -> None:
    if why := why_not(denied(calls, error, ["true"])):
        skip(f"seccomp refused: {why}")
    everything(place, lambda command: denied(calls, error, command))


def test_without_anonymous_files_it_is_told_what_is_missing(start: Start) -> None:
    if why := why_not(denied("memfd_create", errno.EPERM, ["true"])):
        skip(f"seccomp refused: {why}")
    program = """
        import errno, thalweg
        for make in (thalweg.pair, lambda: thalweg.Region(10)):
            try:
                make()
            except thalweg.Error as error:
                print(error.errno == errno.EPERM, "memfd_create" in str(error))
    """
    command = denied("memfd_create", errno.EPERM, [sys.executable])
    assert ended(start(program, within=command)) == "True True\nTrue True"


def test_one_processor_is_enough(place: str) -> None:
    cpus = os.sched_getaffinity(0)
    one = ["taskset", "--cpu-list", str(min(cpus))]
    if why := why_not([*one, "true"]):
        skip(f"one processor: {why}")
    everything(place, lambda command: [*one, *command])


def test_few_descriptors_are_enough(place: str) -> None:
    limit = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); os.execv(sys.argv[1], sys.argv[1:])"
    everything(place, lambda command: [sys.executable, "-c", limit, *command])


def test_without_descriptors_it_is_told_and_goes_on_when_there_are_some() -> None:
    out, into = thalweg.pair()
    out.send(np.arange(3))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
    full: list[int] = []
    try:
        with pytest.raises(OSError):
            while True:
                full.append(os.dup(0))
        with pytest.raises(thalweg.Error) as told:
            thalweg.pair()
        assert told.value.errno == errno.EMFILE
        # Checks that a channel that is already open needs no new descriptors.
        out.send(np.arange(4))
        assert [into.receive().size, into.receive().size] == [3, 4]
    finally:
        for descriptor in full:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    thalweg.pair()


@pytest.mark.parametrize("other", ["numpy", "torch", "pyarrow"])
@pytest.mark.parametrize("first", [True, False])
def test_it_is_loaded_before_and_after_others(start: Start, other: str, first: bool) -> None:
    if importlib.util.find_spec(other) is None:
        skip(f"{other} is not installed")
    modules = ["thalweg", other] if first else [other, "thalweg"]
    program = """
        import sys, importlib
        for name in sys.argv[1:]:
            importlib.import_module(name)
        import numpy as np, thalweg
        out, into = thalweg.pair()
        out.send(np.arange(1000))
        print(into.receive().sum())
        if "pyarrow" in sys.modules:
            import pyarrow
            print(pyarrow.array([1, 2, 3]).sum())
        if "torch" in sys.modules:
            import torch
            print(torch.arange(3).sum())
    """
    assert ended(start(program, *modules)).split("\n")[0] == "499500"


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with 128 MiB of memory and without swap."""
    limits = {"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"}
    for mount, limit in limits.items():
        made = Path(mount, f"thalweg-test-{os.getpid()}")
        try:
            made.mkdir()
        except OSError as error:
            why = f"no control group of memory, EROFS or not root: {error}"
            continue
        try:
            (made / limit).write_text(str(128 << 20))
            yield made
        except OSError as error:
            why = f"no control group of memory, EROFS or not root: {error}"
            continue
        finally:
            made.rmdir()
        return
    skip(why)


@pytest.mark.parametrize("who", ["sender", "receiver"])
def test_who_runs_out_of_memory_is_told_of_as_killed(start: Start, group: Path, place: str, who: str) -> None:
    program = start(
        """
        import os, sys, numpy as np, thalweg
        with open(sys.argv[1] + "/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
        if sys.argv[3] == "sender":
            out = thalweg.offer(sys.argv[2], capacity=1 << 20)
            for number in range(20):
                out.send(np.full(5000, number))
        else:
            into = thalweg.take(sys.argv[2])
            for number in range(20):
                assert (into.receive() == number).all()
        kept = []
        while True:
            kept.append(np.ones(1 << 20))
        """,
        group,
        place,
        who,
    )
    if who == "sender":
        into = thalweg.take(place)
        for number in range(20):
            assert (into.receive(timeout=PATIENCE) == number).all()
        with pytest.raises(thalweg.PeerDied) as told:
            into.receive(timeout=PATIENCE)
        assert told.value.moved == 20
    else:
        with thalweg.offer(place, capacity=1 << 20) as out, pytest.raises(thalweg.PeerDied):
            number = 0
            while True:
                out.send(np.full(5000, number), timeout=PATIENCE)
                number += 1
    assert program.wait(PATIENCE) == -signal.SIGKILL
