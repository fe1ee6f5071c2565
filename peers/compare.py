"""Runs `thalweg compare` for rounds, ratios and intervals, and parses its answer."""

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
THALWEG = Path(os.environ.get("THALWEG") or ROOT / "target" / "release" / "thalweg")


def asked(arms: dict[str, str], options: list[str]) -> dict:
    """Compares the commands of all arms with the first one. `arms` maps the name of each arm to its
    command line."""
    if not THALWEG.exists():
        raise SystemExit("peers: run `make build` first")
    names = [word for name in arms for word in ("--name", name)]
    commands = [word for command in arms.values() for word in ("--", command)]
    argv = [str(THALWEG), "compare", *options, *names]
    ran = subprocess.run([*argv, "--json", *commands], stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"peers: thalweg compare ended with status {ran.returncode}")
    answer = json.loads(ran.stdout)
    for row in answer["rows"]:
        row["figures"] = {figure["metric"]: figure for figure in row["figures"]}
    return answer


def text(figure: dict) -> str:
    """Returns the ratio and its 95 % interval, as `0.86 [0.84, 0.88]`."""
    if not figure["ratio"]:
        return "1"
    return "{ratio:.3f} [{lo:.3f}, {hi:.3f}]".format(**figure["ratio"])
