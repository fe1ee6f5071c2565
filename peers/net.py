"""Rows over loopback: the server runs on core 0, and the measured client on core 1."""

import atexit
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from rows import GIB, Arm, Row, Skip, big_file, drop, have, same_file, same_tree, small_tree, warm

# Sends a directory as a tar stream to each client that connects.
TAR = """
import socket, subprocess, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    peer, _ = listener.accept()
    subprocess.run(["tar", "-C", sys.argv[2], "-cf", "-", "."], stdout=peer, check=False)
    peer.close()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(argv: list[str], port: int) -> None:
    """Starts a server on core 0, and waits until it listens. The server ends when this program ends."""
    server = subprocess.Popen(["taskset", "-c", "0", *argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    atexit.register(server.kill)
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise Skip(f"{argv[0]} does not listen")


def needs(*tools: str) -> None:
    missing = [tool for tool in tools if not have(tool)]
    if missing:
        raise Skip(f"not installed: {', '.join(missing)}")


def on_core_1(command: str) -> str:
    return f"taskset -c 1 {command}"


def row_fetch(binary: Path, at: Path) -> Row:
    source, copy, port = at / "fetch" / "source", at / "fetch" / "copy", free_port()
    url = f"http://127.0.0.1:{port}/source"

    def prepare() -> None:
        needs("taskset", "curl")
        big_file(source, GIB)
        # The file's time is older than a clock tick, so that its ETag is strong.
        os.utime(source, (1_600_000_000, 1_600_000_000))
        time.sleep(2)
        serve([str(binary), "serve", "--no-profile", "--log", "none", "--listen", f"127.0.0.1:{port}", str(source.parent)], port)

    reset = f"{drop(copy)}; {warm(source)}"
    plain = "appears when whole, no second reading"
    arms = [Arm("curl", on_core_1(f"curl -sS -o {copy} {url}"), "there from the first byte")]
    if have("wget"):
        arms.append(Arm("wget", on_core_1(f"wget -q -O {copy} {url}"), "there from the first byte"))
    if have("aria2c"):
        line = f"aria2c -q --no-conf -x4 -s4 -k1M --file-allocation=none -d {copy.parent} -o {copy.name} {url}"
        arms.append(Arm("aria2c -x4", on_core_1(line), "there from the first byte, resumable"))
    fetch = f"{binary} fetch -q --no-profile --force"
    arms.append(Arm("thalweg fetch", on_core_1(f"{fetch} {url} {copy}"), plain))
    arms.append(Arm("thalweg fetch, one connection", on_core_1(f"{fetch} --connections 1 {url} {copy}"), plain))
    arms.append(Arm("thalweg fetch, four connections", on_core_1(f"{fetch} --connections 4 {url} {copy}"), plain))
    return Row("fetch", "1 GiB over loopback from thalweg serve, no profile", arms, prepare, reset, same_file(source, copy))


def row_tree(binary: Path, at: Path, name: str, what: str) -> Row:
    source, copy = at / name / "source", at / name / "copy"
    ours, theirs, stream = free_port(), free_port(), free_port()

    def prepare() -> None:
        needs("taskset", "rsync", "tar")
        if name == "fetch-r-small":
            small_tree(source)
        else:
            big_file(source / "file", GIB)
        conf = at / name / "rsyncd.conf"
        conf.write_text(f"use chroot = no\n[tree]\npath = {source}\nuid = {os.getuid()}\ngid = {os.getgid()}\n")
        time.sleep(2)
        serve([str(binary), "serve", "--no-profile", "--log", "none", "--listen", f"127.0.0.1:{ours}", str(source)], ours)
        serve(["rsync", "--daemon", "--no-detach", "--address=127.0.0.1", f"--port={theirs}", f"--config={conf}"], theirs)
        serve([sys.executable, "-c", TAR, str(stream), str(source)], stream)

    reset = f"{drop(copy)}; {warm(source)}"
    tar = f"mkdir {copy} && exec 3<>/dev/tcp/127.0.0.1/{stream} && taskset -c 1 tar -C {copy} -xf - <&3"
    fetch = f"{binary} fetch -a -q --no-profile"
    url = f"http://127.0.0.1:{ours}/"
    arms = [
        Arm("rsync -a", on_core_1(f"rsync -a rsync://127.0.0.1:{theirs}/tree/ {copy}"), "a list first, checksums of the stream"),
        Arm("tar over a socket", tar, "no list, no resuming"),
        Arm("thalweg fetch -a", on_core_1(f"{fetch} {url} {copy}"), "a list first, appears when whole"),
        Arm("thalweg fetch -a, one job", on_core_1(f"{fetch} --jobs 1 {url} {copy}"), "a list first, appears when whole"),
    ]
    return Row(name, what, arms, prepare, reset, same_tree(source, copy))


def every(binary: Path, at: Path) -> list[Row]:
    return [
        row_fetch(binary, at),
        row_tree(binary, at, "fetch-r-small", "10,000 small files over loopback"),
        row_tree(binary, at, "fetch-r-big", "a folder with one file of 1 GiB over loopback"),
    ]
