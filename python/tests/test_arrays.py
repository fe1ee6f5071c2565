"""Received arrays equal sent arrays."""

import ctypes
from multiprocessing.sharedctypes import RawArray

import numpy as np
import pytest
import thalweg
from conftest import PATIENCE
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

SIMPLE = st.one_of(hnp.scalar_dtypes(), hnp.byte_string_dtypes(), hnp.unicode_string_dtypes())
# numpy provides no buffer for a structure that contains dates.
PLAIN = SIMPLE.filter(lambda dtype: dtype.kind not in "mM")


@st.composite
def structures(draw: st.DrawFn) -> np.dtype:
    fields = draw(st.lists(st.tuples(PLAIN, hnp.array_shapes(min_dims=0, max_dims=2, max_side=3)), min_size=1, max_size=4))
    return np.dtype([(f"field{at}", dtype, shape) for at, (dtype, shape) in enumerate(fields)])


@st.composite
def arrays(draw: st.DrawFn, dtypes: st.SearchStrategy[np.dtype] | None = None) -> np.ndarray:
    dtype = draw(st.one_of(SIMPLE, structures()) if dtypes is None else dtypes)
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
    count = int(np.prod(shape, dtype=int)) * dtype.itemsize
    # Uses arbitrary bits, because the package does not interpret the values.
    array = np.frombuffer(draw(st.binary(min_size=count, max_size=count)), dtype, count // dtype.itemsize).reshape(shape)
    if draw(st.booleans()):
        array = array.T
    steps = draw(st.tuples(*[st.sampled_from([-2, -1, 1, 2, 3])] * array.ndim))
    # The ellipsis makes the result an array even if it has no dimensions.
    return array[(*(slice(None, None, step) for step in steps), ...)]


def same(sent: np.ndarray, received: np.ndarray) -> None:
    assert (received.dtype, received.shape) == (sent.dtype, sent.shape)
    assert received.tobytes() == sent.tobytes()
    assert received.flags.c_contiguous


@given(arrays())
def test_any_type_shape_and_order_arrives(array: np.ndarray) -> None:
    out, into = thalweg.pair(capacity=1 << 16)
    with out, into:
        out.send(array)
        received = into.receive(timeout=PATIENCE)
        same(array, received)
        assert not received.flags.writeable
        if array.ndim:
            lent = out.empty(array.shape, array.dtype)
            lent[...] = array
            out.commit(lent)
        else:
            out.send(array)
        same(array, into.receive(timeout=PATIENCE))


@given(arrays(SIMPLE))
def test_an_array_is_received_into_another_of_its_type_and_shape(array: np.ndarray) -> None:
    if array.dtype.kind in "mM":
        return
    out, into = thalweg.pair(capacity=1 << 16)
    with out, into:
        out.send(array)
        room = np.empty(array.shape[::-1], array.dtype).T
        assert into.receive_into(room, timeout=PATIENCE) is room
        assert room.tobytes() == array.tobytes()


def test_gaps_of_alignment_are_kept() -> None:
    out, into = thalweg.pair()
    for fields in ([("a", "i1"), ("b", "f8")], [("b", "f8"), ("a", "i1")], [("a", "i1"), ("b", "i4", (3,)), ("c", "U3")]):
        sent = np.ones(3, np.dtype(fields, align=True))
        out.send(sent)
        received = into.receive(timeout=PATIENCE)
        assert received.dtype == sent.dtype and (received == sent).all()


def test_what_does_not_fit_stays_the_next_message() -> None:
    out, into = thalweg.pair()
    out.send(np.arange(6, dtype=np.int32))
    for room in (np.empty(5, np.int32), np.empty(6, np.uint32), np.empty(6, ">i4"), np.empty((2, 3), np.int32)):
        with pytest.raises(ValueError, match="the message was not removed"):
            into.receive_into(room)
    with pytest.raises(BufferError):
        into.receive_into(bytes(24))
    assert into.receive().tolist() == [0, 1, 2, 3, 4, 5]


def test_own_memory_can_be_written_and_keeps_its_bytes() -> None:
    out, into = thalweg.pair(copy=True)
    kept = []
    for number in range(20):
        out.send(np.full(1000, number))
        array = into.receive()
        array[0] = -1
        kept.append(array)
        if number % 3 == 0:
            # Frees an array, so that a later one reuses its memory.
            del kept[number // 3]
    for array in kept:
        assert array[0] == -1 and len(set(array[1:].tolist())) == 1


def test_a_received_array_cannot_be_written() -> None:
    out, into = thalweg.pair()
    out.send(np.arange(3))
    array = into.receive()
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError):
        array.flags.writeable = True


def test_bytes_and_their_like_arrive_as_bytes() -> None:
    out, into = thalweg.pair()
    for sent in (b"hello", bytearray(b"hello"), memoryview(b"h.e.l.l.o")[::2]):
        out.send(sent)
        assert into.receive().tobytes() == b"hello"


@pytest.mark.parametrize(
    "refused",
    ["text", 5, None, [1, 2], np.array([None]), np.zeros(2, [("when", "M8[s]")]), np.zeros(2, [("a", "O")])],
    ids=repr,
)
def test_what_has_no_buffer_is_refused_with_what_to_do(refused: object) -> None:
    out, into = thalweg.pair()
    with pytest.raises(TypeError, match="send_object"):
        out.send(refused)
    assert into.try_receive() is None


def test_an_object_that_refuses_its_buffer_is_not_reported_as_one_without_a_buffer() -> None:
    out, into = thalweg.pair()
    with out, into:
        view = memoryview(b"bytes")
        view.release()
        with pytest.raises(ValueError, match="released"):
            out.send(view)
        # An empty array whose size would overflow, which numpy does not allow.
        endless = (ctypes.c_ubyte * 0 * 2**62 * 2**62)()
        for send in (out.send, out.send_bytes):
            with pytest.raises(thalweg.TooLarge, match="than fit into a message"):
                send(endless)
        assert into.try_receive() is None


def test_what_is_larger_than_the_ring_is_refused_without_parts_and_loses_nothing() -> None:
    out, into = thalweg.pair(capacity=1 << 16, parts=False)
    with pytest.raises(thalweg.TooLarge, match="capacity") as told:
        out.send(bytes(1 << 17))
    assert told.value.errno is not None
    out.send(b"small")
    assert into.receive().tobytes() == b"small"


def test_buffers_without_strides_are_sent() -> None:
    rows = (ctypes.c_int32 * 3 * 2)((1, 2, 3), (4, 5, 6))
    sent = [rows, (ctypes.c_double * 4)(1, 2, 3, 4), (ctypes.c_ubyte * 0)(), RawArray("i", [7, 8]), (ctypes.c_uint16 * 2 * 0 * 3)()]
    out, into = thalweg.pair()
    with out, into:
        for given_ in sent:
            out.send(given_)
            expected = np.ctypeslib.as_array(given_)
            received = into.receive(timeout=PATIENCE)
            assert np.array_equal(received, expected) and received.shape == expected.shape
            out.send_bytes(given_)
            assert into.receive_bytes(timeout=PATIENCE) == bytes(given_)


def test_a_masked_array_is_refused_as_its_mask_would_be_lost() -> None:
    masked = np.ma.array([1, 2, 3], mask=[0, 1, 0])
    out, into = thalweg.pair()
    with out, into:
        with pytest.raises(TypeError, match="mask"):
            out.send(masked)
        with pytest.raises(TypeError, match="mask"):
            out.send_all([np.arange(3), masked])
        out.send(masked.filled(0))
        assert list(into.receive(timeout=PATIENCE)) == [1, 0, 3]


def test_the_addresses_of_objects_are_no_bytes_to_send() -> None:
    out, into = thalweg.pair()
    with out, into:
        with pytest.raises(TypeError, match="objects or pointers"):
            out.send_bytes(np.array([object()], dtype=object))
        out.send_bytes(b"still whole")
        assert into.receive_bytes() == b"still whole"
