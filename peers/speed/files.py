"""Rows of files and trees on one machine."""

import os
from pathlib import Path

from lab import KIB, MIB, Lab, missing, need, nothing, quiet, random_file, same_file, same_tree, small_sizes, tree
from measure import Failed, command, pipeline
from places import Place, image_size, new_directory, on_ext4, on_tmpfs
from row import Plan, Skip, Variant, row

SECTION = "Files and trees"
MODES, TIMES, PUBLISHED = "modes", "modes, times", "appears when complete"


def big_file(lab: Lab, make_place) -> Plan:
    size = lab.size(512 * MIB)
    place: Place = make_place(lab, lambda at: random_file(at / "source", size), image_size(size))
    variants = [
        Variant("cp", command("cp", place.source, "{}/copy")),
        Variant("xcp", command("xcp", "--no-progress", place.source, "{}/copy"), TIMES, needs=("xcp",)),
        Variant("thalweg copy", command(lab.thalweg, "copy", place.source, "{}/copy"), PUBLISHED, ours=True),
    ]
    return Plan(variants, place.fresh, lambda at, _: same_file(place.original(at), at / "copy"), "cmp", place.notes)


@row("copy-tmpfs", "One file of 512 MiB, tmpfs", SECTION)
def copy_tmpfs(lab: Lab) -> Plan:
    return big_file(lab, on_tmpfs)


@row("copy-ext4", "One file of 512 MiB, ext4", SECTION)
def copy_ext4(lab: Lab) -> Plan:
    return big_file(lab, on_ext4)


def copies(lab: Lab, place: Place) -> Plan:
    """Compares tools that copy the directory `source` recursively."""
    variants = [
        Variant("cp -r", command("cp", "-r", place.source, "{}/copy"), MODES),
        Variant("xcp -r", command("xcp", "--no-progress", "-r", place.source, "{}/copy"), TIMES, needs=("xcp",)),
        Variant("cpz", command("cpz", place.source, "{}/copy"), MODES, needs=("cpz",)),
        Variant("thalweg copy -r", command(lab.thalweg, "copy", "-r", place.source, "{}/copy"), f"{MODES}; {PUBLISHED}", ours=True),
    ]
    return Plan(variants, place.fresh, lambda at, _: same_tree(place.original(at), at / "copy"), "diff -r", place.notes)


def small_files(lab: Lab, make_place) -> Plan:
    count = lab.count(10_000)
    return copies(lab, make_place(lab, lambda at: tree(at / "source", count, small_sizes), image_size(count * 16 * KIB)))


@row("small-tmpfs", "10,000 files of 100 B to 16 KiB, tmpfs", SECTION)
def small_tmpfs(lab: Lab) -> Plan:
    return small_files(lab, on_tmpfs)


@row("small-ext4", "10,000 files of 100 B to 16 KiB, ext4", SECTION)
def small_ext4(lab: Lab) -> Plan:
    return small_files(lab, on_ext4)


@row("many-tmpfs", "100,000 files of 1 KiB, tmpfs", SECTION)
def many_tmpfs(lab: Lab) -> Plan:
    count = lab.count(100_000)
    return copies(lab, on_tmpfs(lab, lambda at: tree(at / "source", count, lambda _: 1 * KIB)))


@row("usr-share", "/usr/share with all attributes to tmpfs", SECTION)
def usr_share(lab: Lab) -> Plan:
    source = Path("/usr/share/dict" if lab.smoke and Path("/usr/share/dict").is_dir() else "/usr/share")
    if lab.smoke and source == Path("/usr/share"):
        source = Path("/usr/share/perl5")
    if not source.is_dir():
        raise Skip(f"{source} does not exist")
    base = lab.directory(lab.memory, "row")
    # The directory of the sample exists, so that tar can extract into it. Every tool copies to an entry `name` there.
    name = source.name
    tar = pipeline(["tar", "-C", source.parent, "-cf", "-", name], ["tar", "-C", "{}", "-xpf", "-"])
    variants = [
        Variant("cp -a", command("cp", "-a", source, "{}"), "all attributes"),
        Variant("tar", tar, "modes, times, owners, hard links"),
        Variant("rsync -a", command("rsync", "-a", source, "{}"), "times, owners", needs=("rsync",)),
        Variant("rsync -aHAX", command("rsync", "-aHAX", source, "{}"), "all attributes", needs=("rsync",)),
        Variant("thalweg copy -a", command(lab.thalweg, "copy", "-a", source, "{}"), f"all attributes; {PUBLISHED}", ours=True),
        Variant("thalweg sync", command(lab.thalweg, "sync", source, f"{{}}/{name}"), f"all attributes; {PUBLISHED}", ours=True),
    ]
    notes = [] if not lab.smoke else [f"{source} instead"]
    return Plan(variants, lambda: new_directory(base / "sample"), lambda at, _: same_tree(source, at / name), "diff -r", notes)


