"""The command `thalweg`. Replaces this process by the program."""

import os
import signal
import sys
from typing import NoReturn

from thalweg._commands import PROGRAM


def main() -> NoReturn:
    """Executes the command with the arguments and signal dispositions of this process."""
    # Python ignores these signals, and exec would keep them ignored, so this restores the default.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    sys.stdout.flush()
    try:
        os.execv(PROGRAM, ["thalweg", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"thalweg: cannot start {PROGRAM}: {error.strerror}")


if __name__ == "__main__":
    main()
