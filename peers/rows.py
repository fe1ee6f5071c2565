"""The rows of the table: the work, the compared tools, and the check of the bytes."""

import os
import random
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Callable, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
GIB = 1 << 30


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


def nothing() -> None:
    """Does nothing. For rows that need no preparation."""


def have(tool: str) -> str | None:
    """Returns the path of a peer, from .tools/bin or PATH."""
    own = ROOT / ".tools" / "bin" / tool
    return str(own) if own.exists() else shutil.which(tool)


def words(*parts: object) -> str:
    return shlex.join(map(str, parts))


def warm(path: Path) -> str:
    """Returns a command that reads files once, so that they are in the page cache."""
    return f"find {words(path)} -type f -exec cat {{}} + >/dev/null"


def big_file(path: Path, size: int) -> None:
    """Creates a file of `size` bytes that no tool can compress, clone or skip."""
    if path.exists() and path.stat().st_size == size:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    block = random.Random(1).randbytes(1 << 20)
    with path.open("wb") as file:
        for number in range(size >> 20):
            file.write(number.to_bytes(8, "little") + block[8:])
    subprocess.run(["sync", str(path)], check=True)


def small_tree(path: Path) -> None:
    """Creates 10,000 files of 100 B to 16 KiB in 100 directories, with various modes and times."""
    if path.exists():
        return
    rng = random.Random(2)
    for folder in range(100):
        place = path / f"folder-{folder:03}"
        place.mkdir(parents=True)
        for number in range(100):
            file = place / f"file-{number:03}"
            file.write_bytes(rng.randbytes(rng.randint(100, 16384)))
            file.chmod(rng.choice([0o644, 0o600, 0o755]))
            os.utime(file, ns=(1_600_000_000 * 10**9 + rng.randrange(10**15),) * 2)
    os.sync()


def middle_tree(path: Path) -> None:
    """Creates 10,000 files of 66 to 144 KiB in 100 directories: 1 GiB."""
    if path.exists():
        return
    rng = random.Random(3)
    block = rng.randbytes(1 << 20)
    for folder in range(100):
        place = path / f"folder-{folder:03}"
        place.mkdir(parents=True)
        for number in range(100):
            start = rng.randrange(len(block) - (144 << 10))
            length = rng.randint(66 << 10, 144 << 10)
            (place / f"file-{number:03}").write_bytes(rng.randbytes(16) + block[start : start + length])
    os.sync()


def drop(path: Path) -> str:
    return words("rm", "-rf", path)


def same_file(source: Path, copy: Path) -> str:
    return words("cmp", source, copy)


def same_tree(source: Path, copy: Path) -> str:
    return words("diff", "-r", "--no-dereference", source, copy)


def row_big(binary: Path, at: Path) -> Row:
    source, copy = at / "big" / "source", at / "big" / "copy"
    reset = f"{drop(copy)}; {warm(source)}"
    arms = [
        Arm("cp --reflink=never", f"cp --reflink=never {source} {copy}"),
        Arm("cp", f"cp {source} {copy}"),
        Arm("thalweg copy", f"{binary} copy --no-profile -q {source} {copy}"),
        Arm("thalweg copy, tuned", f"{binary} copy -q {source} {copy}"),
    ]
    if have("xcp"):
        arms.append(Arm("xcp", f"{have('xcp')} --no-progress {source} {copy}"))
    if have("cpz"):
        arms.append(Arm("cpz", f"{have('cpz')} {source} {copy}"))

    def prepare() -> None:
        big_file(source, GIB)
        subprocess.run([binary, "copy", "-q", "--tune", source, copy], check=True)

    return Row("big", "one file of 1 GiB, page-cached, byte copy", arms, prepare, reset, same_file(source, copy))


