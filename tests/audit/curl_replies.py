"""Serves the raw HTTP replies of curl's tests to `curl` and to `thalweg fetch`, and compares the results.

    curl_replies.py FOLDER [TEST ...]

FOLDER contains the files tests/data/test*. $THALWEG is the command. Prints a line `PASS test` if both fail, or if both succeed
with equal bytes. Otherwise prints `FAIL test` with an indented line that describes the difference.
"""

import base64
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

HEADER = re.compile(rb"^(HTTP/(1\.1|1\.0|2|3) [1-5][^\r]*|[A-Za-z0-9_-]+: [^\r]*)\n$")
# Seconds to wait for a reply that neither side ends.
PATIENCE = 10


def decoded(text: bytes) -> bytes:
    """Replaces %NN by the byte with this hexadecimal value."""
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), text)


def prepared(line: bytes, number: bytes, port: int) -> bytes:
    """Replaces the variables that curl's test runner replaces."""
    known = {b"HOSTIP": b"127.0.0.1", b"HTTPPORT": b"%d" % port, b"TESTNUMBER": number, b"VERSION": b"7.88.1"}
    for name, value in known.items():
        line = line.replace(b"%" + name, value)
    line = re.sub(rb"%b64\[(.*?)\]b64%", lambda found: base64.b64encode(decoded(found[1])), line)
    line = re.sub(rb"%hex\[(.*?)\]hex%", lambda found: decoded(found[1]), line)
    return re.sub(rb"%repeat\[(\d+) x (.*?)\]%", lambda found: decoded(found[2]) * int(found[1]), line)


def reply_of(path: pathlib.Path, port: int) -> bytes | None:
    """Returns the bytes of <reply><data>; None if the test has no reply over HTTP."""
    number = path.name.removeprefix("test").encode()
    text = path.read_bytes()
    if b"<reply>" not in text or not re.search(rb"<server>\s*http(-ipv6|-proxy|-unix)?\s*\n", text):
        return None
    found = re.search(rb"<reply>.*?\n *<data([^>]*)>\n(.*?)\n? *</data>", text.split(b"</reply>")[0] + b"</reply>", re.S)
    if not found:
        return None
    attributes, data = found[1], found[2] + b"\n"
    lines, shown, before = [], True, False
    for line in data.splitlines(keepends=True):
        # Selects the branch for builds of curl without the feature.
        condition = re.match(rb" *%(if|else|endif)( *!?)", line)
        if condition:
            shown = {b"if": b"!" in condition[2], b"else": not shown, b"endif": True}[condition[1]]
            continue
        if not shown:
            continue
        line = prepared(line, number, port)
        if b'crlf="yes"' in attributes:
            if HEADER.match(line) or (line == b"\n" and before):
                line, before = line[:-1] + b"\r\n", True
            else:
                before = False
        lines.append(line)
    data = b"".join(lines)
    if b'nonewline="yes"' in attributes:
        data = data.removesuffix(b"\n")
    if b"base64=" in attributes:
        data = b"".join(map(lenient, lines))
    if b"hex=" in attributes:
        data = bytes.fromhex(b"".join(lines).decode())
    return data if data.strip() else None


def lenient(line: bytes) -> bytes:
    """Decodes a line of base64 like Perl: skips other characters, and an incomplete last byte."""
    digits = re.sub(rb"[^A-Za-z0-9+/]", b"", line)
    return base64.b64decode(digits[: len(digits) - (len(digits) % 4 == 1)] + b"==")


class Server:
    """Sends one reply to every connection, and then closes it."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self.listener.getsockname()[1]
        self.reply = b""
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.answer, args=(client,), daemon=True).start()

    def answer(self, client: socket.socket) -> None:
        with client:
            client.settimeout(PATIENCE)
            try:
                head = b""
                while b"\r\n\r\n" not in head:
                    more = client.recv(65536)
                    if not more:
                        return
                    head += more
                client.sendall(self.reply)
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass
            except OSError:
                return


def outcome(command: list[str], path: pathlib.Path, proxy: str) -> tuple[int, bytes | None, str]:
    """Returns the exit status, the bytes if the status is 0, and the last line of the messages."""
    # With the proxy settings, redirected requests reach this server too.
    environment = os.environ | {"http_proxy": proxy, "https_proxy": proxy, "no_proxy": "", "HOME": str(path.parent)}
    ran = subprocess.run(command, env=environment, capture_output=True, timeout=60)
    bytes_there = path.read_bytes() if ran.returncode == 0 and path.exists() else None
    said = ran.stderr.decode(errors="replace").strip().splitlines()
    return ran.returncode, bytes_there, said[-1] if said else ""


def compare(path: pathlib.Path) -> str | None:
    server = Server()
    reply = reply_of(path, server.port)
    if reply is None:
        return None
    server.reply = reply
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        proxy = url = f"http://127.0.0.1:{server.port}"
        url += f"/{path.name}"
        theirs = ["curl", "-q", "-sS", "-f", "-L", "--max-redirs", "10", "--max-time", str(PATIENCE), "-o", f"{place}/theirs", url]
        ours = [os.environ["THALWEG"], "fetch", "--retries", "0", "--quiet", url, f"{place}/ours"]
        code, want, why = outcome(theirs, place / "theirs", proxy)
        own, got, reason = outcome(ours, place / "ours", proxy)
        # If the body is empty, curl does not create a file.
        same = (want or b"") == (got or b"") if code == own == 0 else bool(code) == bool(own)
        if same:
            return f"PASS {path.name}"
        sizes = [len(body) if body is not None else None for body in (want, got)]
        return f"FAIL {path.name}\n    {path.name}: curl {code} {sizes[0]} {why}; thalweg {own} {sizes[1]} {reason}"


def main() -> None:
    folder, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    paths = [folder / name for name in names] or sorted(folder.glob("test*[0-9]"), key=lambda path: int(path.name[4:]))
    with ThreadPoolExecutor(4) as pool:
        for line in filter(None, pool.map(compare, paths)):
            print(line, flush=True)


main()
