"""Rows over loopback: serve beside nginx, fetch beside curl and rsync."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import servers
from lab import KIB, MIB, Lab, need, nothing, random_file, same_file, same_tree, small_sizes, tree
from measure import Usage, command, cpu_of
from places import new_directory
from row import BEFORE, Plan, Variant, row
from servers import Server

SERVE, FETCH = "Serve", "Fetch"
HERE = Path(__file__).resolve().parent
# A modification time older than a clock tick, so that the ETag of a file is strong.
OLD = 1_600_000_000


def with_server(client: Callable[[Path], Usage], server: Server) -> Callable[[Path], Usage]:
    """Returns a function that runs the client. Its result contains the client's wall time and the server's CPU time."""

    def run(place: Path) -> Usage:
        before = cpu_of(server.pid)
        usage = client(place)
        return Usage(usage.wall, cpu_of(server.pid) - before, {"client_cpu": usage.cpu})

    return run


def serve(lab: Lab, size: int, connections: int, requests: int, zero_copy: bool) -> Plan:
    """Plans requests to all servers, which run during the whole row, on core 0. The client runs on core 1."""
    need("taskset")
    root = lab.directory(lab.memory, "row")
    root.chmod(0o755)
    body = random_file(root / "body", size)
    load = lab.compile(HERE / "load.c")
    cores = (0, 1) if os.cpu_count() > 1 else (0, 0)
    client = lambda server, count, *more: command(load, server.port, "body", size, connections, count, *more, cores=cores[1:])  # noqa: E731
    started = {name: servers.nginx(lab, root, words, cores=cores[:1]) for name, words in servers.NGINX.items()}
    variants = [Variant(name, with_server(client(server, requests), server), "nothing if the file changes") for name, server in started.items()]
    for name in sorted(servers.OURS, reverse=zero_copy):
        against = servers.alike(name) if size >= 64 * KIB else tuple(servers.NGINX)
        for label, path in ((name, lab.thalweg), (name + BEFORE, lab.before)):
            if path:
                started[label] = servers.thalweg(lab, root, "--threads", "1", *servers.OURS[name], binary=path, cores=cores[:1])
                run = with_server(client(started[label], requests), started[label])
                variants.append(Variant(label, run, "looks for changes", (), True, against, before=label != name))
    total = sum(body.read_bytes())
    for server in started.values():
        command(load, server.port, "body", size, 1, 3, total)(root)
    notes = [f"{requests} requests, {connections} connections; server on core {cores[0]}, client on core {cores[1]}; one worker"]
    return Plan(variants, lambda: nothing(root), lambda *_: None, "sum of all bytes before, status and length of every response", notes, "server")


@row("serve-1k", "1 KiB", SERVE)
def serve_1k(lab: Lab) -> Plan:
    return serve(lab, KIB, 100, lab.count(60_000), False)


@row("serve-1m", "1 MiB", SERVE)
def serve_1m(lab: Lab) -> Plan:
    return serve(lab, MIB, 16, lab.count(1008), True)


@row("serve-100m", "100 MB", SERVE)
def serve_100m(lab: Lab) -> Plan:
    return serve(lab, lab.size(100_000_000), 4, 4 if lab.smoke else 12, True)


@row("fetch-512m", "One file of 512 MiB, tmpfs", FETCH)
def fetch_512m(lab: Lab) -> Plan:
    need("curl")
    root = lab.directory(lab.memory, "row")
    source = random_file(root / "files/source", lab.size(512 * MIB))
    os.utime(source, (OLD, OLD))
    time.sleep(0.1)
    server = servers.thalweg(lab, source.parent)
    url = f"http://127.0.0.1:{server.port}/source"
    at_once = "exists from the first byte"
    variants = [
        Variant("curl", command("curl", "-sS", "-o", "{}/copy", url), at_once),
        Variant("aria2c -x4", command("aria2c", "-q", "--no-conf", "-x4", "-s4", "-k1M", "--file-allocation=none", "-d", "{}", "-o", "copy", url),
                at_once, needs=("aria2c",)),
        Variant("thalweg fetch", command(lab.thalweg, "fetch", url, "{}/copy"), "appears when complete", ours=True),
    ]
    return Plan(variants, lambda: new_directory(root / "sample"), lambda at, _: same_file(source, at / "copy"), "cmp",
                ["from `thalweg serve`"], "client")


def tree_servers(lab: Lab) -> tuple[Path, Path, str, str]:
    root = lab.directory(lab.memory, "row")
    source = tree(root / "source", lab.count(10_000), small_sizes)
    time.sleep(0.1)
    theirs, ours = servers.rsync_daemon(lab, source), servers.thalweg(lab, source)
    return root, source, f"rsync://127.0.0.1:{theirs.port}/tree/", f"http://127.0.0.1:{ours.port}/"


@row("fetch-tree", "10,000 files of 100 B to 16 KiB, tmpfs", FETCH)
def fetch_tree(lab: Lab) -> Plan:
    need("rsync")
    root, source, theirs, ours = tree_servers(lab)
    variants = [
        Variant("rsync -a", command("rsync", "-a", theirs, "{}/copy"), "modes, times, owners"),
        Variant("thalweg fetch -a", command(lab.thalweg, "fetch", "-a", ours, "{}/copy"), "modes, times, owners; appears when complete", ours=True),
    ]
    return Plan(variants, lambda: new_directory(root / "sample"), lambda at, _: same_tree(source, at / "copy"), "diff -r",
                ["rsync from its daemon, fetch from `thalweg serve`"], "client")


@row("fetch-unchanged", "10,000 files, none changed, tmpfs", FETCH)
def fetch_unchanged(lab: Lab) -> Plan:
    need("rsync")
    root, source, theirs, ours = tree_servers(lab)
    variants = [
        Variant("rsync -a", command("rsync", "-a", theirs, root / "theirs"), "times and sizes"),
        Variant("thalweg fetch -a", command(lab.thalweg, "fetch", "-a", ours, root / "ours"), "times and sizes", ours=True),
    ]
    for variant in variants:
        variant.run(root)

    def check(_: Path, variant: Variant) -> None:
        same_tree(source, root / ("ours" if variant.ours else "theirs"))

    return Plan(variants, lambda: nothing(root), check, "diff -r", ["rsync from its daemon, fetch from `thalweg serve`"], "client")
