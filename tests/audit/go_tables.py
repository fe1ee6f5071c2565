"""Runs the tables of Go's net/http/fs_test.go, for ranges and conditions, against `thalweg serve`.

    go_tables.py FOLDER URL ROOT

FOLDER is src/net/http of Go's sources; the server at URL shares ROOT. Prints one line for each row: `PASS test`, `FAIL test` or
`SKIP test: reason`.
"""

import calendar
import email
import email.policy
import http.client
import os
import pathlib
import re
import sys
import time
import urllib.parse

STATUS = {"StatusOK": 200, "StatusPartialContent": 206, "StatusRequestedRangeNotSatisfiable": 416, "StatusPreconditionFailed": 412}
FORMAT = "%a, %d %b %Y %H:%M:%S GMT"
# The value of `htmlModTime` in Go's tests.
INDEX = 1_400_000_000
# Seconds until the server treats tags and dates of a new file as strong: the clock of the file system must advance before.
SETTLED = 2.1


class Asked:
    """A request and its response."""

    def __init__(self, url: str, path: str, headers: dict[str, str]) -> None:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=20)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        self.status, self.body = answer.status, answer.read()
        self.header = lambda name: answer.getheader(name) or ""
        connection.close()


def code(word: str) -> int:
    return int(word) if word.isdigit() else STATUS[word]


def told(name: str, wrong: list[str]) -> None:
    print(f"{'FAIL' if wrong else 'PASS'} {name}", *(f"    {name}: {why}" for why in wrong), sep="\n")


def ranges(text: str, folder: pathlib.Path, url: str, root: pathlib.Path) -> None:
    content = (folder / "testdata/file").read_bytes()
    (root / "file").write_bytes(content)
    table = re.search(r"var ServeFileRangeTests = .*?\n\}\n", text, re.S)[0]
    for row in re.finditer(r'\{r: "(.*?)", code: (\w+)(?:, ranges: \[\]wantRange\{(.*)\}\})?', table):
        want = [
            content[slice(*(eval(bound, {"testFileLen": len(content)}) for bound in pair.split(",")))]
            for pair in re.findall(r"\{(.*?)\}", (row[3] or "") + "}")
        ]
        asked = Asked(url, "/file", {"Range": row[1]} if row[1] else {})
        wrong = []
        if asked.status != code(row[2]):
            wrong.append(f"{asked.status} and not {row[2]}")
        elif asked.status == 200 and asked.body != content:
            wrong.append("the body is not the file")
        elif asked.status == 206:
            got = [asked.body]
            kind = asked.header("Content-Type")
            if kind.startswith("multipart/byteranges"):
                head = f"Content-Type: {kind}\r\n\r\n".encode()
                parts = email.message_from_bytes(head + asked.body, policy=email.policy.HTTP).get_payload()
                got = [part.get_payload(decode=True) for part in parts]
            if got != want:
                wrong.append(f"{got} and not {want}")
        told(f"range {row[1]}".replace(":", ""), wrong)


def date(second: int) -> str:
    return time.strftime(FORMAT, time.gmtime(second))


def modified(words: str) -> int | None:
    """Converts a `modtime` of the table to seconds."""
    parts = re.match(r"time\.Date\((\d+), (\d+), (\d+), (\d+), (\d+), (\d+)", words)
    if parts:
        return calendar.timegm((*map(int, parts.groups()), 0, 0, 0))
    return {"htmlModTime": INDEX, "time.Unix(0, 0)": 0}.get(words)


class Row:
    """A row of the table of conditions, with its file."""

    def __init__(self, name: str, words: str, folder: pathlib.Path, root: pathlib.Path) -> None:
        self.name, self.words = name, words
        file, content = self.field("file").strip('"'), re.search(r'NewReader\("(.*?)"\)', words)
        path = root / name / pathlib.Path(file or "page.html").name
        self.path = f"/{name}/{path.name}"
        path.parent.mkdir()
        path.write_bytes((folder / file).read_bytes() if file else (content[1] if content else "some text").encode())
        second = modified(self.field("modtime"))
        if second is not None:
            os.utime(path, (second, second))

    def field(self, key: str) -> str:
        found = re.search(rf"^\t\t\t{key}: +(.*?),(?: *//.*)?$", self.words, re.M)
        return found[1] if found else ""

    def ask(self, url: str) -> list[str]:
        """Runs the row. Returns a description of the failure, if any."""
        own, tag = Asked(url, self.path, {}).header("ETag"), self.field("serveETag").strip("`")
        # The server's tag is strong now. A client that sends it as a weak tag must get the same response.
        own = "W/" + own if tag.startswith("W/") else own
        headers = {}
        for key, value in re.findall(r'^\t\t\t\t"([\w-]+)": +(.*),$', self.words, re.M):
            shift = re.search(r"Add\((-?\d+) \* time.Second\)", value)
            is_date = "htmlModTime" in value
            value = date(INDEX + int(shift[1] if shift else 0)) if is_date else value[1:-1]
            # The table sets a tag for Go's server. Our server chooses its own tag, which replaces it.
            headers[key] = value.replace(tag, own) if tag else value
        asked = Asked(url, self.path, headers)
        wrong = []
        if asked.status != code(self.field("wantStatus")):
            wrong.append(f"{asked.status} and not {self.field('wantStatus')}, by {headers}")
        stated = self.field("wantLastMod")
        pairs = [
            ("Content-Range", self.field("wantContentRange")),
            ("Content-Type", self.field("wantContentType")),
            ("Last-Modified", date(INDEX) if "html" in stated else stated),
        ]
        for header, want in pairs:
            if want and asked.header(header) != want.strip('"'):
                wrong.append(f"{header}: {asked.header(header)!r} and not {want}")
        return wrong


def conditions(text: str, folder: pathlib.Path, url: str, root: pathlib.Path) -> None:
    table = re.search(r"tests := map\[string\]testCase\{\n(.*?)\n\t\}\n", text, re.S)[1]
    found = re.finditer(r'^\t\t"(\w+)": \{\n(.*?)^\t\t\},', table, re.S | re.M)
    rows = [Row(row[1], row[2], folder, root) for row in found]
    time.sleep(SETTLED)
    for row in rows:
        told(f"condition {row.name}", row.ask(url))


def main() -> None:
    folder, url, root = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    text = (folder / "fs_test.go").read_text()
    ranges(text, folder, url, root)
    conditions(text, folder, url, root)


main()
