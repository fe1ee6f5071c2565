"""The conditions of a run: processor, caches, kernel, load, and the versions of all programs."""

import os
import platform
import re
import subprocess
import time
from pathlib import Path

from lab import program

# Extensions that change how bytes are moved or hashed.
FLAGS = ("sse4_2", "avx", "avx2", "avx512f", "avx512vl", "amx_tile", "erms", "fsrm", "movdir64b", "sha_ni", "vaes", "gfni", "asimd", "sve", "sve2", "sha2", "hypervisor")
VERSIONS = {"cp": "--version", "cat": "--version", "dd": "--version", "rsync": "--version", "tar": "--version", "pv": "--version", "cpz": "--version",
            "b3sum": "--version", "sha256sum": "--version", "xxhsum": "--version", "curl": "--version", "aria2c": "--version", "nginx": "-v", "ssh": "-V",
            "xcp": "--version", "rclone": "--version", "unison": "-version"}


def fields(text: str) -> dict[str, str]:
    """Reads the lines `NAME : VALUE` of the first processor."""
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.split("\n\n")[0].splitlines())}


def caches() -> dict[str, str]:
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        found[f"L{level} {kind.lower()}"] = size
    return found


def version(name: str, flag: str) -> str | None:
    path = program(name)
    if not path:
        return None
    ran = subprocess.run([path, flag], capture_output=True, text=True, check=False)
    return next(iter((ran.stdout + ran.stderr).splitlines()), "")


def conditions(thalweg: str, before: str, command: list[str], places: dict[str, Path]) -> dict:
    """Describes the machine before the first row."""
    cpu = fields(Path("/proc/cpuinfo").read_text())
    present = set(cpu.get("flags", cpu.get("Features", "")).split())
    control = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": command,
        "cpu": cpu.get("model name", platform.machine()),
        "family": cpu.get("cpu family", cpu.get("CPU implementer", "")), "model": cpu.get("model", cpu.get("CPU part", "")),
        "stepping": cpu.get("stepping", cpu.get("CPU revision", "")),
        "flags": [flag for flag in FLAGS if flag in present],
        "cores": os.cpu_count(), "caches": caches(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": os.uname().release,
        "congestion_control": control.read_text().strip() if control.exists() else None,
        "load_before": [round(value, 2) for value in os.getloadavg()],
        "file_systems": {name: file_system(path) for name, path in places.items()},
        "versions": {"thalweg": build(thalweg), "thalweg before": before and build(before)} | {name: version(name, flag) for name, flag in VERSIONS.items()},
        "thalweg_commit": commit(),
    }


def build(thalweg: str) -> str:
    """Returns the version, and whether the program is static, as from `make programs`. A program with a loader starts more slowly."""
    with open(thalweg, "rb") as file:
        has_loader = b"/ld-linux" in file.read(4096)
    return f"{version(thalweg, '--version')}, {'with a loader' if has_loader else 'static'}"


def commit() -> str | None:
    ran = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return ran.stdout.strip() or None


def file_system(path: Path) -> str:
    ran = subprocess.run(["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True, check=False)
    return ran.stdout.strip()


def slug(found: dict) -> str:
    """Returns the name of the machine for a file: model, family and number of the processor."""
    name = re.sub(r"\((r|tm)\)|\b(processor|cpu)\b|@.*", " ", found["cpu"], flags=re.I)
    return re.sub(r"[^a-z0-9]+", "-", f"{name} {found['family']} {found['model']}".lower()).strip("-")
