"""A read-only FUSE file system that waits before each answer. It shows the files of another directory. Root mounts it.

slowfs.py DIRECTORY MOUNT_POINT SECONDS
"""

import ctypes
import errno
import itertools
import os
import stat
import struct
import sys
import threading
import time

LOOKUP, FORGET, GETATTR, READLINK, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 5, 14, 15, 17, 18
INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 26, 27, 28, 29, 36, 42
IN_HEADER = struct.Struct("<IIQQIIIHH")
OUT_HEADER = struct.Struct("<IiQ")
THREADS = 16
READ_ONLY, NO_SUID, NO_DEV = 1, 2, 4
ASYNC_READ, PARALLEL_DIROPS = 1 << 0, 1 << 18
ROOT_NODE = 1


class SlowFiles:
    def __init__(self, backing: str, delay: float) -> None:
        self.delay, self.lock, self.numbers = delay, threading.Lock(), itertools.count(ROOT_NODE + 1)
        self.paths, self.nodes = {ROOT_NODE: backing}, {backing: ROOT_NODE}

    def serve(self, device: int) -> None:
        """Answers requests until the file system is unmounted."""
        while True:
            try:
                request = os.read(device, 1 << 18)
            except OSError as error:
                # ENOENT means that the request was interrupted before it was read.
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                os._exit(0)
            _, code, unique, node, *_ = IN_HEADER.unpack_from(request)
            if code in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            try:
                body, wrong = self.answer(code, node, request[IN_HEADER.size:]), 0
            except OSError as error:
                body, wrong = b"", -error.errno
            if code not in (INIT, RELEASE, RELEASEDIR):
                time.sleep(self.delay)
            try:
                os.write(device, OUT_HEADER.pack(OUT_HEADER.size + len(body), wrong, unique) + body)
            except OSError:
                pass

    def answer(self, code: int, node: int, body: bytes) -> bytes:
        path = self.paths.get(node, "")
        if code == INIT:
            ahead, = struct.unpack_from("<8xI", body)
            flags = ASYNC_READ | PARALLEL_DIROPS
            return struct.pack("<IIIIHHIIHHI28x", 7, 31, ahead, flags, 64, 48, 1 << 16, 1, 0, 0, 0)
        if code == LOOKUP:
            return self.entry(os.path.join(path, os.fsdecode(body.rstrip(b"\0"))))
        if code == GETATTR:
            return struct.pack("<QII", 0, 0, 0) + attributes(path)
        if code == READLINK:
            return os.fsencode(os.readlink(path))
        if code in (OPEN, OPENDIR):
            return struct.pack("<QIi", os.open(path, os.O_RDONLY), 0, 0)
        if code in (RELEASE, RELEASEDIR):
            os.close(struct.unpack_from("<Q", body)[0])
            return b""
        if code == STATFS:
            return struct.pack("<5QIIII24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0)
        if code in (READ, READDIR):
            handle, offset, size = struct.unpack_from("<QQI", body)
            return os.pread(handle, size, offset) if code == READ else listing(path, offset, size)
        raise OSError(errno.ENOSYS, "")

    def entry(self, path: str) -> bytes:
        found = attributes(path)
        with self.lock:
            node = self.nodes.get(path) or next(self.numbers)
            self.nodes[path], self.paths[node] = node, path
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + found


def attributes(path: str) -> bytes:
    of = os.lstat(path)
    seconds = [getattr(of, f"st_{name}_ns") // 10**9 for name in ("atime", "mtime", "ctime")]
    rest = [getattr(of, f"st_{name}_ns") % 10**9 for name in ("atime", "mtime", "ctime")]
    return struct.pack("<6Q10I", of.st_ino, of.st_size, of.st_blocks, *seconds, *rest, of.st_mode, of.st_nlink, of.st_uid, of.st_gid, 0, 4096, 0)


def listing(path: str, offset: int, size: int) -> bytes:
    """Returns directory entries from a position on, as many as fit."""
    shown = b""
    for number, name in enumerate(sorted(os.listdir(path))[offset:], offset + 1):
        word = os.fsencode(name)
        of = os.lstat(os.path.join(path, name))
        item = struct.pack("<QQII", of.st_ino, number, len(word), stat.S_IFMT(of.st_mode) >> 12) + word
        item += b"\0" * (-len(item) % 8)
        if len(shown) + len(item) > size:
            break
        shown += item
    return shown


def main() -> None:
    backing, at, delay = sys.argv[1:]
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other,default_permissions"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"slowfs", os.fsencode(at), b"fuse", READ_ONLY | NO_SUID | NO_DEV, options.encode()):
        raise SystemExit(f"slowfs: mount: {os.strerror(ctypes.get_errno())}")
    files = SlowFiles(backing, float(delay))
    threads = [threading.Thread(target=files.serve, args=(device,)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
