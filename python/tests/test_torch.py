"""Batches of torch's DataLoader. Skipped and counted if torch is not installed."""

import gc
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE, Start, ended, skip

try:
    import torch
except ImportError:
    skip("torch is not installed")

import numpy as np
import thalweg
from thalweg import _slots
from thalweg.torch import DataLoader, WorkerDied, collate

Point = namedtuple("Point", ["x", "y"])
KINDS = ["fork", "spawn"]


class Mixed(torch.utils.data.Dataset):
    """Samples of all types that default_collate supports."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, number: int) -> Any:
        return {
            "image": torch.full((3, 4), number, dtype=torch.uint8),
            "array": np.arange(number, number + 3, dtype=np.int16),
            "point": Point(number, float(number)),
            "pair": (torch.tensor(number, dtype=torch.bfloat16), [np.float32(number), number % 2 == 0]),
            "name": f"sample {number}",
            "empty": torch.empty(0, 2),
        }


class Large(torch.utils.data.Dataset):
    """Samples of about 1 MB. Each element contains the number of the sample. Each sample also names its worker."""

    def __init__(self, length: int = 32) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int) -> Any:
        if not 0 <= number < self.length:
            raise IndexError(number)
        return torch.full((1 << 18,), number, dtype=torch.float32), os.getpid()


def same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    if isinstance(theirs, torch.Tensor):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and torch.equal(ours, theirs)
        assert ours.stride() == theirs.stride() and ours.requires_grad == theirs.requires_grad
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            same(mine, other)
    else:
        assert ours == theirs


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    _slots.forget()
    assert not _slots._uses and not _slots._others
    assert len(os.listdir("/proc/self/fd")) <= before + 3


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_those_of_torch(kind: str) -> None:
    theirs = list(torch.utils.data.DataLoader(Mixed(), batch_size=4))
    ours = DataLoader(Mixed(), batch_size=4, num_workers=2, multiprocessing_context=kind)
    for batch, other in zip(ours, theirs, strict=True):
        same(batch, other)
    # `collate` also works in torch's own loader, and without workers.
    for workers in (0, 2):
        plain = torch.utils.data.DataLoader(Mixed(), batch_size=4, num_workers=workers, collate_fn=collate())
        for batch, other in zip(plain, theirs, strict=True):
            same(batch, other)


def test_tensors_are_writable_and_are_no_views() -> None:
    for batch in DataLoader(Mixed(), batch_size=4, num_workers=1):
        image = batch["image"]
        image += 1
        image.requires_grad_(False)
        assert not image._is_view() and image.storage_offset() == 0
        assert image.untyped_storage().nbytes() == image.numel()
        assert not image.is_shared()
        array = image.numpy()
        del image, batch
        array[:] = 7
        assert array.sum() == 7 * array.size


def test_memory_is_used_again_and_never_while_it_is_in_use() -> None:
    kept: list[tuple[Any, int]] = []
    places = set()
    loader = DataLoader(Large(), batch_size=2, num_workers=2, persistent_workers=True)
    for epoch in range(4):
        for number, (batch, _) in enumerate(loader):
            places.add(batch.data_ptr())
            assert batch[0, 0] == 2 * number and batch[1, -1] == 2 * number + 1
            if number % 5 == epoch:
                kept.append((batch[1], 2 * number + 1))
            if len(kept) > 6:
                del kept[:3]
            for tensor, value in kept:
                assert (tensor == value).all()
    # All 64 batches together use few slots: those of the batches in progress and of the kept ones.
    assert len(places) < 32
    del loader, batch, tensor


def test_who_keeps_all_batches_has_them() -> None:
    loader = DataLoader(Large(120), batch_size=1, num_workers=2)
    descriptors = len(os.listdir("/proc/self/fd"))
    iterator = iter(loader)
    kept = [batch for batch, _ in iterator]
    # Each slot in use has two descriptors, and the workers have some more.
    assert len(os.listdir("/proc/self/fd")) - descriptors < 60
    for number, batch in enumerate(kept):
        assert batch.shape == (1, 1 << 18) and (batch == number).all()


def numbers(samples: list[Any]) -> Any:
    tensors, pids = zip(*samples, strict=True)
    image = torch.stack(tensors).reshape(len(tensors), 4, 256, 256).to(memory_format=torch.channels_last)
    weights = torch.ones(3, requires_grad=True)
    of_torch = torch.utils.data.default_collate(list(tensors))
    return {
        "image": image,
        "twice": (image, weights),
        "numpy": np.arange(6).reshape(2, 3),
        "sparse": torch.eye(3).to_sparse(),
        "rows": torch.eye(3).to_sparse_csr(),
        "complex": torch.complex(torch.ones(2), torch.ones(2)).conj(),
        "every": image[0, 0, ::2, ::3],
        "torch": of_torch,
        "set": {"a"},
        "pids": pids,
    }


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("kind", KINDS)
def test_a_function_of_ones_own_returns_whatever_it_likes(kind: str) -> None:
    dataset = Large(4)
    expected = numbers([dataset[0], dataset[1]])
    (batch, *_) = DataLoader(dataset, batch_size=2, num_workers=1, collate_fn=numbers, multiprocessing_context=kind)
    for name in ("image", "torch", "twice"):
        same(batch[name], expected[name])
    assert batch["twice"][0] is batch["image"] and batch["image"].is_contiguous(memory_format=torch.channels_last)
    assert batch["numpy"].tolist() == [[0, 1, 2], [3, 4, 5]]
    batch["numpy"][0, 0] = 9
    assert torch.equal(batch["sparse"].to_dense(), torch.eye(3)) and torch.equal(batch["rows"].to_dense(), torch.eye(3))
    assert torch.equal(batch["complex"], expected["complex"])
    assert torch.equal(batch["every"], expected["every"]) and batch["set"] == {"a"}
    array = batch["numpy"]
    del batch
    assert array[0, 0] == 9 and array[1, 2] == 5


def test_samples_without_batches() -> None:
    ours = list(DataLoader(Mixed(), batch_size=None, num_workers=1))
    same(ours, list(torch.utils.data.DataLoader(Mixed(), batch_size=None)))


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        for number in range(0 if info is None else info.id, 21, 1 if info is None else info.num_workers):
            yield torch.full((number % 3 + 1, 1000), number)


def test_a_stream_of_batches_of_several_sizes() -> None:
    got = sorted(int(sample[0, 0, 0]) for sample in DataLoader(Stream(), batch_size=1, num_workers=2))
    assert got == list(range(21))


def uneven(samples: list[Any]) -> Any:
    return [sample[0] for sample in samples]


def test_an_error_of_a_worker_is_that_error_and_loses_no_memory() -> None:
    class Wrong(Large):
        def __getitem__(self, number: int) -> Any:
            return torch.zeros(number // 2 + 1)

    iterator = iter(DataLoader(Wrong(4), batch_size=4, num_workers=1))
    with pytest.raises(RuntimeError, match="equal size"):
        next(iterator)


class Deadly(Large):
    """Sample 9 kills its worker."""

    def __getitem__(self, number: int) -> Any:
        if number == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(number)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("persistent", [False, True])
def test_a_killed_worker_is_told_with_its_process(kind: str, persistent: bool) -> None:
    loader = DataLoader(
        Deadly(), batch_size=2, num_workers=2, multiprocessing_context=kind, persistent_workers=persistent
    )
    got, pids = [], set()
    with pytest.raises(WorkerDied, match="DataLoader worker") as told:
        for batch, makers in loader:
            got.append(batch)
            pids.update(makers.tolist())
    assert isinstance(told.value, thalweg.PeerDied) and len(told.value.pids) == 1
    assert told.value.pids[0] not in {os.getpid()} and not os.path.exists(f"/proc/{told.value.pids[0]}/exe")
    # Checks that the death of the worker does not change received batches.
    for number, batch in enumerate(got):
        assert (batch[0] == 2 * number).all()
    del loader, told


def child_sees(batch: Any, value: float, told: Any, go_on: Any) -> None:
    go_on.wait(PATIENCE)
    # Compares in numpy, because torch would use threads that do not exist after a fork.
    told.put(bool((batch.numpy() == value).all()))


def test_a_child_made_by_fork_keeps_what_its_parent_lets_go_of() -> None:
    fork = multiprocessing.get_context("fork")
    told, go_on = fork.SimpleQueue(), fork.Event()
    iterator = iter(DataLoader(Large(), batch_size=2, num_workers=1, persistent_workers=True))
    batch, _ = next(iterator)
    child = fork.Process(target=child_sees, args=(batch[0], 0.0, told, go_on))
    child.start()
    del batch
    for batch, _ in iterator:
        pass
    go_on.set()
    assert told.get()
    child.join(PATIENCE)
    del iterator, batch


def test_without_memory_of_its_own_the_queue_carries_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refused)
    loader = DataLoader(Large(4), batch_size=2, num_workers=1, multiprocessing_context="fork")
    for number, (batch, _) in enumerate(loader):
        assert (batch[1] == 2 * number + 1).all()
        batch += 1


def test_exit_with_batches_in_use_is_quiet(start: Start) -> None:
    program = start(
        """
        import torch
        from thalweg.torch import DataLoader
        data = [torch.full((1000,), number) for number in range(8)]
        kept = list(DataLoader(data, batch_size=2, num_workers=2))
        iterator = iter(DataLoader(data, batch_size=2, num_workers=1, persistent_workers=True))
        kept.append(next(iterator))
        print(len(kept))
        """
    )
    printed, complaint = program.communicate(timeout=PATIENCE)
    assert (program.returncode, printed, complaint) == (0, "5\n", "")


def test_the_package_does_not_import_torch(start: Start) -> None:
    program = start("import sys, thalweg, thalweg.multiprocessing; print('torch' in sys.modules)")
    assert ended(program) == "False"


SMALL_SHM = """
import sys, torch
from torch.utils.data import DataLoader
data = [torch.full((1 << 18,), float(number)) for number in range(16)]
options = dict(batch_size=4, num_workers=2)
if sys.argv[1] == "ours":
    from thalweg.torch import DataLoader
