"""Rounds, ratios and intervals: `thalweg compare` makes them, here it is asked and its answer read."""

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
THALWEG = ROOT / "target" / "release" / "thalweg"


def asked(arms: dict[str, str], options: list[str]) -> dict:
    """The commands, each one text, by the names of their arms, in one comparison with the first."""
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


def ratio(figure: dict) -> float:
    """Against the first arm, which is 1 itself."""
    return figure["ratio"]["ratio"] if figure["ratio"] else 1.0


def text(figure: dict) -> str:
    """`0.86 [0.84, 0.88]`: the ratio and its 95 % interval."""
    if not figure["ratio"]:
        return "1"
    return "{ratio:.3f} [{lo:.3f}, {hi:.3f}]".format(**figure["ratio"])
