"""Rows over ssh to this machine, beside rsync. `ssh` starts its own sshd, which listens on no port, with keys that live as long as the row."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from lab import GIB, KIB, Lab, changed_file, need, nothing, program, quiet, random_file, same_file, same_tree, small_sizes, tree
from measure import Failed, command, pipeline
from places import new_directory, with_old
from row import Plan, Skip, Variant, row

SECTION = "Sync over ssh"
HERE = Path(__file__).resolve().parent


def connection(lab: Lab, counted: Path | None = None) -> Path:
    """Writes a command like `ssh` that connects to this machine. With `counted`, the command appends the numbers of bytes of both
    directions to this file."""
    need("rsync", "ssh", "sshd", "ssh-keygen")
    at = lab.directory(lab.memory, "ssh-counted" if counted else "ssh")
    at.chmod(0o700)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    for key in ("key", "host"):
        quiet("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at / key)
    (at / "conf").write_text(
        f"HostKey {at}/host\nAuthorizedKeysFile {at}/key.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n"
        "PasswordAuthentication no\n")
    count = f"{sys.executable} -B {HERE}/counter.py {counted} " if counted else ""
    words = f"-i {at}/key -oStrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null -oLogLevel=ERROR -oIdentitiesOnly=yes"
    connect = at / "connect"
    connect.write_text(f"#!/bin/sh\nexec ssh -F none {words} '-oProxyCommand={count}{program('sshd')} -i -f {at}/conf' \"$@\"\n")
    connect.chmod(0o755)
    try:
        quiet(connect, "localhost", "true")
    except Failed as error:
        raise Skip(f"this user cannot connect to this machine: {error}") from error
    return connect


def variants_of(lab: Lab, connect: Path, source: Path, theirs: object, ours: object, is_push: bool) -> list[Variant]:
    """Returns variants that push `source` to the two destinations, or pull it. For rsync, the name of a directory ends with a slash."""
    slash = "/" if source.is_dir() else ""
    sync = [lab.thalweg, "sync"] if source.is_dir() else [lab.thalweg, "copy", "-p"]
    keeps = "times, owners, hard links" if source.is_dir() else "times, owners"
    host = "localhost:"
    here, there = ("", host) if is_push else (host, "")
    return [
        Variant("rsync -a", command("rsync", "-a", "-e", connect, f"{here}{source}{slash}", f"{there}{theirs}"), "times, owners"),
        Variant(f"thalweg {' '.join(sync[1:])}",
                command(*sync, "-e", connect, "--remote-program", lab.thalweg, f"{here}{source}", f"{there}{ours}"), keeps, ours=True),
    ]


def bytes_sent(lab: Lab, make: Callable[[Path], list[Variant]], fresh: Callable) -> list[str]:
    """Runs every variant once with a counter in the connection. Returns a remark with the bytes of both directions."""
    log = lab.directory(lab.memory, "counted") / "log"
    remarks = []
    for variant in make(connection(lab, log)):
        # Removes the log, which contains the bytes of the test connection.
        log.unlink(missing_ok=True)
        with fresh() as place:
            variant.run(place)
        there, back = (sum(json.loads(line)[way] for line in log.read_text().splitlines()) for way in (0, 1))
        remarks.append(f"{variant.name}: {there:,} bytes sent, {back:,} received")
    return remarks


def plan(lab: Lab, source: Path, theirs: object, ours: object, fresh: Callable, check: Callable, verified: str, is_push: bool = True) -> Plan:
    make = lambda connect: variants_of(lab, connect, source, theirs, ours, is_push)  # noqa: E731
    notes = bytes_sent(lab, make, fresh)
    return Plan(make(connection(lab)), fresh, check, verified, notes, "both sides, with ssh and sshd")


@row("ssh-first", "First copy of 10,000 files of 100 B to 16 KiB", SECTION)
def ssh_first(lab: Lab) -> Plan:
    base = lab.directory(lab.memory, "row")
    source = tree(base / "source", lab.count(10_000), small_sizes)
    ready = plan(lab, source, "{}/copy", "{}/copy", lambda: new_directory(base / "sample"),
                 lambda at, _: same_tree(source, at / "copy"), "diff -r")
    receive = [lab.memory / "ssh/connect", "localhost", "mkdir {}/copy && tar -C {}/copy -xpf -"]
    ready.variants.append(Variant("tar over ssh", pipeline(["tar", "-C", source, "-cf", "-", "."], receive), "modes, times, owners, hard links"))
    return ready


@row("ssh-pull", "First copy of 10,000 files of 100 B to 16 KiB from the other side", SECTION)
def ssh_pull(lab: Lab) -> Plan:
    base = lab.directory(lab.memory, "row")
    source = tree(base / "source", lab.count(10_000), small_sizes)
    return plan(lab, source, "{}/copy", "{}/copy", lambda: new_directory(base / "sample"),
                lambda at, _: same_tree(source, at / "copy"), "diff -r", is_push=False)


@row("ssh-unchanged", "100,000 files of 1 KiB, none changed", SECTION)
def ssh_unchanged(lab: Lab) -> Plan:
    return unchanged(lab, is_push=True)


@row("ssh-pull-unchanged", "100,000 files of 1 KiB, none changed, from the other side", SECTION)
def ssh_pull_unchanged(lab: Lab) -> Plan:
    return unchanged(lab, is_push=False)


def unchanged(lab: Lab, is_push: bool) -> Plan:
    need("rsync")
    base = lab.directory(lab.memory, "row")
    source = tree(base / "source", lab.count(100_000), lambda _: KIB)
    for copy in ("theirs", "ours"):
        quiet("rsync", "-a", f"{source}/", base / copy)

    def check(_: Path, variant: Variant) -> None:
        same_tree(source, base / ("ours" if variant.ours else "theirs"))

    return plan(lab, source, base / "theirs", base / "ours", lambda: nothing(base), check, "diff -r", is_push)


@row("ssh-big", "First copy of one file of 1 GiB", SECTION)
def ssh_big(lab: Lab) -> Plan:
    base = lab.directory(lab.memory, "row")
    source = random_file(base / "source", lab.size(GIB))
    return plan(lab, source, "{}/copy", "{}/copy", lambda: new_directory(base / "sample"),
                lambda at, _: same_file(source, at / "copy"), "cmp")


@row("ssh-changed", "One file of 1 GiB, 1 % of its blocks of 4 KiB changed", SECTION)
def ssh_changed(lab: Lab) -> Plan:
    need("rsync")
    size = lab.size(GIB)
    room = os.statvfs(lab.memory)
    if room.f_bavail * room.f_frsize < 5 * size:
        raise Skip(f"{lab.memory} has less than {5 * size >> 20} MiB free")
    base = lab.directory(lab.memory, "row")
    source, old = base / "source", base / "old"
    changed_file(old, source, size)
    return plan(lab, source, "{}/copy", "{}/copy", lambda: with_old(base, old), lambda at, _: same_file(source, at / "copy"), "cmp")
