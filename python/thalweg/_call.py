"""How a process that puts comes to the one that gets.

The one that gets listens at an abstract socket, which has no file and ends with the process. Who puts calls there at its first `put`,
says the key and who it is, hears `WELCOME` from a thread there (`_door`), and offers a ring over the same socket. A sender whose ring is
too small for an item says goodbye and calls again under the next number, so its items stay in order.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass

from thalweg import _native
from thalweg._errors import Closed, Error, Timeout, made
from thalweg._native import Producer
from thalweg._threads import begun

#: The key, the sender, the number of its ring.
CALL = struct.Struct("<16s16sQ")
WELCOME = b"\1"
#: As long as the channel itself has patience for a meeting, in seconds.
PATIENCE = 5.0
#: Between two calls to one who has no time, in seconds.
_AGAIN = 0.01
#: Of a process's flags in the kernel (linux/sched.h).
_PF_EXITING = 4


@dataclass(frozen=True)
class Address:
    """Where the receiver of a queue listens, and the key that it wants to hear."""

    name: str
    key: bytes
    #: The process that made it.
    owner: int

    @classmethod
    def new(cls) -> Address:
        return cls(f"\0thalweg-{os.getpid()}-{secrets.token_hex(16)}", secrets.token_bytes(16), os.getpid())

    def is_ours(self) -> bool:
        return self.owner == os.getpid()


def new_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


def process_of(connected: socket.socket) -> int | None:
    """Who is at the other end; None if that is another user."""
    told = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3I"))
    process, user, _ = struct.unpack("3I", told)
    return int(process) if user == os.geteuid() else None


def watched(pid: int) -> int | None:
    """A descriptor that tells of the end of a process. A child of it may keep its sockets open."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _is_ending(pid: int) -> bool:
    """Whether a process is gone, or on its way: it closes its sockets before it counts as ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            flags = int(stat.read().rpartition(b")")[2].split()[6])
    except (OSError, IndexError, ValueError):
        return True
    return bool(flags & _PF_EXITING)


def left(deadline: float | None) -> float | None:
    """Seconds until then, at least 0; None is for ever."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


class Calling:
    """A call that waits until it is looked at. In a thread, so that it answers also while nobody puts."""

    def __init__(self, address: Address, call: tuple[bytes, int], room: tuple[int, int | None]) -> None:
        self.address, self.call = address, CALL.pack(address.key, *call)
        self.size, self.capacity = room
        self.end: Producer | None = None
        self.error: Exception | None = None
        self.over = threading.Event()
        #: When a process that looks has answered.
        self.usual_end = time.monotonic() + PATIENCE
        begun("thalweg-call", self._run)

    def _run(self) -> None:
        try:
            while self.end is None:
                self.end = self._called()
        except Exception as error:
            self.error = error
        finally:
            self.over.set()

    def _gone(self) -> Error:
        """What has become of a receiver that does not listen."""
        if _is_ending(self.address.owner):
            return made("PeerDied", None, "the process that made the queue is gone", 0, None)
        return made("Closed", None, "the queue was closed by the process that made it", 0, None)

    def _called(self) -> Producer | None:
        """The end that sends; None to call again."""
        with new_socket() as call:
            try:
                call.connect(self.address.name)
            except BlockingIOError:
                # As many as the listener has room for wait already.
                time.sleep(_AGAIN)
                return None
            except ConnectionRefusedError:
                raise self._gone() from None
            listener = process_of(call)
            if listener is None:
                # The name was free, and is another user's now, who must not hear the key.
                raise made("PeerDied", None, "the process that made the queue is gone", 0, None)
            process = watched(listener)
            try:
                call.send(self.call)
                poll = select.poll()
                poll.register(call, select.POLLIN)
                if process is not None:
                    poll.register(process, select.POLLIN)
                told = dict(poll.poll())
                if call.fileno() not in told:
                    raise made("PeerDied", None, "the process that made the queue was killed", 0, None)
                if call.recv(1) != WELCOME:
                    # It was closed, or is another queue's: what listens there now says it.
                    time.sleep(_AGAIN)
                    return None
                end = _native.offer_over(call, capacity=self.capacity, parts=False)
                end.open(self.size, timeout=PATIENCE)
                return end
            except (BrokenPipeError, ConnectionResetError, Closed, Timeout):
                time.sleep(_AGAIN)
                return None
            finally:
                if process is not None:
                    os.close(process)
