"""Measures arrays that are received into private, writable, resident memory; frames that are read in place; and round trips of 64 bytes.

Each method has its own process, which sends when it receives a command over a pipe. The time is from that command until the array is in
the receiver's memory. The check of the contents follows and does not count.
"""

import contextlib
import ctypes
import os
import tempfile
from multiprocessing import shared_memory

import numpy as np
import thalweg
from rounds import SPAWN, answered, senders, taken, timed

PAGE = 1 << 12
TURNS = 2000
FRAME = (1080, 1920, 3)


def ours(told, place, size, capacity):
    array = np.full(size, 1, np.uint8)
    with thalweg.offer(place, capacity=capacity) as out:
        while (number := told.recv()) is not None:
            array[::PAGE] = number
            out.send(array)


def ours_lent(told, place, size, capacity):
    with thalweg.offer(place, capacity=capacity) as out:
        while (number := told.recv()) is not None:
            array = out.empty(size, np.uint8)
            array[::PAGE] = number
            out.commit(array)


def piped(told, end, size):
    array = np.full(size, 1, np.uint8)
    while (number := told.recv()) is not None:
        array[::PAGE] = number
        end.send_bytes(array)


def queued(told, queue, size):
    array = np.full(size, 1, np.uint8)
    while (number := told.recv()) is not None:
        array[::PAGE] = number
        queue.put(array)


def shared(told, name, lock, full, size):
    array = np.full(size, 1, np.uint8)
    memory = shared_memory.SharedMemory(name)
    there = np.ndarray(size, np.uint8, memory.buf)
    while (number := told.recv()) is not None:
        array[::PAGE] = number
        with lock:
            np.copyto(there, array)
        full.release()
    del there
    memory.close()


def zmq_sends(told, address, size):
    import zmq

    array = np.full(size, 1, np.uint8)
    with zmq.Context() as context, context.socket(zmq.PAIR) as socket:
        socket.connect(address)
        while (number := told.recv()) is not None:
            array[::PAGE] = number
            socket.send(array, copy=False)


def large(rounds, size):
    """Returns the times of every method."""
    into = np.zeros(size, np.uint8)
    source = np.full(size, 1, np.uint8)
    ways = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        begin = stack.enter_context(senders())

        def way(name, tell, receive):
            def is_right(got, stamp):
                array = got if isinstance(got, np.ndarray) else into
                return (array[::PAGE] == stamp).all() and (array[1] == 1 or "empty" in name)

            ways[name] = answered(tell, receive, is_right)

        for name, target, capacity in (
            ("thalweg send, receive_into", ours, 4 * size),
            ("thalweg empty, receive_into", ours_lent, 4 * size),
            ("thalweg, in parts through 4 MiB", ours, 4 << 20),
        ):
            place = os.path.join(folder, name)
            tell, from_there = begin(target, place, size, capacity), thalweg.take(place)
            way(name, tell, lambda from_there=from_there: from_there.receive_into(into))
        here, there = SPAWN.Pipe()
        way("Pipe.send_bytes, recv_bytes_into", begin(piped, there, size), lambda: here.recv_bytes_into(into))
        queue = SPAWN.Queue()
        # Needs no copy, because the array that `get` returns is already in private memory.
        way("multiprocessing.Queue", begin(queued, queue, size), queue.get)
        memory = shared_memory.SharedMemory(create=True, size=size)
        stack.callback(memory.unlink)
        lock, full = SPAWN.Lock(), SPAWN.Semaphore(0)

        def copied_out():
            full.acquire()
            with lock:
                np.copyto(into, np.ndarray(size, np.uint8, memory.buf))

        tell = begin(shared, memory.name, lock, full, size)
        way("shared_memory, copied in and out", tell, copied_out)
        try:
            import zmq
        except ImportError:
            print("pyzmq left out: peers/install python")
        else:
            socket = stack.enter_context(stack.enter_context(zmq.Context()).socket(zmq.PAIR))
            address = f"ipc://{folder}/zmq"
            socket.bind(address)
            tell = begin(zmq_sends, address, size)
            way("pyzmq ipc, copied into own memory", tell, lambda: np.copyto(into, np.frombuffer(socket.recv(copy=False), np.uint8)))
        way("one copyto in one process", lambda stamp: source.__setitem__(slice(None, None, PAGE), stamp), lambda: np.copyto(into, source))
        return taken(ways, rounds)


