"""Results of the command as data, and transfers between open files."""

import os
import signal
import threading
from pathlib import Path

import pytest
import thalweg
from conftest import Start, ended


def test_bytes_move_between_open_files_from_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "from").write_bytes(bytes(range(256)) * 4000)
    with open(tmp_path / "from", "rb", buffering=0) as source, open(tmp_path / "to", "wb") as sink:
        source.seek(256)
        sink.write(b"before ")
        report = thalweg.transfer(source, sink, size=1000)
        assert (report.bytes, source.tell()) == (1000, 1256)
        rest = thalweg.transfer(source, sink.fileno(), prefer="cpu", zero_copy=True)
    assert rest.bytes == 1_024_000 - 1256 and rest.mechanism is not None and rest.seconds > 0
    assert (tmp_path / "to").read_bytes() == b"before " + (tmp_path / "from").read_bytes()[256:]


def test_a_pipe_is_moved_until_its_other_end_is_closed(tmp_path: Path) -> None:
    reader, writer = os.pipe()

    def write() -> None:
        with open(writer, "wb") as out:
            out.write(b"x" * 300_000)

    writing = threading.Thread(target=write)
    writing.start()
    with open(tmp_path / "to", "wb") as sink:
        assert thalweg.transfer(reader, sink).bytes == 300_000
    writing.join()
    os.close(reader)
    assert (tmp_path / "to").stat().st_size == 300_000


def test_a_transfer_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "from").write_bytes(b"x" * 10_000)
    with open(tmp_path / "from", "rb") as source, open("/dev/full", "wb") as sink:
        with pytest.raises(thalweg.Error, match="ENOSPC") as told:
            thalweg.transfer(source, sink)
        assert told.value.moved == 0
        with pytest.raises(thalweg.Error, match="no-such"):
            thalweg.transfer(source, sink, method="no-such")
    folder = os.open(tmp_path, os.O_RDONLY)
    with open(tmp_path / "to", "wb") as sink, pytest.raises(thalweg.Error):
        thalweg.transfer(folder, sink)
    os.close(folder)


def test_an_interrupt_ends_a_transfer_that_waits(start: Start) -> None:
    program = start(
        """
        import os, signal, thalweg
        signal.signal(signal.SIGINT, signal.default_int_handler)
        source, into = os.pipe()
        out, sink = os.pipe()
        os.write(into, b"x")
        def told():
            # The transfer runs: the first byte has arrived.
            os.read(out, 1)
            print("moves", flush=True)
        import threading
        threading.Thread(target=told).start()
        try:
            thalweg.transfer(source, sink)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert program.stdout is not None and program.stdout.readline() == "moves\n"
    os.kill(program.pid, signal.SIGINT)
    assert ended(program) == "interrupted"


def test_a_plan_says_what_would_move_it_and_why_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "from").write_bytes(bytes(100_000))
    plan = thalweg.plan(tmp_path / "from", tmp_path / "to")
    assert plan.bytes == 100_000 and plan.chosen == plan.verdicts[0] and plan.impossible is None
    assert {verdict.mechanism for verdict in plan.verdicts} >= {one.name for one in thalweg.mechanisms()}
    assert all(verdict.why for verdict in plan.verdicts if verdict.verdict == "unfit")
    assert plan.more["source"]["kind"] == "file" and not (tmp_path / "to").exists()
    asked = thalweg.plan(tmp_path / "from", "pipe:", size=5 << 20, method="splice", zero_copy=True).chosen
    assert asked is not None and asked.mechanism == "splice"
    nothing = thalweg.plan(tmp_path / "from", "pipe:", method="reflink")
    assert nothing.chosen is None and nothing.impossible is not None and "reflink" in nothing.impossible
    with pytest.raises(thalweg.Error, match="absent"):
        thalweg.plan(tmp_path / "absent", "pipe:")


def test_the_doctor_tells_of_this_machine() -> None:
    found = thalweg.doctor()
    assert found.machine["kernel"] == os.uname().release
    assert "file -> pipe" in found.works["read-write"]
    assert found.profile.path is not None


def test_what_tune_measured_is_what_plans_go_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THALWEG_PROFILE", str(tmp_path / "profile.json"))
    assert thalweg.Profile.now() == thalweg.Profile("absent", str(tmp_path / "profile.json"), 0, None, (), None)
    # Increases the budget, because on a busy machine a short one may not suffice.
    for budget in (1, 8, 64, 512):
        try:
            found = thalweg.tune(f"file:pipe@{tmp_path}", quick=True, budget=budget, assume_idle=True)
            break
        except thalweg.Error:
            if budget == 512:
                raise
    assert found.path == str(tmp_path / "profile.json") and found.sessions > 0 and found.advice
    kept = thalweg.Profile.now()
    assert kept.state == "current" and kept.entries > 0 and kept.newest is not None
    (tmp_path / "profile.json").write_text("{")
    assert thalweg.Profile.now().state == "broken" and thalweg.Profile.now().broken
    with pytest.raises(thalweg.Error, match="no-such"):
        thalweg.tune("no-such:pipe")
