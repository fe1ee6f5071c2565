"""Shared memory: an anonymous file that several processes map."""

from __future__ import annotations

import errno
import fcntl
import math
import mmap
import os
import re
import struct
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from thalweg import _native
from thalweg._arrays import installed_numpy
from thalweg._errors import made

if TYPE_CHECKING:
    from thalweg._commands import File

_FIXED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_NAME = re.compile(r"/proc/\d+/fd/\d+")


@cache
def _shared_type() -> Any:
    """Returns the type of arrays that other processes may change. It is a subclass of ndarray, so that printed arrays show the type."""
    import numpy

    class SharedArray(numpy.ndarray):
        """An array in memory that other processes may write at any time, so a value may change between a check and its use. Results of
        arithmetic, `copy` and unpickled arrays are private."""

        def __array_wrap__(self, array: Any, context: object = None, return_scalar: bool = False) -> Any:
            # The result of an in-place operation is in the shared memory.
            if array is self:
                return array
            own = numpy.asarray(array)
            return own[()] if return_scalar else own

        def copy(self, order: Any = "C") -> Any:
            return numpy.array(self, order=order)

        def __reduce_ex__(self, protocol: Any) -> Any:
            return numpy.asarray(self).__reduce_ex__(protocol)

    return SharedArray


class Region:
    """`size` zeroed bytes of shared memory in an anonymous file (memfd). It leaves no name behind, does not use /dev/shm, and
    is freed with the last process that has it open. Its size is fixed, and its memory is allocated at once, so that no
    access can fail.

    It can be pickled for `send_object`, queues and arguments of processes of the same user, or opened by its `name`. Keep
    it open until the other process has opened it.
    """

    def __init__(self, size: int) -> None:
        if size <= 0:
            raise ValueError(f"size={size}: a region has at least 1 byte")
        available = _native.memory_available()
        if available is not None and size > available:
            # Without this check, allocation could exhaust the memory, and the kernel would kill a process.
            raise made("Error", errno.ENOMEM, f"{size} bytes of shared memory are more than the {available} that are available", 0, None)
        try:
            fd = os.memfd_create("thalweg", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError as error:
            raise made("Error", error.errno, f"shared memory: memfd_create: {error.strerror}", 0, None) from None
        try:
            # Without this, a write to a page for which no memory is left would kill the process.
            os.posix_fallocate(fd, 0, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _FIXED)
            self._of(fd, size, writable=True)
        except OSError as error:
            os.close(fd)
            raise made("Error", error.errno, f"{size} bytes of shared memory: {error.strerror}", 0, None) from None

    def _of(self, fd: int, size: int, *, writable: bool) -> None:
        self._fd, self._size, self._writable = fd, size, writable
        self._map: mmap.mmap | None = None
        self._map = self._mapped()

    @classmethod
    def open(cls, what: str | File | int, *, writable: bool = True) -> Self:
        """Opens a region of another process by its `name`, or by a descriptor, which the caller keeps. Without `writable`,
        this process can only read it. Raises NotPermitted if its owner could shrink it. `Region.read` copies such memory."""
        number = what if isinstance(what, int) else None if isinstance(what, str) else what.fileno()
        name = f"/proc/self/fd/{number}" if number is not None else str(what)
        if number is None and not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a region")
        return cls._opened(name, None, writable=writable)

    @classmethod
    def _opened(cls, name: str, identity: tuple[int, int] | None, *, writable: bool) -> Self:
        try:
            # O_NONBLOCK, because the name may now refer to another file, and opening a FIFO would block.
            fd = os.open(name, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise made("Error", error.errno, f"the region {name} does not exist, or belongs to another user: {error.strerror}", 0, None) from None
        try:
            stat = os.fstat(fd)
            if identity is not None and (stat.st_dev, stat.st_ino) != identity:
                raise made("Error", None, f"the region {name} has been closed by its process", 0, None)
            if _seals(fd) & _FIXED != _FIXED:
                words = "another process could shrink this memory; an access would then kill this process: use Region.read, which copies"
                raise made("NotPermitted", None, words, 0, None)
            region = cls.__new__(cls)
            region._of(fd, stat.st_size, writable=writable and not _seals(fd) & fcntl.F_SEAL_WRITE)
        except BaseException:
            os.close(fd)
            raise
        return region

    @staticmethod
    def read(what: File | int) -> bytes:
        """Returns the contents of a file, read with read(2), for memory whose owner may change its size."""
        number = what if isinstance(what, int) else what.fileno()
        found = bytearray()
        while chunk := os.pread(number, 1 << 20, len(found)):
            found += chunk
        return bytes(found)

    def _mapped(self) -> mmap.mmap:
        how = mmap.PROT_READ | mmap.PROT_WRITE if self._writable else mmap.PROT_READ
        # Before Linux 6.7, a file that is sealed against writes can only be mapped privately if its descriptor is writable. The contents
        # of a private and a shared mapping are equal, because no process can write.
        flags = mmap.MAP_PRIVATE if _seals(self._fd) & fcntl.F_SEAL_WRITE else mmap.MAP_SHARED
        return mmap.mmap(self._fd, self._size, flags, how)

    def _here(self) -> mmap.mmap:
        if self._map is None:
            raise ValueError("the region is closed")
        return self._map

    @property
    def view(self) -> memoryview:
        """The whole memory. Unless it is sealed, other processes may write it at any time."""
        return memoryview(self._here())

    def array(self, shape: int | tuple[int, ...], dtype: object = None, *, offset: int = 0) -> Any:
        """Returns an array over the memory from byte `offset` on. Without numpy it is a memoryview, and `dtype` a format of
        one character.

        Its type is `SharedArray` while other processes may write it, and `numpy.ndarray` once it is sealed."""
        wanted = shape if isinstance(shape, tuple) else (shape,)
        if any(length < 0 for length in wanted):
            raise ValueError(f"invalid shape: {wanted}")
        numpy = installed_numpy()
        if numpy is None:
            letter = "d" if dtype is None else str(dtype)
            end = offset + math.prod(wanted) * struct.calcsize(letter)
            if end > self._size:
                raise ValueError(f"byte {end} is outside of the region of {self._size} bytes")
            return self.view[offset:end].cast(letter, wanted)  # type: ignore[call-overload]
        dtype = numpy.dtype(dtype or float)
        # Uses `frombuffer`, because it keeps the buffer alive, so that the mapping cannot be closed while the array exists.
        flat = numpy.frombuffer(self.view, dtype, math.prod(wanted), offset)
        array = flat.reshape(wanted)
        return array if self.is_sealed else array.view(_shared_type())

    def seal(self) -> None:
        """Prevents all processes from writing the memory. Arrays that `array` returns afterwards are read-only and never change. Raises
        BufferError while views or arrays of it exist here, and Error (EBUSY) while another process has mapped it for writing."""
        self._here().close()
        self._map = None
        try:
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        except OSError as error:
            words = f"cannot seal the region: {error.strerror}: another process has mapped it for writing, or it was opened read-only"
            raise made("Error", error.errno, words, 0, None) from None
        else:
            self._writable = False
        finally:
            try:
                self._map = self._mapped()
            except BaseException:
                # Without a mapping the region is closed, and `close` does nothing.
                os.close(self._fd)
                raise

    @property
    def is_sealed(self) -> bool:
        """True if its bytes can never change."""
        self._here()
        return bool(_seals(self._fd) & fcntl.F_SEAL_WRITE)

    @property
    def name(self) -> str:
        """The name by which processes of the same user can open it, while this process has it open. Java's
        `dev.thalweg.SharedMemory` uses the same names."""
        return f"/proc/{os.getpid()}/fd/{self.fileno()}"

    def fileno(self) -> int:
        """Its descriptor."""
        self._here()
        return self._fd

    def __len__(self) -> int:
        return self._size

    def close(self) -> None:
        """Closes the region. Raises BufferError while views or arrays of it exist."""
        if self._map is not None:
            self._map.close()
            self._map = None
            os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # Arrays may still use the mapping. It has its own descriptor, so this one can be closed.
        if getattr(self, "_map", None) is not None:
            os.close(self._fd)

    def __reduce__(self) -> tuple[Callable[..., Region], tuple[Any, ...]]:
        stat = os.fstat(self.fileno())
        return _again, (self.name, (stat.st_dev, stat.st_ino))


def _seals(fd: int) -> int:
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        # Not an anonymous file.
        return 0


def _again(name: str, identity: tuple[int, int]) -> Region:
    return Region._opened(name, identity, writable=True)
