"""Batches from the workers of torch's DataLoader, without /dev/shm and without new memory for each batch.

    from thalweg.torch import DataLoader           # torch's, extended

    for batch in DataLoader(dataset, batch_size=64, num_workers=4, persistent_workers=True):
        ...

A worker stacks its samples directly into memory that this process has mapped too. The tensors of the batch use this memory without a copy.
When the last of them is freed, the worker fills the memory again. `collate` alone does this for torch's own DataLoader. `DataLoader` also
raises `WorkerDied`, with the process id, if a worker was killed.
"""

from __future__ import annotations

import errno
import io
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

try:
    import torch  # type: ignore[import-not-found, unused-ignore]
    from torch.utils.data import DataLoader as _DataLoader  # type: ignore[import-not-found, unused-ignore]
    from torch.utils.data import default_collate, default_convert, get_worker_info  # type: ignore[import-not-found, unused-ignore]
    from torch.utils.data._utils.collate import collate as _collate_by  # type: ignore[import-not-found, unused-ignore]
    from torch.utils.data._utils.collate import default_collate_fn_map  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:
    raise ImportError(f"thalweg.torch needs torch 2.0 or later: {error}") from error

from thalweg._errors import PeerDied
from thalweg._slots import Lender, Ticket, forget, redeemed

__all__ = ["DataLoader", "WorkerDied", "collate"]

_ALIGN = 64
_KILLED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)")


class WorkerDied(PeerDied):
    """One or more workers of a DataLoader were killed, or ended unexpectedly."""

    #: The processes of the workers.
    pids: tuple[int, ...] = ()


class _Stack:
    """Tensors to be stacked directly into the memory of the batch."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = tensors

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot pickle samples that were not stacked yet")


def _is_plain(tensor: Any) -> bool:
    """Returns True if a tensor consists of its elements only."""
    return type(tensor) is torch.Tensor and bool(
        tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.is_quantized or tensor.is_nested)
        and (tensor.is_leaf or not tensor.requires_grad)
    )


def _later(batch: Sequence[Any], *, collate_fn_map: object = None) -> Any:
    if _is_plain(batch[0]):
        return _Stack(batch)
    return _now(batch)


def _now(batch: Sequence[Any], *, collate_fn_map: object = None) -> Any:
    """Stacks tensors like torch's own function, but without /dev/shm."""
    if batch[0].is_nested or batch[0].layout != torch.strided:
        raise RuntimeError("default_collate: nested and sparse tensors need their own collate_fn")
    return torch.stack(tuple(batch), 0)


class _Place:
    """The place of a tensor in the memory of the batch, and its type."""

    def __init__(self, source: Any, offset: int) -> None:
        stacked = isinstance(source, _Stack)
        first = source.tensors[0] if stacked else source
        self.offset, self.dtype = offset, first.dtype
        self.shape = (len(source.tensors), *first.shape) if stacked else tuple(first.shape)
        self.strides = None if stacked else _dense(first)
        self.needs_grad = not stacked and first.requires_grad
        self.count = 1
        for length in self.shape:
            self.count *= length
        self.size = self.count * first.element_size()

    def over(self, memory: Any) -> Any:
        """Returns the tensor over `memory`, and keeps the memory alive."""
        if self.count == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        flat = torch.frombuffer(memory, dtype=self.dtype, count=self.count, offset=self.offset)
        if self.strides is None:
            return flat.view(self.shape)
        return flat.as_strided(self.shape, self.strides)

    def filled(self, memory: Any, source: Any) -> None:
        if isinstance(source, _Stack):
            torch.stack(tuple(source.tensors), 0, out=self.over(memory))
        else:
            self.over(memory).copy_(source.detach())

    def made(self, memory: Any) -> Any:
        """Returns the tensor over `memory` as an independent tensor, not as a view of another tensor."""
        over = self.over(memory)
        if self.count:
            over = torch.empty(0, dtype=self.dtype).set_(over.untyped_storage(), 0, self.shape, over.stride())
        return over.requires_grad_() if self.needs_grad else over


def _dense(tensor: Any) -> tuple[int, ...] | None:
    """Returns the strides of a contiguous tensor in another order than C, such as channels last; None for C order."""
    if tensor.is_contiguous():
        return None
    order = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))
    return tuple(tensor.stride()) if tensor.permute(order).is_contiguous() else None


class _Pickler(pickle.Pickler):
    """A pickler that leaves out the tensors in the memory of the batch."""

    def __init__(self, into: io.BytesIO) -> None:
        self.sources: list[Any] = []
        self.arrays: list[memoryview] = []
        self._known: dict[int, int] = {}
        super().__init__(into, protocol=5, buffer_callback=lambda buffer: self.arrays.append(buffer.raw()))

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, _Stack) and not _is_plain(obj):
            return None
        number = self._known.get(id(obj))
        if number is None:
            number = self._known[id(obj)] = len(self.sources)
            self.sources.append(obj)
        return number

    def reducer_override(self, obj: Any) -> Any:
        # Does not use torch's own reducer: after unpickling with it, each sparse tensor stays alive for ever, unless torch.load is
        # called.
        if type(obj) is torch.Tensor and obj.layout in _SPARSE:
            return _sparse, (obj.layout, *(getattr(obj, part)() for part in _SPARSE[obj.layout]), obj.shape)
        return NotImplemented


