"""Message rings between running processes. Written from docs/reference/formats.md alone; standard library only.

`offer` creates a Producer and `ask` a Consumer, over a connected SEQPACKET socket.

This code uses neither futexes nor a robust list. So the word `alive` of an end stays 0, and the peer wakes a
sleeping end over the link. The shared words are items of a cast memoryview. CPython copies such an item with
one load or store of its size. x86-64 keeps the order of loads and the order of stores (TSO). So on x86-64, these
accesses are the acquire loads and release stores that the format requires.
"""

import fcntl
import mmap
import os
import select
import socket
import struct
import threading
import time
from collections import deque

from reader import crc32c, expect, frame, hello, page

OFFER, ASK, ACCEPT, READY, REFUSE = 1, 2, 3, 4, 5
CURSOR, WAKE, WAITING, ALIVE, CLOSED = 128, 256, 384, 512, 528
OWNER_DIED = 1 << 30
HOW, ON_LINK, ONE_SLEEP = 3, 2, 4
FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
FUTURE_WRITE = 16  # F_SEAL_FUTURE_WRITE: fcntl has no name for it before 3.13
U32 = (1 << 32) - 1
LOOKS = 256  # checks of the cursor for each check whether the peer is alive
PATIENCE = 120  # seconds


class Refused(Exception):
    """The peer refuses this ring, or offers memory that could not be mapped safely."""


