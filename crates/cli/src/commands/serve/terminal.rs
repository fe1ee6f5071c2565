//! Detects whether the terminal that started the server has hung up.

use rustix::{
    fs::{Mode, OFlags, open},
    termios::isatty,
};
use std::io::{stderr, stdin, stdout};

/// The terminals at the start of the server.
pub struct Terminal {
    /// `true` if the process has a controlling terminal. It sends signals even if none of the three standard
    /// descriptors is a terminal.
    controls: bool,
    stdio: [bool; 3],
}

impl Terminal {
    pub fn now() -> Self {
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        let stdio = [isatty(stdin()), isatty(stdout()), isatty(stderr())];
        Self { controls: open("/dev/tty", flags, Mode::empty()).is_ok(), stdio }
    }

    /// Returns `true` if any terminal has hung up: `isatty` fails after that.
    pub fn is_gone(&self) -> bool {
        let now = Self::now();
        let lost = |(had, has): (&bool, &bool)| *had && !*has;
        lost((&self.controls, &now.controls)) || self.stdio.iter().zip(&now.stdio).any(lost)
    }
}