def framed(told, place):
    with thalweg.offer(place) as out:
        while (number := told.recv()) is not None:
            frame = out.empty(FRAME, np.uint8)
            frame[:] = number
            out.commit(frame)


def framed_by_hand(told, name, full):
    memory = shared_memory.SharedMemory(name)
    there = np.ndarray(FRAME, np.uint8, memory.buf)
    while (number := told.recv()) is not None:
        there[:] = number
        full.release()
    del there
    memory.close()


def framed_by_iceoryx2(told, name):
    _, publisher = iceoryx2_port(name, "publisher")
    while (number := told.recv()) is not None:
        sample = publisher.loan_slice_uninit(int(np.prod(FRAME)))
        np.frombuffer(sample.payload().as_memory_view(), np.uint8)[:] = number
        sample.assume_init().send()


def iceoryx2_port(name, kind):
    """Returns the node, which must outlive the port, and the port for Slice[c_uint8]. The publisher creates the shared memory."""
    import iceoryx2

    iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
    node = iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)
    service = node.service_builder(iceoryx2.ServiceName.new(name)).publish_subscribe(iceoryx2.Slice[ctypes.c_uint8])
    service = service.open_or_create()
    if kind == "publisher":
        return node, service.publisher_builder().initial_max_slice_len(int(np.prod(FRAME))).create()
    return node, service.subscriber_builder().create()


def iceoryx2_way(begin, read):
    """Returns None if iceoryx2 is not installed."""
    try:
        import iceoryx2  # noqa: F401
    except ImportError:
        print("iceoryx2 left out: peers/install python")
        return None
    name = f"thalweg/peers/{os.getpid()}"
    node, subscriber = iceoryx2_port(name, "subscriber")
    held = [node]

    def receive():
        # iceoryx2 has no blocking wait without events, so the receiver polls.
        while (sample := subscriber.receive()) is None:
            pass
        # Keeps the sample until the next one has arrived, because the frame is in its memory.
        held[1:] = [sample]
        return np.frombuffer(sample.payload().as_memory_view(), np.uint8)

    return read(begin(framed_by_iceoryx2, name), receive)


def frames(rounds):
    """Returns the times of frames that are written in shared memory and read there once."""
    ways = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        begin = stack.enter_context(senders())
        place = os.path.join(folder, "frames")
        tell = begin(framed, place)
        into = thalweg.take(place)
        memory = shared_memory.SharedMemory(create=True, size=int(np.prod(FRAME)))
        stack.callback(memory.unlink)
        full = SPAWN.Semaphore(0)
        tell_other = begin(framed_by_hand, memory.name, full)

        def read(tell, frame):
            return answered(tell, lambda: int(frame().sum()), lambda total, stamp: total == stamp * np.prod(FRAME))

        def by_hand():
            full.acquire()
            return np.ndarray(FRAME, np.uint8, memory.buf)

        ways["thalweg empty, a view"] = read(tell, into.receive)
        ways["shared_memory, one frame, a semaphore"] = read(tell_other, by_hand)
        if (way := iceoryx2_way(begin, read)) is not None:
            ways["iceoryx2 loan, looked for all the time"] = way
        return taken(ways, rounds)


def answering(place, back):
    with thalweg.offer(back) as out:
        for message in thalweg.take(place):
            out.send(message)


def answering_piped(end):
    while message := end.recv_bytes():
        end.send_bytes(message)


def turns(rounds):
    """Returns the times of round trips of 64 bytes."""
    small = np.zeros(64, np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        place, back = os.path.join(folder, "there"), os.path.join(folder, "back")
        here, there = SPAWN.Pipe()
        processes = [SPAWN.Process(target=answering, args=(place, back)), SPAWN.Process(target=answering_piped, args=(there,))]
        for process in processes:
            process.start()
        with thalweg.offer(place) as out, thalweg.take(back) as into:

            def ours_once():
                out.send(small)
                into.receive()

            def pipe_once():
                here.send_bytes(small)
                here.recv_bytes()

            def turning(once):
                def some():
                    for _ in range(TURNS):
                        once()

                wall, cpu = timed(some)[0]
                return wall / TURNS, cpu / TURNS

            ways = {"thalweg": lambda _: turning(ours_once), "Pipe": lambda _: turning(pipe_once)}
            seconds = taken(ways, rounds)
        here.send_bytes(b"")
        for process in processes:
            process.join()
    return seconds