class Memory:
    """The mapped file of one end. Accesses to items of `cursors` and `words` are single loads and
    stores."""

    def __init__(self, fd, size, access):
        self.bytes = mmap.mmap(fd, size, mmap.MAP_SHARED, access)
        head = memoryview(self.bytes)[:4096]
        self.cursors, self.words = head.cast("Q"), head.cast("I")

    def cursor(self):
        return self.cursors[CURSOR // 8]

    def word(self, at):
        return self.words[at // 4]

    def put(self, at, value):
        self.words[at // 4] = value & U32


def size_of(ring, magic):
    return ring["header_len"] + (ring["capacity"] if magic == b"THALWEGR" else 0)


def make(ring, magic):
    """Creates, maps and seals the file of this end. Returns the memory, and the descriptor for the
    peer."""
    fd = os.memfd_create("thalweg-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.posix_fallocate(fd, 0, size_of(ring, magic))
    memory = Memory(fd, size_of(ring, magic), mmap.PROT_READ | mmap.PROT_WRITE)
    sizes = ring["header_len"], ring["capacity"], 64
    fixed = magic, 1, *sizes, ring["flags"], ring["epoch"], os.getpid()
    struct.pack_into("<8sIIQIIQI", memory.bytes, 0, *fixed)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, FIXED_SIZE | FUTURE_WRITE | fcntl.F_SEAL_SEAL)
    return memory, fd


def take(fds, magic):
    """Checks and maps the file of the peer. Returns the memory and its page."""
    expect(len(fds) == 1, f"{len(fds)} descriptors where one was due")
    seals = fcntl.fcntl(fds[0], fcntl.F_GET_SEALS)
    one_writer = seals & (fcntl.F_SEAL_WRITE | FUTURE_WRITE)
    ordinary = os.fstatvfs(fds[0]).f_bsize == mmap.PAGESIZE
    if seals & FIXED_SIZE != FIXED_SIZE or not one_writer or not ordinary:
        raise Refused("memory that is not sealed as agreed, or of huge pages")
    ring = page(os.pread(fds[0], 4096, 0), magic)
    expect(os.fstat(fds[0]).st_size == size_of(ring, magic), "size of the file")
    memory = Memory(fds[0], size_of(ring, magic), mmap.PROT_READ)
    os.close(fds[0])
    return memory, ring


def greeting(kind, epoch, reason=0):
    return struct.pack("<8sIIQI36x", b"THALWEGH", 1, kind, epoch, reason)


def say(link, message, *fds):
    if fds:
        socket.send_fds(link, [message], fds)
    else:
        link.send(message)


def hear(link, due):
    """Receives the next message, which must be of this kind. Returns its epoch and descriptors."""
    try:
        said, fds, flags, _ = socket.recv_fds(link, 65, 4)
    except ConnectionResetError:
        # The kernel reports ECONNRESET once, although messages that arrived before are still available.
        said, fds, flags, _ = socket.recv_fds(link, 65, 4)
    if not said:
        raise ConnectionResetError("gone before the channel was open")
    expect(not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC), "a message that is too long")
    heard = hello(said)
    if heard["kind"] == REFUSE:
        raise Refused(f"the other side refuses, reason {heard['reason']}")
    expect(heard["kind"] == due, f"message {heard['kind']} where {due} was due")
    return heard["epoch"], fds


def offer(link, options):
    """Performs the producer's part of the handshake."""
    link.settimeout(PATIENCE)
    epoch = int.from_bytes(os.urandom(8), "little")
    ring = {
        "header_len": mmap.PAGESIZE,
        "capacity": options["capacity"],
        "flags": int(options["checksums"]),
        "epoch": epoch,
    }
    own, fd = make(ring, b"THALWEGR")
    say(link, greeting(OFFER, epoch), fd)
    hear(link, ASK)
    told, fds = hear(link, ACCEPT)
    peer, taken = take(fds, b"THALWEGC")
    same = told == epoch and all(taken[name] == ring[name] for name in ring)
    expect(same, "another ring was taken")
    say(link, greeting(READY, epoch))
    return Producer(link, own, peer, ring, options)


def ask(link, options):
    """Performs the consumer's part of the handshake."""
    link.settimeout(PATIENCE)
    say(link, greeting(ASK, 0))
    epoch, fds = hear(link, OFFER)
    peer, ring = take(fds, b"THALWEGR")
    expect(ring["epoch"] == epoch, "the offer and its memory have different epochs")
    own, fd = make(ring, b"THALWEGC")
    say(link, greeting(ACCEPT, epoch), fd)
    expect(hear(link, READY)[0] == epoch, "the last word is about another epoch")
    return Consumer(link, own, peer, ring, options)


FENCE = threading.Lock()


def full_fence():
    with FENCE:
        pass  # taking a lock is a locked instruction, which on x86-64 is a full fence


class End:
    """Code that both ends share: waiting for the peer, waking it, and detecting its end."""

    def __init__(self, link, own, peer, ring, options):
        self.link, self.own, self.peer, self.ring = link, own, peer, ring
        self.wait = options["wait"]
        self.gone, self.ended_sleep = None, 0
        link.setblocking(False)
        self.link_ends, self.link_tells = select.poll(), select.poll()
        self.link_ends.register(link, 0)
        self.link_tells.register(link, select.POLLIN)

    def publish(self, cursor):
        self.own.cursors[CURSOR // 8] = cursor
        self.rouse()

    def rouse(self):
        full_fence()
        waiting = self.peer.word(WAITING)
        if waiting & HOW and waiting != self.ended_sleep:
            self.ended_sleep = waiting
            self.own.put(WAKE, self.own.word(WAKE) + 1)
            try:
                self.link.send(b"!")
            except OSError:
                pass  # a full queue wakes the peer too, and a closed link has no sleeper

    def await_news(self, look):
        """Waits for a result of `look`, and returns it. Returns None if the peer is gone and
        nothing is left."""
        looks, until = 0, time.monotonic() + PATIENCE
        while (found := look()) is None:
            looks += 1
            if looks % LOOKS and self.wait != "block":
                continue
            if self.is_gone():
                return look()  # the peer may have committed between the last look and its end
            if time.monotonic() > until:
                raise TimeoutError(f"no news for {PATIENCE} s")
            if self.wait == "spin":
                os.sched_yield()
            else:
                self.sleep(look)
        return found

    def sleep(self, look):
        self.own.put(WAITING, self.own.word(WAITING) + ONE_SLEEP & ~HOW | ON_LINK)
        full_fence()
        if look() is None and not self.is_gone():
            self.link_tells.poll(PATIENCE * 1000)
        self.own.put(WAITING, self.own.word(WAITING) & ~HOW)
        try:
            while self.link.recv(16):
                pass
        except OSError:
            pass  # the queue is empty

    def is_gone(self):
        """Returns True if the peer is gone; `gone` is the reason."""
        if not self.gone:
            if self.peer.word(CLOSED):
                self.gone = "closed"
            elif self.peer.word(ALIVE) & OWNER_DIED:
                self.link_ends.poll(5)  # waits until the peer's last thread has ended
                self.gone = "died"
            elif self.link_ends.poll(0):
                # A peer that closes sets CLOSED before it closes the link.
                self.gone = "closed" if self.peer.word(CLOSED) else "died"
        return self.gone

    def close(self):
        self.own.put(CLOSED, 1)
        self.rouse()
        self.link.close()


class Producer(End):
    def __init__(self, *shared):
        super().__init__(*shared)
        self.head, self.tail, self.sent = 0, 0, 0
        self.ends = deque()  # end positions of the messages that are not released

    def see_tail(self):
        tail = self.peer.cursor()
        expect(self.tail <= tail <= self.head and tail % 64 == 0, f"tail {tail} cannot be")
        self.tail = tail
        while self.ends and self.ends[0] <= tail:
            self.ends.popleft()

    def send(self, payload):
        """Sends a message. Returns False if the consumer is gone."""
        capacity, size = self.ring["capacity"], (32 + len(payload) + 63) // 64 * 64
        expect(size <= capacity, f"{len(payload)} bytes are too many for the ring")

        def room():
            self.see_tail()
            return self.head + size <= self.tail + capacity or None

        if self.head + size > self.tail + capacity and not self.await_news(room):
            return False
        header = struct.pack("<IHHQ", len(payload), 1, self.ring["flags"], self.sent)
        crc = crc32c(header + payload) if self.ring["flags"] else 0
        self.write(header + struct.pack("<I12x", crc) + payload)
        self.head, self.sent = self.head + size, self.sent + 1
        self.ends.append(self.head)
        self.publish(self.head)
        return True

    def write(self, frame_):
        start, first = self.ring["header_len"], self.head % self.ring["capacity"]
        whole = min(len(frame_), self.ring["capacity"] - first)
        self.own.bytes[start + first:start + first + whole] = frame_[:whole]
        self.own.bytes[start:start + len(frame_) - whole] = frame_[whole:]

    def drain(self):
        """Waits until every message is released. Returns False if the consumer is gone before."""

        def empty():
            self.see_tail()
            return not self.ends or None

        return bool(self.await_news(empty))

    def released(self):
        self.see_tail()
        return self.sent - len(self.ends)


class Consumer(End):
    def __init__(self, *shared):
        super().__init__(*shared)
        self.head, self.tail, self.received = 0, 0, 0

    def look(self):
        head = self.peer.cursor()
        fine = self.head <= head <= self.tail + self.ring["capacity"] and head % 64 == 0
        expect(fine, f"head {head} cannot be")
        self.head = head
        return head > self.tail or None

    def receive(self):
        """Returns a copy of the next message; None if there are no more and the producer is gone."""
        if self.head == self.tail and not self.await_news(self.look):
            return None
        seq, payload, size = frame(self.peer.bytes, self.ring, self.tail, self.head)
        expect(seq == self.received, f"message {seq} where {self.received} was due")
        self.tail, self.received = self.tail + size, self.received + 1
        self.publish(self.tail)
        return payload
