"""Builds a wheel out of the archive of sources that `make sdist` makes: the command first, then maturin's part around it.

`pip install --config-settings profile=dev` builds both faster, and slower ones.
"""

import pathlib
import subprocess

import maturin
from maturin import get_requires_for_build_wheel, prepare_metadata_for_build_wheel

__all__ = ["build_wheel", "get_requires_for_build_wheel", "prepare_metadata_for_build_wheel"]


def build_wheel(directory, settings=None, metadata=None):
    """The hook of PEP 517."""
    profile = (settings or {}).get("profile", "release")
    command = pathlib.Path(__file__).parents[1] / "command"
    subprocess.run([command, profile], check=True)
    return maturin.build_wheel(directory, {"build-args": f"--locked --profile {profile}"}, metadata)
