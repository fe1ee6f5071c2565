"""Runs one sample: a command or a pipeline, with its wall time and the CPU time of its whole process tree."""

import ctypes
import json
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_CHILD_SUBREAPER = 36
PR_SET_PDEATHSIG = 1
CLONE_NEWNET = 0x40000000
CLONE_NEWNS = 0x00020000
MS_REC, MS_PRIVATE = 1 << 14, 1 << 18
# Seconds to wait for background processes of a command, which may end later than the command.
STRAGGLERS = 10.0


class Failed(Exception):
    """A command failed, or delivered wrong bytes."""


@dataclass(frozen=True)
class Usage:
    """Figures of a sample: seconds of wall time and of CPU time, and other numbers by name."""

    wall: float
    cpu: float
    other: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Conditions:
    """Conditions of a command: standard input and output, working directory, cores, cgroup, network namespace, repetitions."""

    stdin: str = "/dev/null"
    stdout: str = "/dev/null"
    directory: str | None = None
    cores: tuple[int, ...] = ()
    cgroup: Path | None = None
    network: str | None = None
    repeat: int = 1


def end_with_parent() -> None:
    """Lets the kernel kill this process when its parent ends, also after SIGKILL of the parent."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def own_mounts() -> None:
    """Enters a private mount namespace, so that no mount outlives this process. Without the privilege, does nothing: rows cannot mount."""
    if LIBC.unshare(CLONE_NEWNS) == 0 and LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "mount --make-rprivate /")


def command(*words: object, **conditions: object) -> Callable[[Path], Usage]:
    """Returns a function that runs the command. In a word, `{}` is the place of the sample, and `{#}` the number of the repetition."""
    return pipeline(words, **conditions)


def pipeline(*steps: tuple | list, **conditions: object) -> Callable[[Path], Usage]:
    """Returns a function that runs the commands as a pipeline, without a shell."""

    def run(place: Path) -> Usage:
        filled = [[str(word).replace("{}", str(place)) for word in step] for step in steps]
        named = {name: value.replace("{}", str(place)) if isinstance(value, str) else value for name, value in conditions.items()}
        return sample(filled, Conditions(**named))

    return run


@dataclass
class Replacement:
    """While this is active, samples run `other` instead of `program`, even if the path is only a part of a command word."""

    program: str
    other: str
    used: bool = False

    def words(self, words: list[str]) -> list[str]:
        self.used |= any(self.program in word for word in words)
        return [word.replace(self.program, self.other) for word in words]


REPLACEMENTS: list[Replacement] = []


def with_other_program(run: Callable[[Path], Usage], program: str, other: str) -> Callable[[Path], Usage]:
    """Returns a function that runs the same command with the other program. It raises an error if the command does not contain the program."""

    def changed(place: Path) -> Usage:
        replacement = Replacement(program, other)
        REPLACEMENTS.append(replacement)
        try:
            usage = run(place)
        finally:
            REPLACEMENTS.pop()
        if not replacement.used:
            raise Failed(f"the command does not start {program}")
        return usage

    return changed


def sample(steps: list[list[str]], conditions: Conditions) -> Usage:
    """Runs the pipeline in a separate process, which reaps all descendants, also those that the command leaves behind."""
    for replacement in REPLACEMENTS:
        steps = [replacement.words(step) for step in steps]
    answer, reply = os.pipe()
    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setpgid(0, 0)
                end_with_parent()
                os.close(answer)
                said = runner(steps, conditions, errors.fileno())
                os.write(reply, json.dumps(said).encode())
                status = 0
            except BaseException as error:  # noqa: BLE001
                os.write(reply, json.dumps({"error": repr(error)}).encode())
            finally:
                os._exit(status)
        os.close(reply)
        try:
            with os.fdopen(answer, "rb") as pipe:
                said = json.loads(pipe.read() or b'{"error": "ended early"}')
            if "error" in said:
                end_group(child)
            else:
                os.waitpid(child, 0)
        except BaseException:
            end_group(child)
            raise
        errors.seek(0)
        text = errors.read(2000).decode(errors="replace").strip()
    if "error" in said:
        raise Failed(f"{' | '.join(' '.join(step) for step in steps)}: {said['error']} {text}")
    return Usage(said["wall"], said["cpu"])


def end_group(child: int) -> None:
    """Ends the processes of an interrupted or failed sample."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(child, 0)


def runner(steps: list[list[str]], conditions: Conditions, errors: int) -> dict:
    """Runs in the process of the sample. Returns the figures, or the error."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    enter(conditions)
    begin = time.perf_counter()
    for number in range(conditions.repeat):
        wrong = once([[word.replace("{#}", str(number)) for word in step] for step in steps], conditions, errors)
        if wrong:
            return {"error": wrong}
    wall = time.perf_counter() - begin
    reap_stragglers()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"wall": wall, "cpu": used.ru_utime + used.ru_stime}


def enter(conditions: Conditions) -> None:
    if conditions.cgroup:
        (conditions.cgroup / "cgroup.procs").write_text(str(os.getpid()))
    if conditions.network:
        with open(f"/run/netns/{conditions.network}") as namespace:
            if LIBC.setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns {conditions.network}")
    if conditions.directory:
        os.chdir(conditions.directory)
    if conditions.cores:
        os.sched_setaffinity(0, conditions.cores)


def once(steps: list[list[str]], conditions: Conditions, errors: int) -> str:
    """Starts all steps, and waits for them. Returns a description of the failure, or an empty text."""
    source = os.open(conditions.stdin, os.O_RDONLY)
    pids = []
    for number, step in enumerate(steps):
        if number + 1 < len(steps):
            following, sink = os.pipe()
        else:
            following, sink = -1, os.open(conditions.stdout, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        actions = [(os.POSIX_SPAWN_DUP2, source, 0), (os.POSIX_SPAWN_DUP2, sink, 1), (os.POSIX_SPAWN_DUP2, errors, 2)]
        pids.append(os.posix_spawnp(step[0], step, os.environ, file_actions=actions, setsigdef=[signal.SIGPIPE]))
        os.close(source)
        os.close(sink)
        source = following
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    return f"exit status {codes}" if any(codes) else ""


def reap_stragglers() -> None:
    """Waits for descendants that the command left behind, so that their CPU time counts."""
    end = time.monotonic() + STRAGGLERS
    while time.monotonic() < end:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.005)
        except ChildProcessError:
            return


def cpu_of(pid: int) -> float:
    """Returns the CPU time of a process with all its threads and reaped children, in seconds."""
    # Linux derives the id of a process's CPU clock from the process id (CPUCLOCK_SCHED).
    own = time.clock_gettime((~pid << 3) | 2)
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return own + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
