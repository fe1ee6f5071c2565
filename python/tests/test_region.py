"""Anonymous shared memory: several processes can map it, it is freed with them, and it never causes a
crash."""

import errno
import gc
import multiprocessing
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import thalweg
from conftest import PATIENCE, Start, ended

SPAWN = multiprocessing.get_context("spawn")


def add_one(region: thalweg.Region) -> None:
    array = region.array(1000, np.int64)
    array += 1


def test_a_process_that_is_given_it_writes_the_same_memory() -> None:
    region = thalweg.Region(8000)
    array = region.array((10, 100), np.int64)
    assert not array.any() and len(region) == 8000
    array[:] = np.arange(1000).reshape(10, 100)
    child = SPAWN.Process(target=add_one, args=(region,))
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == 0 and (array.reshape(-1) == np.arange(1, 1001)).all()


def test_it_goes_through_channels_and_by_its_name(start: Start) -> None:
    region = thalweg.Region(4096)
    out, into = thalweg.pair()
    out.send_object({"frame": 3, "where": region})
    other = into.receive_object()["where"]
    region.view[10] = 7
    assert other.view[10] == 7 and other.fileno() != region.fileno()
    program = start(
        """
        import sys, thalweg
        region = thalweg.Region.open(sys.argv[1])
        region.view[11] = region.view[10] + 1
        seen = thalweg.Region.open(sys.argv[1], writable=False)
        try:
            seen.view[0] = 1
        except TypeError:
            print("read-only", len(seen))
        """,
        region.name,
    )
    assert ended(program) == "read-only 4096" and region.view[11] == 8
    seen = thalweg.Region.open(region)
    assert seen.view[11] == 8


def test_what_others_may_write_says_so_until_it_is_sealed() -> None:
    region = thalweg.Region(80)
    array = region.array(10)
    assert type(array).__name__ == "SharedArray" and type(array[2:]) is type(array) and array.flags.writeable
    array[:] = 2
    array += 1
    assert type(array).__name__ == "SharedArray"
    for own in (array + 1, array.copy(), np.array(array), pickle.loads(pickle.dumps(array, protocol=5))):
        assert type(own) is np.ndarray
    with pytest.raises(BufferError):
        region.seal()
    del array
    gc.collect()
    other = thalweg.Region.open(region)
    with pytest.raises(thalweg.Error, match="has mapped it for writing"):
        region.seal()
    assert region.array(10)[9] == 3
    other.close()
    region.seal()
    assert region.is_sealed
    sealed = region.array(10)
    assert type(sealed) is np.ndarray and not sealed.flags.writeable and (sealed == 3).all()
    again = pickle.loads(pickle.dumps(region))
    assert again.is_sealed and (again.array(10) == 3).all()
    with pytest.raises(PermissionError):
        os.ftruncate(region.fileno(), 0)


def test_a_region_that_cannot_be_mapped_again_after_sealing_leaks_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    region = thalweg.Region(80)
    fd = region.fileno()

    def refused(_: thalweg.Region) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(thalweg.Region, "_mapped", refused)
    with pytest.raises(OSError, match=os.strerror(errno.ENOMEM)):
        region.seal()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(fd)
    with pytest.raises(ValueError, match="closed"):
        region.fileno()
    region.close()


def test_memory_that_could_shrink_is_copied_and_not_mapped(tmp_path: Path) -> None:
    fd = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.write(fd, b"some bytes")
    (tmp_path / "file").write_bytes(b"a file")
    with open(tmp_path / "file", "rb") as file:
        for what in (fd, file):
            with pytest.raises(thalweg.NotPermitted, match="Region.read"):
                thalweg.Region.open(what, writable=False)
        assert thalweg.Region.read(file) == b"a file"
    assert thalweg.Region.read(fd) == b"some bytes"
    os.close(fd)


def test_one_that_is_gone_is_not_found_under_its_descriptors_number() -> None:
    region = thalweg.Region(100)
    pickled, name, number = pickle.dumps(region), region.name, region.fileno()
    region.close()
    with pytest.raises(thalweg.Error, match="does not exist"):
        pickle.loads(pickled)
    # Creates another file, which gets the number of the closed descriptor.
    other = thalweg.Region(100)
    if other.fileno() != number:
        os.dup2(other.fileno(), number)
    with pytest.raises(thalweg.Error, match="closed by its process"):
        pickle.loads(pickled)
    assert len(thalweg.Region.open(name)) == 100
    for use in (lambda: region.view, region.fileno, lambda: region.array(1), lambda: region.name):
        with pytest.raises(ValueError, match="closed"):
            use()
    for wrong in ("/etc/passwd", "name", "/proc/1/fd/../mem"):
        with pytest.raises(ValueError, match="name of a region"):
            thalweg.Region.open(wrong)


def test_arrays_keep_the_memory_and_nothing_is_left() -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    array = thalweg.Region(1000).array(100, np.uint8)
    array[:] = 5
    gc.collect()
    assert (array == 5).all()
    del array
    region = thalweg.Region(1000)
    view = region.view
    with pytest.raises(BufferError):
        region.close()
    assert view[0] == 0
    del view
    with region:
        pass
    del region
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="at least 1 byte"):
            thalweg.Region(wrong)
    with pytest.raises(thalweg.Error):
        thalweg.Region(1 << 62)
    with pytest.raises(ValueError, match="smaller"):
        thalweg.Region(100).array(101, np.uint8)
    with pytest.raises(ValueError):
        thalweg.Region(100).array(-1)
