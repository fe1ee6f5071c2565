"""Commands in environments that lack something. As a program, it executes a command whose system calls fail:
   places.py ERRNO CALL,CALL COMMAND ..."""

import ctypes
import errno
import os
import platform
import struct
import subprocess
import sys

#: Numbers of system calls by architecture, and the architecture's number for seccomp(2).
CALLS = {
    "x86_64": {"memfd_create": 319, "pidfd_open": 434, "futex_waitv": 449, "": 0xC000003E},
    "aarch64": {"memfd_create": 279, "pidfd_open": 434, "futex_waitv": 449, "": 0xC00000B7},
}
#: linux/filter.h, linux/seccomp.h and linux/prctl.h
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2


def mounted(mounts: str, command: list[str]) -> list[str]:
    """Returns a command that runs the shell lines `mounts` and then the command, in a new mount namespace."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{mounts}\nexec "$@"', "sh", *command]


def why_not(command: list[str]) -> str | None:
    """Returns the reason why a command fails here; None if it succeeds."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return (ran.stderr.strip() or f"{command[0]} ended with {ran.returncode}") if ran.returncode else None


def denied(calls: str, error: int, command: list[str]) -> list[str]:
    """Returns the command with failing system calls."""
    return [sys.executable, __file__, str(error), calls, *command]


def refuse(calls: list[str], error: int) -> None:
    """Makes system calls of this process and its children fail from now on."""
    numbers = CALLS[platform.machine()]
    # Calls of other architectures are allowed, because their numbers have other meanings.
    steps = [(_LOAD, 0, 0, 4), (_JUMP_EQUAL, 0, len(calls) + 1, numbers[""]), (_LOAD, 0, 0, 0)]
    for at, call in enumerate(calls):
        steps.append((_JUMP_EQUAL, len(calls) - at, 0, numbers[call]))
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | error)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    told = ctypes.create_string_buffer(struct.pack("H6xP", len(steps), ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(_SECCOMP, _FILTER, told, 0, 0):
        sys.exit(f"no seccomp here: {errno.errorcode[ctypes.get_errno()]}")


if __name__ == "__main__":
    refuse(sys.argv[2].split(","), int(sys.argv[1]))
    os.execvp(sys.argv[3], sys.argv[3:])