#: The parts of a sparse tensor.
_SPARSE = {
    torch.sparse_coo: ("_indices", "_values", "is_coalesced"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def _sparse(layout: Any, first: Any, second: Any, third: Any, shape: Any) -> Any:
    if layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(first, second, shape, is_coalesced=third, check_invariants=False)
    return torch.sparse_compressed_tensor(first, second, third, shape, layout=layout, check_invariants=False)


class _Unpickler(pickle.Unpickler):
    def __init__(self, pickled: Any, tensors: list[Any], arrays: list[memoryview]) -> None:
        super().__init__(io.BytesIO(pickled), buffers=arrays)
        self._tensors = tensors

    def persistent_load(self, pid: Any) -> Any:
        return self._tensors[pid]


class _Packed:
    """A batch in lent memory. Pickling it stores its ticket; unpickling returns the batch itself."""

    def __init__(self, where: Ticket | bytes, start: int) -> None:
        self._where, self._start = where, start

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self._where, self._start)


_lender: Lender | None = None


def _lent(size: int) -> tuple[Ticket | None, Any]:
    """Returns shared memory. If the system provides none, returns private memory; torch's queue then carries the bytes."""
    global _lender
    # A forked child inherits the lender of its parent, but must create its own.
    if _lender is None or not _lender.is_here():
        _lender = Lender()
    try:
        return _lender.taken(size)
    except OSError:
        return None, bytearray(size)


def _packed(batch: Any) -> _Packed:
    """Stores the batch in one block of memory: tensors and arrays, each aligned to 64 bytes, then the pickle of the rest."""
    pickled = io.BytesIO()
    pickler = _Pickler(pickled)
    pickler.dump(batch)
    end = 0
    places, ranges = [], []
    for source in pickler.sources:
        places.append(_Place(source, end))
        end = _next(end + places[-1].size)
    for array in pickler.arrays:
        ranges.append((end, end + array.nbytes))
        end = _next(end + array.nbytes)
    rest = pickle.dumps((places, ranges, pickled.getvalue()), protocol=5)
    ticket, memory = _lent(end + len(rest))
    try:
        for place, source in zip(places, pickler.sources, strict=True):
            if place.count:
                place.filled(memory, source)
        for (first, last), array in zip(ranges, pickler.arrays, strict=True):
            memory[first:last] = array
        memory[end:] = rest
    except BaseException:
        if ticket is not None and _lender is not None:
            _lender.untaken(ticket)
        raise
    return _Packed(bytes(memory) if ticket is None else ticket, end)


def _next(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


def _arrived(where: Ticket | bytes, start: int) -> Any:
    memory: Any = redeemed(where) if isinstance(where, Ticket) else bytearray(where)
    view = memoryview(memory).cast("B")
    places, ranges, pickled = pickle.loads(view[start:])
    tensors = [place.made(memory) for place in places]
    return _Unpickler(pickled, tensors, [view[first:last] for first, last in ranges]).load()


class _Collate:
    def __init__(self, collate_fn: Callable[[Any], Any] | None) -> None:
        self._collate_fn = collate_fn

    def __call__(self, samples: Any) -> Any:
        if get_worker_info() is None:
            return (self._collate_fn or default_collate)(samples)
        if self._collate_fn is None:
            return _packed(_collate_by(samples, collate_fn_map={**default_collate_fn_map, torch.Tensor: _later}))
        # The user's function may call torch's `default_collate`, which would create tensors in /dev/shm in a worker.
        default_collate_fn_map[torch.Tensor] = _now
        return _packed(self._collate_fn(samples))


def collate(collate_fn: Callable[[Any], Any] | None = None) -> Callable[[Any], Any]:
    """Returns a `collate_fn` for torch's DataLoader that passes batches through reused memory.

    Without a function it collates as `torch.utils.data.default_collate`, but stacks directly into the memory of the batch. The tensors and
    numpy arrays in the result of your function are copied there once, whatever contains them. Everything else is pickled.

    In a loader without workers, it only calls the function.
    """
    return collate_fn if isinstance(collate_fn, _Collate) else _Collate(collate_fn)


class DataLoader(_DataLoader):  # type: ignore[misc, unused-ignore]
    """torch's DataLoader, with the same arguments. It uses `collate`, and raises `WorkerDied` if a worker was killed."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        *more: Any,
        **options: Any,
    ) -> None:
        if collate_fn is None and batch_size is None and batch_sampler is None:
            # Without batching, samples are passed unchanged, as in torch.
            collate_fn = default_convert
        by = collate(collate_fn)
        super().__init__(dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, by, *more, **options)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override, unused-ignore]
        with _Told():
            batches: Iterator[Any] = super().__iter__()
        return _Batches(batches) if self.num_workers else batches


class _Batches:
    """torch's iterator, with an exception that names the killed workers."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._inner)

    def __next__(self) -> Any:
        try:
            with _Told():
                return next(self._inner)
        except StopIteration:
            # Releases the slots of the workers, which have ended unless they are persistent.
            forget()
            raise


class _Told:
    """Converts torch's error about a dead worker to `WorkerDied`."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        found = _KILLED.search(str(error)) if isinstance(error, RuntimeError) else None
        if found is not None:
            died = WorkerDied(errno.EOWNERDEAD, str(error).strip())
            died.pids = tuple(int(pid) for pid in found[1].split(","))
            raise died from error
