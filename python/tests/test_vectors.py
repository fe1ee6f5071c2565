"""Golden vectors of arrays. Both thalweg and `arrays.py` write and read them; `arrays.py` was written from
docs/reference/formats.md alone."""

import json
import socket
import threading
from pathlib import Path

import arrays
import numpy as np
import pytest
import ring
import thalweg
from conftest import PATIENCE, ROOT

FOLDER = ROOT / "tests" / "vectors"
VECTORS = json.loads((FOLDER / "arrays.json").read_text())
RING = {"capacity": 1 << 16, "checksums": True, "wait": "block"}


def test_the_reader_by_the_text_alone_agrees_with_the_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    arrays.main("vectors", FOLDER)
    assert capsys.readouterr().out == f"{len(VECTORS)} arrays\n"


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_vector_is_received_as_what_it_says_and_sent_again_the_same(vector: dict) -> None:
    told, message = vector["array"], bytes.fromhex(vector["message"])
    out, into = thalweg.pair()
    out.send_bytes(message)
    array = into.receive()
    assert (list(array.shape), array.itemsize) == (told["shape"], told["item"])
    assert array.tobytes().hex() == told["elements"]
    if vector["values"] is not None:
        numbers = array if told["encoding"] == 1 else array.view(array.dtype.str[0] + "i8")
        assert numbers.ravel().tolist() == vector["values"]
    out.send(array)
    again = arrays.read(into.receive_bytes())
    # Ignores two fields, because numpy writes formats in another notation, and received arrays are read-only.
    assert again | {"format": "", "readonly": None} == told | {"format": "", "readonly": None}
    assert again["readonly"]
    out.send_bytes(arrays.write(again))
    assert into.receive().dtype == array.dtype


def test_arrays_go_both_ways_between_us_and_a_ring_by_the_text_alone(place: str) -> None:
    """Sends hundreds of arrays through a ring and a reader that contain no thalweg code."""
    sent = [np.arange(number * 7 % 500, dtype=f"<i{1 << number % 4}")[:: 1 + number % 3] for number in range(300)]
    heard: list[dict] = []

    def receive() -> None:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link.connect(place)
        end = ring.ask(link, RING)
        while (message := end.receive()) is not None:
            heard.append(arrays.read(bytes(message)))
        end.close()

    with thalweg.offer(place, capacity=1 << 16, checksums=True) as out:
        thread = threading.Thread(target=receive)
        thread.start()
        for array in sent:
            out.send(array, timeout=PATIENCE)
    thread.join()
    assert [array["elements"] for array in heard] == [array.tobytes().hex() for array in sent]
    assert [array["shape"] for array in heard] == [list(array.shape) for array in sent]

    back = Path(place).with_name("back")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(back))
    listener.listen()

    def send() -> None:
        link, _ = listener.accept()
        end = ring.offer(link, RING)
        for array in heard:
            assert end.send(arrays.write(array))
        end.drain()
        end.close()

    thread = threading.Thread(target=send)
    thread.start()
    received = list(thalweg.take(str(back), copy=True))
    thread.join()
    listener.close()
    assert len(received) == len(sent)
    for array, original in zip(received, sent, strict=True):
        assert array.dtype == original.dtype and (array == original).all()
