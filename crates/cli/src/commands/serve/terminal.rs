//! The terminal that a server was started from, and whether it is gone.

use rustix::{
    fs::{Mode, OFlags, open},
    termios::isatty,
};
use std::io::{stderr, stdin, stdout};

/// What was a terminal when the server began.
pub struct Terminal {
    /// The one that signals come from, wherever the three descriptors lead.
    controls: bool,
    stdio: [bool; 3],
}

impl Terminal {
    pub fn now() -> Self {
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        let stdio = [isatty(stdin()), isatty(stdout()), isatty(stderr())];
        Self { controls: open("/dev/tty", flags, Mode::empty()).is_ok(), stdio }
    }

    /// Any of it: a terminal that has hung up is none any more.
    pub fn is_gone(&self) -> bool {
        let now = Self::now();
        let lost = |(had, has): (&bool, &bool)| *had && !*has;
        lost((&self.controls, &now.controls)) || self.stdio.iter().zip(&now.stdio).any(lost)
    }
}