loader = DataLoader(data, **options)
print([float(batch.sum()) / (1 << 18) for batch in loader])
"""


def in_small_shm(which: str) -> "subprocess.CompletedProcess[str]":
    mounted = 'mount -t tmpfs -o size=1m none /dev/shm && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mounted, "sh", sys.executable, "-c", SMALL_SHM, which]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def test_a_dev_shm_of_1_mib_is_enough() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        skip("a /dev/shm of 1 MiB: it needs root, for a mount namespace")
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True)
    if probe.returncode != 0:
        skip("a /dev/shm of 1 MiB: no mount namespace here")
    ours = in_small_shm("ours")
    assert (ours.returncode, ours.stdout) == (0, "[6.0, 22.0, 38.0, 54.0]\n"), ours.stderr
    # Checks that torch's own loader fails with a small /dev/shm.
    theirs = in_small_shm("theirs")
    assert theirs.returncode != 0 and "shared memory" in theirs.stderr, theirs.stderr


def test_what_is_not_a_batch_is_refused(tmp_path: Path) -> None:
    region = thalweg.Region(100)
    identity = _slots._identity(region.fileno())
    gone = _slots.Ticket(os.getpid(), (region.fileno(), (0, 0)), 0, (region.fileno(), identity), 10)
    with pytest.raises(thalweg.PeerDied, match=str(os.getpid())):
        _slots.redeemed(pickle.loads(pickle.dumps(gone)))


def test_without_descriptors_the_error_says_so(start: Start) -> None:
    program = start(
        """
        import os, resource, thalweg
        from thalweg import _slots
        lender = _slots.Lender()
        ticket, memory = lender.taken(100)
        memory[:3] = b"abc"
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, 100))
        try:
            _slots.redeemed(ticket)
        except thalweg.Error as error:
            print(type(error).__name__, error.errno)
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        print(bytes(_slots.redeemed(ticket))[:3])
        """
    )
    assert ended(program).splitlines() == ["Error 24", "b'abc'"]
