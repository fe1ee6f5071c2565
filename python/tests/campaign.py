"""Kills processes at one end of a channel or queue at random instants, and checks the reports of the other end.
   campaign.py KILLS SEED FOLDER
Prints the results. Exits with an error if a message is torn or lost, or if anything is left behind."""

import collections
import multiprocessing
import os
import pickle
import random
import select
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import thalweg
import victims
from thalweg.multiprocessing import Empty, Queue

#: Time in seconds after which a wait counts as a hang.
GUARD = 60.0
#: Time in seconds within which the other end must notice that a process was killed in its handshake, if it had connected.
SHOWS = 0.2
#: Methods of starting a process. forkserver is listed twice: it imports numpy only once, and the import would take most of the
#: time.
STARTS = ["program", "spawn", "forkserver", "forkserver"]


class Victim:
    """A process that is killed at a random instant. `gone` is the time at which it had ended, with its memory freed."""

    def __init__(self, start: str, words: tuple[str, ...], record: victims.Record, dice: random.Random) -> None:
        if start == "program":
            self._popen = subprocess.Popen(victims.program(*words))
            pid = self._popen.pid
        else:
            self._process = multiprocessing.get_context(start).Process(target=victims.run, args=words, daemon=True)
            self._process.start()
            assert self._process.pid is not None
            pid = self._process.pid
        self.pid, self._record, self._start = pid, record, start
        self._end = os.pidfd_open(pid)
        self.in_handshake = dice.randrange(8) == 0
        self._delay = dice.uniform(0, 0.003 if self.in_handshake else 0.009)
        self.gone = 0.0
        self._killer = threading.Thread(target=self._kill)
        self._killer.start()

    def _kill(self) -> None:
        began = time.monotonic()
        while time.monotonic() - began < GUARD:
            begun, count = self._record.read()
            if count or begun and self.in_handshake:
                break
            time.sleep(0.0002)
        time.sleep(self._delay)
        os.kill(self.pid, signal.SIGKILL)
        select.select([self._end], [], [])
        self.gone = time.monotonic()

    def shows(self) -> bool:
        """Returns True while the other end may still notice that this process had connected."""
        return not self.gone or time.monotonic() < self.gone + SHOWS

    def done(self) -> int:
        """Waits until the process has ended. Returns the number of its messages or items."""
        self._killer.join()
        os.close(self._end)
        if self._start == "program":
            assert self._popen.wait() == -signal.SIGKILL, self._popen.returncode
        else:
            self._process.join()
            assert self._process.exitcode in (-signal.SIGKILL, 255), self._process.exitcode
            self._process.close()
        return self._record.read()[1]


class Outcome:
    """The observations of the end that survives."""

    def __init__(self) -> None:
        #: Number of messages that this end received, or that the victim has received according to this end.
        self.came = 0
        #: Time at which it reported the victim's death; None if the victim had not connected.
        self.told: float | None = None


def after_sender(name: str, way: str, victim: Victim) -> Outcome:
    found, kept = Outcome(), collections.deque[tuple[int, object]](maxlen=3)
    into = thalweg.take(name)
    receive = into.receive_object if way == "object" else into.receive
    while victim.shows() or found.came:
        try:
            got = receive(timeout=0.02 if victim.in_handshake and not found.came else GUARD)
        except thalweg.Timeout:
            continue
        except thalweg.PeerDied as error:
            found.told = time.monotonic()
            assert error.moved == found.came == into.received, (error.moved, found.came)
            break
        number, array = got if way == "object" else (found.came, got)
        assert number == found.came and victims.is_whole(array, number), f"message {found.came} is torn"
        kept.append((number, array))
        found.came += 1
    for number, array in kept:
        assert victims.is_whole(array, number), f"message {number} has changed"
    return found


def after_receiver(name: str, way: str, victim: Victim) -> Outcome:
    found, sent = Outcome(), 0
    with thalweg.offer(name, capacity=victims.CAPACITY) as out:
        while victim.shows() or sent:
            try:
                out.send(victims.content(sent), timeout=0.02 if victim.in_handshake and not sent else GUARD)
            except thalweg.Timeout:
                continue
            except thalweg.PeerDied as error:
                found.told = time.monotonic()
                found.came = error.moved
                break
            sent += 1
    return found


def after_put(queue: Queue, victim: Victim) -> Outcome:
    found = Outcome()
    before = len(queue.departed())
    while victim.shows() or found.came:
        try:
            # Polls, because a waiting get does not return when the victim dies. So this loop notices the death at most 1 ms late.
            number, array = queue.get(timeout=0.001)
        except Empty:
            if len(queue.departed()) > before:
                found.told = time.monotonic()
                break
            continue
        assert number == found.came and victims.is_whole(array, number), f"item {found.came} is torn"
        found.came += 1
    if found.told is not None:
        told = queue.departed()[-1]
        assert told.pid == victim.pid and told.received == found.came, (told, found.came)
    return found


