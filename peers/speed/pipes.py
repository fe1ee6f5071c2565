"""Rows of pipes and of short commands."""

from pathlib import Path

from lab import KIB, MIB, GIB, ROOT, Lab, missing, nothing, random_file, same_bytes, same_file
from measure import Failed, command, pipeline
from places import new_directory
from row import Plan, Variant, row

SHORT, PIPES = "Short commands", "Pipes"
STABLE, SHARED = "stable", "later writes to the file show"
# Runs of a short command in one sample.
REPEAT = 200


def repeat(lab: Lab) -> int:
    return 10 if lab.smoke else REPEAT


def no_check(_: Path, __: Variant) -> None:
    pass


@row("copy-4k", "4 KiB to a new file, the whole command, tmpfs", SHORT)
def copy_4k(lab: Lab) -> Plan:
    base = lab.directory(lab.memory, "row")
    source, count = random_file(base / "source", 4 * KIB), repeat(lab)
    variants = [
        Variant("cp", command("cp", source, "{}/{#}", repeat=count)),
        Variant("thalweg copy", command(lab.thalweg, "copy", source, "{}/{#}", repeat=count), "appears when complete", ours=True),
    ]

    def check(at: Path, _: Variant) -> None:
        for number in range(count):
            same_bytes(source, at / str(number))

    return Plan(variants, lambda: new_directory(base / "sample"), check, "bytes of every copy", [f"a sample is {count} commands"])


@row("pipe-4k", "4 KiB from a file to a file, the whole command", SHORT)
def pipe_4k(lab: Lab) -> Plan:
    base = lab.directory(lab.memory, "row")
    source, count = random_file(base / "source", 4 * KIB), repeat(lab)
    words = lambda *program: pipeline(program, ["cat"], stdin=str(source), stdout="{}/copy", repeat=count)  # noqa: E731
    variants = [
        Variant("cat", words("cat"), STABLE),
        Variant("thalweg pipe", words(lab.thalweg, "pipe"), STABLE, ours=True),
    ]
    return Plan(variants, lambda: new_directory(base / "sample"), lambda at, _: same_file(source, at / "copy"), "cmp",
                [f"a sample is {count} pipelines `VARIANT | cat`"])


@row("version", "--version", SHORT)
def version(lab: Lab) -> Plan:
    base, count = lab.directory(lab.memory, "row"), repeat(lab)
    variants = [
        Variant("cp --version", command("cp", "--version", repeat=count)),
        Variant("thalweg --version", command(lab.thalweg, "--version", repeat=count), ours=True),
    ]
    return Plan(variants, lambda: nothing(base), no_check, "exit status", [f"a sample is {count} commands"])


def proved(lab: Lab, variants: dict[str, list], source: Path, before: list[list]) -> None:
    """Checks once, by `cmp` at the end of the pipeline, that every variant passes the bytes on unchanged."""
    for name, words in variants.items():
        steps = [*before, words, ["cmp", "-", source]]
        try:
            pipeline(*steps, stdin=str(source))(lab.memory)
        except Failed as error:
            raise Failed(f"{name} delivers other bytes: {error}") from error


def reader_row(lab: Lab, size: int, programs: dict[str, tuple[list, str, bool]], before: list[list], notes: list[str]) -> Plan:
    """Plans pipelines that end in a reader, which counts the bytes. `programs` maps a name to the words, the guarantee, and whether
    the program is thalweg."""
    base = lab.directory(lab.memory, "row")
    source = random_file(base / "source", size)
    reader = lab.compile(ROOT / "peers/reader.c")
    needs = {"pv": ("pv",)}
    variants = [
        Variant(name, pipeline(*before, words, [reader, size], stdin=str(source)), guarantee, needs.get(words[0], ()), ours,
                ("pv",) if guarantee == SHARED and ours and "pv" in programs else ())
        for name, (words, guarantee, ours) in programs.items()
    ]
    installed = {name: words for name, (words, _, _) in programs.items() if not needs.get(words[0]) or not missing(words[0])}
    proved(lab, installed, source, before)
    return Plan(variants, lambda: nothing(base), no_check, "cmp once, then the count of bytes", notes)


@row("file-to-pipe", "1 GiB from a file, through a pipe to a reader", PIPES)
def file_to_pipe(lab: Lab) -> Plan:
    programs = {
        "cat": (["cat"], STABLE, False),
        "pv": (["pv", "-q"], SHARED, False),
        "thalweg pipe": ([lab.thalweg, "pipe"], STABLE, True),
        "thalweg pipe --zero-copy": ([lab.thalweg, "pipe", "--zero-copy"], SHARED, True),
    }
    return reader_row(lab, lab.size(GIB), programs, [], [])


@row("middle", "1 GiB in the middle of a pipeline, head to reader", PIPES)
def middle(lab: Lab) -> Plan:
    size = lab.size(GIB)
    programs = {
        "cat": (["cat"], STABLE, False),
        "pv": (["pv", "-q"], "no copy between pipes", False),
        "thalweg pipe": ([lab.thalweg, "pipe"], "no copy between pipes", True),
    }
    return reader_row(lab, size, programs, [["head", "-c", size]], [f"`head -c {size} | VARIANT | reader`"])


@row("zeros", "16 GiB from /dev/zero to /dev/null", PIPES)
def zeros(lab: Lab) -> Plan:
    base, size = lab.directory(lab.memory, "row"), lab.size(16 * GIB)
    variants = [
        Variant(f"dd bs={name}", command("dd", "if=/dev/zero", "of=/dev/null", f"bs={block}", f"count={size // block}", "status=none"))
        for name, block in (("256K", 256 * KIB), ("128K", 128 * KIB), ("1M", MIB))
    ]
    ours = command(lab.thalweg, "pipe", "-q", "--size", size, "--stop-at-size", stdin="/dev/zero", stdout="/dev/null")
    variants.append(Variant("thalweg pipe", ours, ours=True))
    return Plan(variants, lambda: nothing(base), no_check, "exit status")