def row_methods(binary: Path, at: Path) -> Row:
    """Compares thalweg's choice with every single mechanism in the same run. The result shows the regret (see the glossary)."""
    source, copy = at / "methods" / "source", at / "methods" / "copy"
    reset = f"{drop(copy)}; {warm(source)}"
    names = ["read-write", "copy-file-range", "sendfile", "splice", "io-uring", "read-write-parallel", "mmap-write"]
    arms = [Arm("auto (tuned)", f"{binary} copy -q {source} {copy}")]
    arms += [Arm(name, f"{binary} copy -q --method {name} {source} {copy}") for name in names]

    def prepare() -> None:
        big_file(source, GIB // 2)
        subprocess.run([binary, "copy", "-q", "--tune", source, copy], check=True)

    return Row("methods", "512 MiB file to file: the choice against every mechanism", arms, prepare, reset, same_file(source, copy))


def row_small(binary: Path, at: Path, name: str) -> Row:
    """Gives every copy a new name, and keeps it until the end, because on ext4 a deletion slows down the next creations."""
    source, copies = at / name / "source", at / name / "copies"

    def arm(title: str, command: str, promises: str) -> Arm:
        return Arm(title, f"{command} {source} {copies}/$(ls {copies} | wc -l)", promises)

    check = f"{same_tree(source, copies)}/$(($(ls {copies} | wc -l) - 1))"
    arms = [
        arm("cp -r", "cp -r", "modes"),
        arm("cp -rp", "cp -rp", "modes, times, owner"),
        arm("thalweg copy -rp", f"{binary} copy -q -rp", "modes, times, owner; tree appears whole"),
        arm("thalweg copy -r", f"{binary} copy -q -r", "modes; tree appears whole"),
    ]
    if have("xcp"):
        arms.append(arm("xcp -r", f"{have('xcp')} --no-progress -r", "modes, times"))
    if have("cpz"):
        arms.append(arm("cpz", f"{have('cpz')}", "modes"))

    def prepare() -> None:
        small_tree(source)
        copies.mkdir()

    return Row(name, f"10,000 files of 100 B to 16 KiB in 100 folders, {at}", arms, prepare, check=check)


def row_pipe(binary: Path, at: Path, name: str, reads: str) -> Row:
    source, program = at / "pipe" / "source", at / "pipe" / "reader"
    reader = f"{program} {GIB} {reads}".strip()
    shares = "later writes to the file show"
    arms = [
        Arm("cat", f"cat {source} | {reader}", "stable"),
        Arm("thalweg pipe", f"{binary} pipe -q < {source} | {reader}", "stable"),
        Arm("thalweg pipe --zero-copy", f"{binary} pipe -q --zero-copy < {source} | {reader}", shares),
    ]
    if have("pv"):
        arms.append(Arm("pv", f"pv -q {source} | {reader}", shares))
        arms.append(Arm("pv -C", f"pv -q -C {source} | {reader}", "stable"))

    def prepare() -> None:
        big_file(source, GIB)
        subprocess.run(["cc", "-O2", "-o", program, ROOT / "peers" / "reader.c"], check=True)

    what = f"1 GiB file, page-cached, through a pipe to a reader that {'adds up' if reads else 'read()s'} every byte"
    return Row(name, what, arms, prepare, warm(source))


def row_zero(binary: Path, _: Path) -> Row:
    size = 16 * GIB
    arms = [Arm("dd bs=16M", "dd if=/dev/zero of=/dev/null bs=16M count=1024 status=none")]
    for buffer in ("64K", "256K", "1M"):
        count = size // {"64K": 1 << 16, "256K": 1 << 18, "1M": 1 << 20}[buffer]
        arms.append(Arm(f"dd bs={buffer}", f"dd if=/dev/zero of=/dev/null bs={buffer} count={count} status=none"))
    arms.append(Arm("thalweg pipe", f"{binary} pipe -q --size 16G --stop-at-size < /dev/zero > /dev/null"))
    arms.append(Arm("thalweg pipe, splice", f"{binary} pipe -q --size 16G --stop-at-size --method splice < /dev/zero > /dev/null"))
    return Row("zero", "/dev/zero to /dev/null, 16 GiB", arms, nothing)


def row_start(binary: Path, at: Path) -> Row:
    """Compares the start-up times of commands, because the copy itself is only one ioctl (FICLONE)."""
    source, copy = at / "start" / "source", at / "start" / "copy"

    def prepare() -> None:
        big_file(source, 64 << 20)
        probe = subprocess.run(["cp", "--reflink=always", source, copy], capture_output=True, check=False)
        if probe.returncode:
            raise Skip(f"{at} has no reflink; give --at a folder on xfs or btrfs")

    arms = [
        Arm("cp --reflink=always", f"cp --reflink=always {source} {copy}", "a clone"),
        Arm("thalweg copy --reflink=always", f"{binary} copy -q --reflink=always {source} {copy}", "a clone"),
    ]
    return Row("start", "64 MiB clone on a reflink file system", arms, prepare, drop(copy), same_file(source, copy))


def row_verify(binary: Path, at: Path) -> Row:
    """Compares a copy with its source, or with hashes that each tool computed before in its own format."""
    here = at / "verify"
    source, copy, sums = here / "source", here / "copy", here / "sums"
    spoilt = copy / "folder-050" / "file-050"

    def prepare() -> None:
        middle_tree(source)
        if not copy.exists():
            subprocess.run(["cp", "-a", source, copy], check=True)
        files = "find . -type f -printf '%P\\0' | sort -z | xargs -0"
        for tool in ("sha256sum", "b3sum", "xxhsum -H2"):
            name = tool.split()[0]
            if have(name):
                line = f"cd {source} && {files} {tool} > {sums}.{name}"
                subprocess.run(["bash", "-c", line], check=True)
        for arm in arms:
            sees_one_byte(arm)

    def sees_one_byte(arm: Arm) -> None:
        """Checks that the arm detects one changed byte, and so really compares the bytes."""
        before = spoilt.stat()
        byte = spoilt.read_bytes()[1000:1001]
        for wrong in (True, False):
            with spoilt.open("r+b") as file:
                file.seek(1000)
                file.write(bytes([byte[0] ^ 1]) if wrong else byte)
            os.utime(spoilt, ns=(before.st_atime_ns, before.st_mtime_ns))
            ran = subprocess.run(["bash", "-c", arm.command], capture_output=True, check=False)
            if (ran.returncode != 0) != wrong:
                raise SystemExit(f"peers: `{arm.command}` ended with {ran.returncode}, one byte changed: {wrong}")

    def sums_arm(tool: str, command: str) -> list[Arm]:
        program = command.split()[0]
        theirs = Arm(tool, f"cd {copy} && {command} {sums}.{program} >/dev/null", "one side read")
        ours = f"thalweg verify --manifest, {program}'s lines"
        line = f"{binary} verify -q --manifest {sums}.{program} {copy}"
        return [theirs, Arm(ours, line, "one side read; extra files named")] if have(program) else []

    arms = sums_arm("sha256sum -c", "sha256sum -c --quiet")
    arms += sums_arm("b3sum -c", "b3sum -c --quiet")
    arms += sums_arm("xxhsum -c", "xxhsum -c -q")
    both = "both sides read"
    arms.append(Arm("diff -rq", f"diff -rq {source} {copy}", both))
    arms.append(Arm("thalweg verify", f"{binary} verify -q {source} {copy}", both))
    if have("rclone"):
        arms.append(Arm("rclone check", f"rclone check -q {source} {copy}", f"{both}, by MD5"))
        arms.append(Arm("rclone check --download", f"rclone check -q --download {source} {copy}", both))
    return Row("verify", "10,000 files, 1 GiB, warm", arms, prepare)


def every(binary: Path, at: Path) -> list[Row]:
    shm = Path("/dev/shm/thalweg-peers")
    return [
        row_big(binary, at),
        row_methods(binary, at),
        row_small(binary, at, "small"),
        row_small(binary, shm, "small-tmpfs"),
        row_pipe(binary, at, "pipe", ""),
        row_pipe(binary, at, "pipe-sum", "sum"),
        row_zero(binary, at),
        row_start(binary, at),
        row_verify(binary, at),
    ]


def clean(at: Path) -> None:
    for place in (at, Path("/dev/shm/thalweg-peers")):
        shutil.rmtree(place, ignore_errors=True)
