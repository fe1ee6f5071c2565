"""The command `thalweg`: the program itself, in the place of this process."""

import os
import signal
import sys
from typing import NoReturn

from thalweg._commands import PROGRAM


def main() -> NoReturn:
    """Becomes the command, with the arguments and signals that this process was started with."""
    # Python ignores these for itself, and what is ignored stays so in another program.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    sys.stdout.flush()
    try:
        os.execv(PROGRAM, ["thalweg", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"thalweg: cannot start {PROGRAM}: {error.strerror}")


if __name__ == "__main__":
    main()
