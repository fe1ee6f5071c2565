"""Servers on loopback or in a network namespace. They end with the row."""

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from lab import Lab, need, program
from measure import Failed, end_with_parent

# Settings of nginx that may be its best, as directives of a server.
NGINX = {
    "nginx sendfile on": "sendfile on;",
    "nginx sendfile on, nopush": "sendfile on; tcp_nopush on;",
    "nginx sendfile off": "sendfile off;",
    "nginx sendfile off, 2 x 256k": "sendfile off; output_buffers 2 256k;",
}


# Without --zero-copy, `thalweg serve` copies the file, as nginx does without sendfile.
OURS = {"thalweg serve --zero-copy": ["--zero-copy"], "thalweg serve": []}


def alike(name: str) -> tuple[str, ...]:
    """Returns the settings of nginx that move bytes like this variant of thalweg: both pass pages to the kernel, or both copy."""
    return tuple(one for one in NGINX if ("on" in one.split(",")[0].split()) == ("--zero-copy" in name))


class Server(NamedTuple):
    port: int
    pid: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def process(words: list, port: int, cores: tuple[int, ...] = (), network: str | None = None, cgroup: Path | None = None) -> Iterator[Server]:
    """Starts a server, and waits until it listens."""
    inside = ["ip", "netns", "exec", network] if network else []
    enter = ["sh", "-c", 'echo $$ >"$0"/cgroup.procs && exec "$@"', str(cgroup)] if cgroup else []
    pinned = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
    words = [*inside, *enter, *pinned, *map(str, words)]
    # Uses a file, because a pipe would fill up and block a server that logs every connection.
    with tempfile.TemporaryFile() as errors:
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True, preexec_fn=end_with_parent)
        try:
            wait_until_it_listens(server, port, network, errors)
            yield Server(port, server.pid)
        finally:
            end(server)


def end(server: subprocess.Popen) -> None:
    """Ends a server, then the processes of its session."""
    server.terminate()
    try:
        server.wait(timeout=15)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(server.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    server.wait()


def wait_until_it_listens(server: subprocess.Popen, port: int, network: str | None, errors: IO[bytes]) -> None:
    local = f":{port:04X}"
    for _ in range(500):
        if server.poll() is not None:
            errors.seek(0)
            raise Failed(f"{server.args}: {errors.read(500).decode(errors='replace')}")
        # /proc/PID/net shows the sockets of the namespace of the server; state 0A is listening.
        lines = [line.split() for line in Path(f"/proc/{server.pid}/net/tcp").read_text().splitlines()[1:]]
        if any(fields[1].endswith(local) and fields[3] == "0A" for fields in lines):
            return
        time.sleep(0.02)
    raise Failed(f"{server.args} does not listen in {network or 'this network'}")


def thalweg(lab: Lab, root: Path, *words: str, host: str = "127.0.0.1", binary: str = "", **how: object) -> Server:
    port = free_port()
    line = [binary or lab.thalweg, "serve", "--log", "none", "--listen", f"{host}:{port}", *words, root]
    return lab.enter(process(line, port, **how))


def nginx(lab: Lab, root: Path, directives: str, host: str = "127.0.0.1", **how: object) -> Server:
    """Starts nginx with one worker, without a log and without a limit of requests."""
    need("nginx")
    port = free_port()
    own = lab.directory(lab.memory, f"nginx-{port}")
    own.chmod(0o755)
    places = "".join(f"{kind}_temp_path {own}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;" if os.geteuid() == 0 else ""
    (own / "conf").write_text(
        f"daemon off; master_process off; worker_processes 1; pid {own}/pid; error_log {own}/log; {user}\n"
        "events { worker_connections 4096; }\n"
        f"http {{ access_log off; keepalive_requests 1000000000; {places}{directives}\n"
        f"server {{ listen {host}:{port}; root {root}; }} }}\n")
    line = [program("nginx"), "-p", own, "-e", own / "log", "-c", own / "conf"]
    return lab.enter(process(line, port, **how))


def rsync_daemon(lab: Lab, root: Path) -> Server:
    need("rsync")
    port = free_port()
    own = lab.directory(lab.memory, f"rsyncd-{port}")
    (own / "conf").write_text(f"use chroot = no\npid file = {own}/pid\n[tree]\npath = {root}\nuid = {os.getuid()}\ngid = {os.getgid()}\n")
    line = ["rsync", "--daemon", "--no-detach", "--address=127.0.0.1", f"--port={port}", f"--config={own}/conf"]
    return lab.enter(process(line, port))