@row("verify", "10,000 files, 1 GiB, compared with their source, tmpfs", SECTION)
def verify(lab: Lab) -> Plan:
    base = lab.directory(lab.memory, "row")
    source = tree(base / "source", lab.count(10_000), lambda rng: rng.randint(1, 2 * 100 * KIB))
    copy = base / "copy"
    quiet("cp", "-a", source, copy)
    variants = [
        Variant("diff -rq", command("diff", "-rq", source, copy), "bytes"),
        Variant("rclone check", command("rclone", "check", "-q", "--download", source, copy), "bytes", needs=("rclone",)),
        Variant("thalweg verify", command(lab.thalweg, "verify", source, copy), "bytes", ours=True),
    ]
    sees_one_byte(copy / "directory-000/file-0000", [one for one in variants if not any(map(missing, one.needs))])
    return Plan(variants, lambda: nothing(base), lambda *_: None, "exit status; every tool found one wrong byte before")


def sees_one_byte(file: Path, variants: list[Variant]) -> None:
    """Checks that every tool compares the bytes: it fails if one byte is wrong, and only then."""
    right, stat = file.read_bytes(), file.stat()
    for written, is_right in ((right[:-1] + bytes([right[-1] ^ 1]), False), (right, True)):
        file.write_bytes(written)
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        for variant in variants:
            try:
                variant.run(file.parent)
                passed = True
            except Failed:
                passed = False
            if passed != is_right:
                raise Failed(f"{variant.name}: one byte wrong: {not is_right}, passed: {passed}")


def manifest(lab: Lab, hash_name: str, tool: str, words: tuple[str, ...]) -> Plan:
    """Compares the hashes of a tree. Both lists must have the same lines."""
    need(tool)
    base = lab.directory(lab.memory, "row")
    source = tree(base / "source", lab.count(10_000), lambda rng: rng.randint(1, 2 * 100 * KIB))
    listed = quiet("find", ".", "-type", "f", "-printf", "%P\\0", cwd=source)
    (base / "names").write_text(listed)
    cores = os.cpu_count()
    batch = max(listed.count("\0") // (4 * cores), 1)
    # Each process writes to a separate file, because the writes of several processes to one file would split lines.
    to_file = 'exec "$@" >"$0/list-$$"'
    theirs = ["xargs", "-0", "-n", batch, "-P", cores, "sh", "-c", to_file, "{}", tool, *words]
    variants = [
        Variant(" ".join([tool, *words, f"-P{cores}"]), command(*theirs, stdin=str(base / "names"), directory=str(source))),
        Variant(f"thalweg manifest --hash {hash_name}", command(lab.thalweg, "manifest", "--hash", hash_name, "-o", "{}/list", source),
                "sorted", ours=True),
    ]
    expected: list[list[str]] = []

    def check(at: Path, variant: Variant) -> None:
        lines = sorted(line for file in at.iterdir() for line in file.read_text().splitlines())
        expected.append(lines)
        if lines != expected[0] or len(lines) != listed.count("\0"):
            raise Failed(f"{variant.name}: other hashes")

    return Plan(variants, lambda: new_directory(base / "sample"), check, "equal lists of hashes",
                [f"`xargs -P {cores}` runs the processes of {tool}, {batch} files each"])


@row("manifest-blake3", "BLAKE3 of 10,000 files, 1 GiB, tmpfs", SECTION)
def manifest_blake3(lab: Lab) -> Plan:
    return manifest(lab, "blake3", "b3sum", ())


@row("manifest-sha256", "SHA-256 of 10,000 files, 1 GiB, tmpfs", SECTION)
def manifest_sha256(lab: Lab) -> Plan:
    return manifest(lab, "sha256", "sha256sum", ())


@row("manifest-xxh3", "XXH3 of 10,000 files, 1 GiB, tmpfs", SECTION)
def manifest_xxh3(lab: Lab) -> Plan:
    return manifest(lab, "xxh3", "xxhsum", ("-H2",))
