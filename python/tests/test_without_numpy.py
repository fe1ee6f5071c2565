"""Without numpy, arrays are memoryviews."""

from pathlib import Path

from conftest import Start, ended


def test_arrays_are_memoryviews_with_format_and_shape(start: Start) -> None:
    program = start(
        """
        import sys
        sys.modules["numpy"] = None
        import array, thalweg
        out, into = thalweg.pair()
        out.send(memoryview(array.array("d", range(6))).cast("B").cast("d", [2, 3]))
        got = into.receive()
        assert type(got) is memoryview and got.readonly
        assert (got.format, got.shape, got.tolist()) == ("d", (2, 3), [[0, 1, 2], [3, 4, 5]])
        out.send(b"bytes")
        assert into.receive().tobytes() == b"bytes"
        view = out.empty((2, 2), "i")
        view[1, 0] = 5
        part = view[1:]
        try:
            out.commit(view)
        except BufferError:
            pass
        part.release()
        out.commit(view)
        try:
            view[0, 0]
        except ValueError as error:
            print(error)
        assert into.receive()[1, 0] == 5
        try:
            out.empty(3, "O")
        except TypeError as error:
            print("refused")
        """
    )
    assert ended(program).splitlines() == ["operation forbidden on released memoryview object", "refused"]


def test_an_interrupt_during_the_import_of_numpy_is_raised_after_it(start: Start, tmp_path: Path) -> None:
    # This is what numpy does if its extension module is interrupted.
    (tmp_path / "numpy.py").write_text(
        "import os, signal\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    for _ in range(1000): pass\n"
        "except KeyboardInterrupt:\n    raise ImportError\n"
    )
    program = start(
        """
        import signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.path.insert(0, sys.argv[1])
        import thalweg
        out, into = thalweg.pair()
        try:
            out.empty(3)
        except KeyboardInterrupt:
            print("interrupted", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        """,
        tmp_path,
    )
    assert ended(program) == "interrupted True"
