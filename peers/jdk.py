"""Finds the JDK that the Java module needs."""

import os
from pathlib import Path

LEAST = 25


def find() -> Path | None:
    """Returns the first JDK that is new enough, from JAVA_HOME or /usr/lib/jvm."""
    places = [Path(os.environ["JAVA_HOME"])] if "JAVA_HOME" in os.environ else []
    for home in places + sorted(Path("/usr/lib/jvm").glob("*")):
        release = home / "release"
        if release.exists() and (home / "bin/javac").exists():
            version = release.read_text().split('JAVA_VERSION="')[1].split('"')[0]
            if int(version.split(".")[0]) >= LEAST:
                return home
    return None
