"""Arrays that are written in place."""

import gc

import numpy as np
import pytest
import thalweg


def test_what_was_written_in_place_is_received_and_the_array_is_empty() -> None:
    out, into = thalweg.pair()
    for number in range(100):
        array = out.empty((10, 20), np.float32)
        array[:] = number
        out.commit(array)
        assert array.shape == (0,)
        with pytest.raises(IndexError):
            array[0]
        assert (into.receive() == number).all()


@pytest.mark.parametrize("of", [lambda a: a[1:], lambda a: a.T, memoryview, lambda a: a.reshape(-1), lambda a: a, np.asarray])
def test_nothing_is_published_while_something_else_lies_over_it(of: object) -> None:
    out, into = thalweg.pair()
    array = out.empty((4, 4))
    array[:] = 1
    other = of(array)  # type: ignore[operator]
    with pytest.raises(BufferError):
        out.commit(array)
    assert array.shape == (4, 4) and into.try_receive() is None
    del other
    out.commit(array)
    assert (into.receive() == 1).all()


def test_without_its_array_a_loan_is_published_when_nothing_lies_over_it() -> None:
    out, into = thalweg.pair()
    array = out.empty(3)
    array[:] = 5
    with pytest.raises(BufferError):
        out.commit()
    del array
    out.commit()
    assert into.receive().tolist() == [5, 5, 5]
    with pytest.raises(ValueError, match="nothing is lent"):
        out.commit()


def test_a_discarded_loan_is_not_sent() -> None:
    out, into = thalweg.pair()
    array = out.empty(3)
    with pytest.raises(BufferError):
        out.send(b"another")
    with pytest.raises(BufferError):
        out.empty(3)
    out.discard(array)
    assert array.size == 0
    out.send(b"another")
    assert into.receive().tobytes() == b"another"


def test_another_array_is_not_taken_for_the_lent_one() -> None:
    out, _into = thalweg.pair()
    array = out.empty(3)
    with pytest.raises(ValueError, match="not the array that was lent"):
        out.commit(np.empty(3))
    out.discard(array)


def test_a_lent_array_outlives_its_end() -> None:
    out, into = thalweg.pair()
    array = out.empty(1000)
    out.close()
    array[:] = 3
    assert array.sum() == 3000
    with pytest.raises(ValueError, match="closed"):
        out.send(b"")
    assert into.try_receive() is None
    del array, out
    gc.collect()
    with pytest.raises(thalweg.Closed):
        into.receive()


def test_times_are_lent_too() -> None:
    out, into = thalweg.pair()
    array = out.empty(2, "M8[D]")
    array[:] = np.datetime64("2026-11-25")
    out.commit(array)
    received = into.receive()
    assert received.dtype == np.dtype("M8[D]") and str(received[1]) == "2026-11-25"


@pytest.mark.parametrize("shape", [-1, (2, -3), (1 << 40, 1 << 40)])
def test_a_shape_that_cannot_be_is_refused(shape: object) -> None:
    out, _into = thalweg.pair()
    with pytest.raises(ValueError):
        out.empty(shape)
    with pytest.raises(TypeError):
        out.empty(2, object)
    with pytest.raises(thalweg.TooLarge):
        out.empty(1 << 40)
