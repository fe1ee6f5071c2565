"""Builds a wheel from the source archive of `make sdist`: first the command, then the wheel that contains it, with maturin.

`pip install --config-settings profile=dev` builds faster, but produces a slower package.
"""

import pathlib
import subprocess

import maturin
from maturin import get_requires_for_build_wheel, prepare_metadata_for_build_wheel

__all__ = ["build_wheel", "get_requires_for_build_wheel", "prepare_metadata_for_build_wheel"]


def build_wheel(directory, settings=None, metadata=None):
    """Implements build_wheel of PEP 517."""
    profile = (settings or {}).get("profile", "release")
    command = pathlib.Path(__file__).parents[1] / "command"
    subprocess.run([command, profile], check=True)
    return maturin.build_wheel(directory, {"build-args": f"--locked --profile {profile}"}, metadata)
