"""Rows that make directories equal, compared with rsync."""

import random
import subprocess
from pathlib import Path

from rows import Arm, Row, Skip, drop, have, same_tree

SHM = Path("/dev/shm/thalweg-peers")
KEEPS = "times, owners, hard links, ACLs, extended attributes"
REMOTE_KEEPS = "times, owners, hard links"


def many_files(path: Path) -> None:
    """Creates 100,000 files of 10 to 1000 bytes in 100 directories."""
    rng = random.Random(4)
    for folder in range(100):
        place = path / f"folder-{folder:03}"
        place.mkdir(parents=True)
        for number in range(1000):
            (place / f"file-{number:03}").write_bytes(rng.randbytes(rng.choice([10, 200, 1000])))


def arms_of(binary: Path, source: Path, ours: str, theirs: str, named: dict[str, str]) -> list[Arm]:
    """Returns the arms. `named` maps each tool to its options for this row."""
    return [
        Arm("rsync -aHAX", f"rsync -aHAX {named['rsync']} {source}/ {theirs}", KEEPS),
        Arm("rsync -a", f"rsync -a {named['rsync']} {source}/ {theirs}", "times, owners"),
        Arm("thalweg sync", f"{binary} sync -q {named['thalweg']} {source} {ours}", KEEPS),
    ]


def row_kept(binary: Path, name: str, what: str, reset: str) -> Row:
    """A row whose destination is kept between runs."""
    at = SHM / name
    source, ours, theirs = at / "source", at / "ours", at / "theirs"
    arms = arms_of(binary, source, str(ours), str(theirs), {"rsync": "--delete", "thalweg": "--delete"})

    def prepare() -> None:
        if not have("rsync"):
            raise Skip("rsync is missing")
        many_files(source)
        for copy in (ours, theirs):
            subprocess.run(["rsync", "-a", f"{source}/", copy], check=True)

    return Row(name, what, arms, prepare, reset.format(source=source))


def row_new(binary: Path, name: str, what: str, source: Path) -> Row:
    """A row whose destination is new in each run. If `source` is below `SHM`, the tools use an earlier snapshot as a reference."""
    at = SHM / name
    copy, earlier = at / "copy", at / "earlier"
    is_snapshot = source.is_relative_to(SHM)
    named = {"rsync": "", "thalweg": ""}
    if is_snapshot:
        named = {"rsync": f"--link-dest={earlier}", "thalweg": f"--reference {earlier}"}
    arms = arms_of(binary, source, str(copy), str(copy), named)

    def prepare() -> None:
        if not have("rsync"):
            raise Skip("rsync is missing")
        at.mkdir(parents=True)
        if is_snapshot:
            many_files(source)
            subprocess.run(["rsync", "-a", f"{source}/", earlier], check=True)

    return Row(name, what, arms, prepare, drop(copy), same_tree(source, copy))


def connection(at: Path) -> Path:
    """Creates a command that connects to this machine with ssh. The command starts its own sshd, which listens on no port."""
    at.mkdir(parents=True)
    for key in ("key", "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at / key], check=True)
    (at / "conf").write_text(
        f"HostKey {at}/host\nAuthorizedKeysFile {at}/key.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n"
    )
    options = f"-i {at}/key -oStrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null -oLogLevel=ERROR"
    command = at / "connect"
    command.write_text(f"#!/bin/sh\nexec ssh {options} '-oProxyCommand=/usr/sbin/sshd -i -f {at}/conf' \"$@\"\n")
    command.chmod(0o755)
    return command


def row_ssh(binary: Path, name: str, what: str, source: Path | None) -> Row:
    """A row that receives a directory over ssh. With `source`, each run is a first copy; without it, nothing has changed."""
    at = SHM / name
    ours, theirs, many = at / "ours", at / "theirs", at / "source"
    connect, of = at / "ssh" / "connect", source or many
    arms = [
        Arm("rsync -a", f"rsync -a -e {connect} localhost:{of}/ {theirs}", "times, owners"),
        Arm("rsync -aHAX", f"rsync -aHAX -e {connect} localhost:{of}/ {theirs}", KEEPS),
        Arm("thalweg sync", f"{binary} sync -q -e {connect} --remote-program {binary} localhost:{of} {ours}", REMOTE_KEEPS),
    ]

    def prepare() -> None:
        if not have("rsync") or not have("ssh") or not Path("/usr/sbin/sshd").exists():
            raise Skip("rsync, ssh or sshd is missing")
        Path("/run/sshd").mkdir(exist_ok=True)
        connection(connect.parent)
        if not source:
            many_files(many)
            for copy in (ours, theirs):
                subprocess.run(["rsync", "-a", f"{many}/", copy], check=True)

    return Row(name, what, arms, prepare, f"{drop(ours)}; {drop(theirs)}" if source else "")


def every(binary: Path) -> list[Row]:
    change = "for n in 001 002 003 004 005 006 007 008 009 010; do date +%N%N >{source}/folder-$n/file-$n; done"
    return [
        row_kept(binary, "sync-unchanged", "100,000 files, none changed, --delete, tmpfs", ""),
        row_kept(binary, "sync-few", "10 of 100,000 files changed, --delete, tmpfs", change),
        row_new(binary, "sync-first", "/usr/share to tmpfs, for the first time", Path("/usr/share")),
        row_new(binary, "sync-snapshot", "100,000 unchanged files linked to an earlier snapshot, tmpfs", SHM / "sync-snapshot" / "source"),
        row_ssh(binary, "sync-ssh-unchanged", "100,000 files over ssh on loopback, none changed, tmpfs", None),
        row_ssh(binary, "sync-ssh-first", "/usr/share over ssh on loopback to tmpfs, for the first time", Path("/usr/share")),
    ]

