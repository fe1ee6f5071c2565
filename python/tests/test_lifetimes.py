"""Received messages whose views live for random times: no view changes while it is held. `THALWEG_VIEWS` sets the number of
messages."""

import os

from conftest import PATIENCE, Start, ended

VIEWS = int(os.environ.get("THALWEG_VIEWS", "3000"))
#: Number of consecutive channels. Views of the first channel outlive the channel.
CHANNELS = 5

# The contents of message `number`, known to both sides.
MESSAGES = """
    import random, sys, numpy as np, thalweg
    place, messages, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    table = np.random.default_rng(5).integers(0, 256, 1 << 16, np.uint8)

    def content(number):
        size = 1 + number * 7919 % 3001
        return table[number * 31 % (1 << 15) :][:size]
"""
SENDER = (
    MESSAGES
    + """
    with thalweg.offer(place, capacity=1 << 18) as out:
        for number in range(seed, seed + messages):
            array = content(number)
            way = number % 8
            if way == 0:
                lent = out.empty(array.size, np.uint8)
                lent[:] = array
                out.commit(lent)
                del lent
            elif way == 1:
                out.send_object({"number": number, "array": array, "parts": [array[::2].copy(), number]})
            elif way == 2:
                out.send(np.stack([array, array]).T)
            else:
                out.send(array)
    """
)
RECEIVER = (
    MESSAGES
    + """
    import gc, os, threading, zlib
    sys.setswitchinterval(1e-4)
    random.seed(seed)
    lock, kept, wrong, done = threading.Lock(), [], [], []
    counts = {"kept": 0, "by threads": 0, "in cycles": 0, "at once": 0, "for room": 0, "at the end": 0}

    def used():
        gc.collect()
        with open("/proc/self/maps") as maps:
            return len(os.listdir("/proc/self/fd")), sum("thalweg" in line for line in maps)

    def resident():
        with open("/proc/self/statm") as told:
            return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def summed(view):
        return zlib.crc32(np.ascontiguousarray(view))

    class Cycle:
        def __init__(self, item):
            self.item, self.me = item, self

        def __del__(self):
            check(*self.item)

    def check(number, view, told):
        if summed(view) != told:
            wrong.append(number)

    def drops():
        while not (done and not kept):
            with lock:
                item = kept.pop(random.randrange(len(kept))) if kept else None
                counts["by threads"] += item is not None
            if item is None:
                pause.wait(0.001)
                continue
            check(*item)
            del item

    def parts(array):
        yield array
        yield array[random.randrange(array.size) :]
        yield array[:: -random.randrange(1, 4)]
        yield array.reshape(1, -1)[0:1, :]
        yield array.reshape(-1, 1).T
        yield memoryview(array)
        yield memoryview(array)[random.randrange(array.size) :]
        yield memoryview(array.base if isinstance(array.base, memoryview) else array).cast("B")
        yield np.asarray(memoryview(array))
        yield np.broadcast_to(array, (2, array.size))
        yield array.view(np.int8)

    def next_of(receive):
        while True:
            try:
                return receive(timeout=0.005)
            except thalweg.Timeout:
                # This thread may hold the oldest message, and the sender may wait for the room of that message.
                counts["for room"] += bool(mine)
                if mine:
                    check(*mine.pop(0))

    def taken(into, number):
        if number % 8 == 1:
            found = next_of(into.receive_object)
            assert found["number"] == number == found["parts"][1]
            assert (found["parts"][0] == content(number)[::2]).all()
            return found["array"]
        array = next_of(into.receive)
        if number % 8 == 2:
            assert array.shape == (content(number).size, 2) and (array[:, 1] == content(number)).all()
            return array[:, 0]
        return array

    def received(number, into):
        array = taken(into, number)
        assert not array.flags.writeable and (array == content(number)).all(), number
        chance = random.random()
        if chance < 0.4:
            counts["at once"] += 1
            return
        flat = array if array.flags.c_contiguous else array.base[:, 0]
        ways = list(parts(flat)) if flat.flags.c_contiguous else [flat, flat[::2], flat.base]
        view = random.choice(ways)
        del ways
        item = number, view, summed(view)
        counts["kept"] += 1
        if chance < 0.45:
            Cycle(item)
            counts["in cycles"] += 1
        elif chance < 0.75:
            with lock:
                kept.append(item)
        else:
            mine.append(item)
        if random.random() < 0.55 and mine:
            check(*mine.pop(random.randrange(len(mine))))

    pause, mine = threading.Event(), []
    def one_channel(first, count, outlive):
        into = thalweg.take(place)
        into.open(timeout=600)
        for number in range(first, first + count):
            received(number, into)
            if number % 4096 == 0:
                gc.collect()
        try:
            into.receive(timeout=600)
        except thalweg.Closed:
            pass
        if not outlive:
            into.close()

    threads = [threading.Thread(target=drops, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    each, resting = messages // %CHANNELS%, []
    before = None
    for channel in range(%CHANNELS%):
        print("next", flush=True)
        one_channel(seed + channel * each, each, channel % 2)
        resting.append(resident())
        # After the first channel, `before` records the descriptors and mappings that stay in use.
        if channel == 0:
            with lock:
                held = mine + kept
                kept.clear()
            mine.clear()
            counts["at the end"] += len(held)
            while held:
                check(*held.pop())
            while kept:
                pause.wait(0.001)
            before = used()
    done.append(True)
    for thread in threads:
        thread.join()
    counts["at the end"] += len(mine)
    while mine:
        check(*mine.pop())
    after = used()
    assert not wrong, (len(wrong), wrong[:10])
    assert after == before, (before, after)
    # The test sends thousands of messages, so memory that is not freed would exceed this limit.
    assert max(resting[1:]) < resting[0] + (16 << 20), resting
    print(dict(counts), "resident", [size >> 20 for size in resting])
    """.replace("%CHANNELS%", str(CHANNELS))
)


def test_views_of_random_lives_never_change(start: Start) -> None:
    """Keeps views, slices them, puts them in cycles, passes them to threads and drops them. Each has its own checksum."""
    each = VIEWS // CHANNELS
    receiver = start(RECEIVER, "views", VIEWS, 0)
    assert receiver.stdout is not None
    for channel in range(CHANNELS):
        told = receiver.stdout.readline()
        assert told == "next\n", receiver.stderr and receiver.stderr.read()
        sender = start(SENDER, "views", each, channel * each)
        # The sender ends when everything was received and released, or when the remaining messages fit in its ring.
        ended(sender)
    print(f"{VIEWS} messages:", ended(receiver))