def after_get(name: str, victim: Victim) -> Outcome:
    found, put = Outcome(), 0
    while not os.path.exists(name):
        if not victim.shows():
            return found
        time.sleep(0.0005)
    with open(name, "rb") as file:
        queue = pickle.load(file)
    try:
        while True:
            queue.put((put, victims.content(put)), timeout=GUARD)
            put += 1
    except thalweg.PeerDied:
        found.told = time.monotonic()
    queue.close()
    return found


def one(number: int, dice: random.Random, folder: Path, queue: Queue) -> tuple[str, Outcome, float | None]:
    """Kills one process. Returns a description, the observations, and the delay until the other end reported the death."""
    role = list(victims.ROLES)[number % 4]
    way = dice.choice(victims.ROLES[role][1])
    start = STARTS[number // 4 % len(STARTS)]
    # The channel has a name or a path, at random.
    name = "victim" if dice.randrange(2) and role in ("sends", "takes") else str(folder / "place")
    path = str(folder / "record")
    record = victims.Record(path)
    if role == "puts":
        with open(name, "wb") as file:
            pickle.dump(queue, file)
    victim = Victim(start, (role, way, name, path, str(number)), record, dice)
    match role:
        case "sends":
            found = after_sender(name, way, victim)
        case "takes":
            found = after_receiver(name, way, victim)
        case "puts":
            found = after_put(queue, victim)
        case _:
            found = after_get(name, victim)
    done = victim.done()
    context = (role, way, start, number, done, found.came, found.told)
    if role in ("sends", "puts"):
        # The last message may have arrived before the victim recorded it.
        assert done <= found.came <= done + 1, ("lost", *context)
    elif way == "dropped":
        assert done <= found.came <= done + 1, ("miscounted", *context)
    elif way == "held":
        assert done - 4 <= found.came <= done + 1, ("miscounted", *context)
    assert found.told is not None or victim.in_handshake and not done, ("not told", *context)
    if found.told is None and role == "sends":
        # Removes the socket file that a killed producer may leave, by replacing it as the next producer would.
        thalweg.offer(name).close()
    record.close()
    os.unlink(path)
    # Removes the file with the queue's pickle, which may be incomplete.
    for left in (name, name + ".new") if role in ("puts", "gets") else ():
        Path(left).unlink(missing_ok=True)
    kind = f"{role} {way} {start}" + (", early" if found.told is None else ", in a handshake" if victim.in_handshake else "")
    return kind, found, None if found.told is None else found.told - victim.gone


def left_behind(folder: Path) -> list[str]:
    """Returns the names in all places where something could be left behind."""
    runtime = Path(os.environ["XDG_RUNTIME_DIR"])
    names = list(folder.iterdir()) + [name for name in runtime.rglob("*") if not name.is_dir()]
    # Adds the private mounts, if this user could create them.
    for place in os.environ.get("THALWEG_PRIVATE", "").split():
        names += [name for name in Path(place).iterdir() if name != folder.parent]
    return [str(name) for name in names]


def main() -> None:
    kills, seed, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    dice, late, kinds = random.Random(seed), dict[str, list[float]](), collections.Counter[str]()
    multiprocessing.set_forkserver_preload(["victims"])
    # Sets a short switch interval, so that the measuring thread gets the interpreter lock quickly.
    sys.setswitchinterval(0.0005)
    queue = Queue(capacity=victims.CAPACITY)
    messages = 0
    for number in range(kills):
        kind, found, seconds = one(number, dice, folder, queue)
        messages += found.came
        kinds[kind] += 1
        if seconds is not None:
            late.setdefault(kind.split()[0], []).append(1000 * seconds)
    queue.close()
    del queue
    # Stops the fork server, because its socket must not count as left behind.
    from multiprocessing import forkserver, util

    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    util._run_finalizers()  # type: ignore[attr-defined]
    assert not left_behind(folder), left_behind(folder)
    print(f"{kills} killed, {messages} messages whole, none lost, nothing left")
    for kind, count in sorted(kinds.items()):
        print(f"  {count:4} {kind}")
    for role, times in late.items():
        ends = statistics.quantiles(times, n=100, method="inclusive") if len(times) > 1 else times * 99
        print(
            f"  told of one that {role}: {ends[49]:.2f} ms after its end in the middle, 90 of 100 within {ends[89]:.2f}, "
            f"99 within {ends[98]:.2f}, the last {max(times):.2f}; over 10 ms: {sum(time > 10 for time in times)} of {len(times)}"
        )


if __name__ == "__main__":
    main()
