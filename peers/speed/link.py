"""Rows over a link of 200 Mbit/s or 1 Gbit/s: two network namespaces, a veth pair between them and tbf at both ends."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import servers
from lab import MIB, Lab, need, need_root, program, quiet, random_file, same_file, same_tree, small_sizes, tree
from measure import command
from network import OLD, with_server
from places import new_directory
from row import Plan, Variant, row

SECTION, GIGABIT = "Link of 200 Mbit/s", "Link of 1 Gbit/s"
# Rate and burst of tbf. The burst must hold the bytes that pass in one clock tick. The kernel has 250 ticks per second.
RATES = {SECTION: ("200mbit", "256kb"), GIGABIT: ("1gbit", "1mb")}
# Addresses of the benchmark network of RFC 2544. They exist in the namespaces only.
CLIENT, SERVER = "198.18.0.1", "198.18.0.2"


@contextmanager
def link(section: str = SECTION) -> Iterator[tuple[str, str]]:
    """Creates the two namespaces. Removes them at the end, which also removes the interfaces."""
    need_root("a network namespace")
    need("ip", "tc")
    names = [f"thalweg-speed-{os.getpid()}-{side}" for side in ("client", "server")]
    ip, tc = program("ip"), program("tc")
    rate, burst = RATES[section]
    try:
        for name in names:
            quiet(ip, "netns", "add", name)
        quiet(ip, "-n", names[0], "link", "add", "link0", "type", "veth", "peer", "name", "link0", "netns", names[1])
        for name, address in zip(names, (CLIENT, SERVER), strict=True):
            quiet(ip, "-n", name, "addr", "add", f"{address}/30", "dev", "link0")
            quiet(ip, "-n", name, "link", "set", "lo", "up")
            quiet(ip, "-n", name, "link", "set", "link0", "up")
            quiet(tc, "-n", name, "qdisc", "add", "dev", "link0", "root", "tbf", "rate", rate, "burst", burst, "latency", "50ms")
        yield names[0], names[1]
    finally:
        for name in names:
            if Path(f"/run/netns/{name}").exists():
                quiet(ip, "netns", "delete", name)


def served_file(lab: Lab, section: str = SECTION, size: int = 32 * MIB) -> tuple[Path, Path, str, str]:
    client, server = lab.enter(link(section))
    root = lab.directory(lab.memory, "row")
    root.chmod(0o755)
    source = random_file(root / "files/source", lab.size(size))
    os.utime(source, (OLD, OLD))
    time.sleep(0.1)
    return root, source, client, server


@row("link-fetch", "Fetch one file of 32 MiB", SECTION)
def link_fetch(lab: Lab) -> Plan:
    need("curl")
    root, source, client, server = served_file(lab)
    url = f"http://{SERVER}:{servers.thalweg(lab, source.parent, host=SERVER, network=server).port}/source"
    variants = [
        Variant("curl", command("curl", "-sS", "-o", "{}/copy", url, network=client)),
        Variant("aria2c -x4", command("aria2c", "-q", "--no-conf", "-x4", "-s4", "-k1M", "--file-allocation=none", "-d", "{}", "-o", "copy", url,
                                      network=client), needs=("aria2c",)),
        Variant("thalweg fetch", command(lab.thalweg, "fetch", url, "{}/copy", network=client), "appears when complete", ours=True),
    ]
    return Plan(variants, lambda: new_directory(root / "sample"), lambda at, _: same_file(source, at / "copy"), "cmp", ["from `thalweg serve`"], "client")


@row("link-serve", "Serve one file of 32 MiB to curl", SECTION)
def link_serve(lab: Lab) -> Plan:
    need("curl")
    return serve(lab, *served_file(lab))


@row("gigabit-serve", "Serve one file of 256 MiB to curl", GIGABIT)
def gigabit_serve(lab: Lab) -> Plan:
    need("curl")
    return serve(lab, *served_file(lab, GIGABIT, 256 * MIB))


def serve(lab: Lab, root: Path, source: Path, client: str, server: str) -> Plan:
    """curl fetches a file, from nginx with and without sendfile."""
    started = {
        name: servers.nginx(lab, source.parent, servers.NGINX[name], host=SERVER, network=server)
        for name in ("nginx sendfile on", "nginx sendfile off")
    }
    for name, words in servers.OURS.items():
        started[name] = servers.thalweg(lab, source.parent, *words, host=SERVER, network=server)
    variants = [
        Variant(name, with_server(command("curl", "-sS", "-o", "{}/copy", f"http://{SERVER}:{one.port}/source", network=client), one),
                ours=name in servers.OURS, against=servers.alike(name))
        for name, one in started.items()
    ]
    return Plan(variants, lambda: new_directory(root / "sample"), lambda at, _: same_file(source, at / "copy"), "cmp", [], "server")


def sshd(lab: Lab, at: Path, network: str) -> Path:
    """Starts a server with new keys in the namespace. Returns a command that connects to the server."""
    at.chmod(0o700)
    Path("/run/sshd").mkdir(exist_ok=True)
    for key in ("key", "host"):
        quiet("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at / key)
    port = servers.free_port()
    (at / "conf").write_text(
        f"Port {port}\nListenAddress {SERVER}\nHostKey {at}/host\nAuthorizedKeysFile {at}/key.pub\nStrictModes no\nUsePAM no\n"
        "PermitRootLogin yes\nPasswordAuthentication no\nPidFile none\n")
    lab.enter(servers.process([program("sshd"), "-D", "-e", "-f", at / "conf"], port, network=network))
    connect = at / "connect"
    words = f"-p {port} -i {at}/key -oStrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null -oLogLevel=ERROR -oIdentitiesOnly=yes"
    connect.write_text(f"#!/bin/sh\nexec ssh -F none {words} \"$@\"\n")
    connect.chmod(0o755)
    return connect


@row("link-sync", "Sync 2,000 files of 100 B to 16 KiB over ssh", SECTION)
def link_sync(lab: Lab) -> Plan:
    need("rsync", "ssh", "sshd", "ssh-keygen")
    client, server = lab.enter(link())
    connect = sshd(lab, lab.directory(lab.memory, "ssh"), server)
    base = lab.directory(lab.memory, "row")
    source = tree(base / "source", lab.count(2000), small_sizes)
    variants = [
        Variant("rsync -a", command("rsync", "-a", "-e", connect, f"{source}/", f"{SERVER}:{{}}/copy", network=client)),
        Variant("thalweg sync", command(lab.thalweg, "sync", "-e", connect, "--remote-program", lab.thalweg, source, f"{SERVER}:{{}}/copy",
                                        network=client), ours=True),
    ]
    return Plan(variants, lambda: new_directory(base / "sample"), lambda at, _: same_tree(source, at / "copy"), "diff -r", [], "client")
