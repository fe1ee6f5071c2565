"""Code shared by the tests: programs in separate processes, and private paths."""

import gc
import io
import os
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NoReturn

import anyio
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "vectors"))

# Time limit in seconds, longer than the wait of any test. The limit only ends tests that hang.
PATIENCE = 600

# The examples are deterministic, so that `make test` fails only because of a change. THALWEG_CASES=1000 tries that many
# random ones. THALWEG_SAMPLE=1, which the audit suite python-long sets, tries more deterministic ones.
CASES = int(os.environ.get("THALWEG_CASES", "0"))
USUAL = 100 if os.environ.get("THALWEG_SAMPLE") == "1" else 30
settings.register_profile(
    "thalweg",
    derandomize=not CASES,
    max_examples=CASES or USUAL,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("thalweg")

def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs the tests of Dask last: it leaves threads behind, and some tests require that no other thread runs Python."""
    items.sort(key=lambda item: "dask" in item.path.name)


Start = Callable[..., subprocess.Popen[str]]
Test = Callable[[str], Awaitable[None]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a Python program, given as text. Programs that still run at the end are killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(
        text: str, *arguments: object, within: tuple[str, ...] | list[str] = (sys.executable,), **options: object
    ) -> subprocess.Popen[str]:
        command = [*within, "-c", textwrap.dedent(text), *map(str, arguments)]
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        program = subprocess.Popen(command, text=True, env=environment, **{**pipes, **options})
        if program.stdout is not None:
            # Reads single bytes, because with the usual buffer `readline` could read more lines, which `communicate`
            # would not see.
            program.stdout = io.TextIOWrapper(program.stdout.detach().detach())
            program.stdout._CHUNK_SIZE = 1  # type: ignore[attr-defined]
        started.append(program)
        return program

    yield begin
    for program in started:
        program.kill()
        program.communicate()


def ended(program: "subprocess.Popen[str]") -> str:
    """Returns the output of a program, which must succeed."""
    printed, complaint = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, complaint
    return printed.strip()


def skip(reason: str) -> NoReturn:
    """Skips a test that cannot run on this machine; `make test` counts it."""
    if noted := os.environ.get("THALWEG_SKIPS"):
        with open(noted, "a") as skips:
            skips.write(f"python: {reason}\n")
    print(f"skipped: python: {reason}", file=sys.stderr)
    pytest.skip(reason, allow_module_level=True)


def used() -> tuple[int, int]:
    """Returns the number of descriptors of this process, and of mappings of channels."""
    gc.collect()
    with open("/proc/self/maps") as maps:
        return len(os.listdir("/proc/self/fd")), sum("thalweg" in line for line in maps)


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A path for a channel."""
    return str(tmp_path / "here")


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest, place: str) -> Callable[[Test], None]:
    """Runs a test in an event loop, with a time limit."""

    def begin(test: Test) -> None:
        async def within() -> None:
            with anyio.fail_after(PATIENCE):
                await test(place)

        anyio.run(within, backend=request.param)

    return begin
