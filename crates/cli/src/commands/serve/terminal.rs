//! Detects whether the terminal that started the server has hung up.

use rustix::{
    fs::{Mode, OFlags, open},
    termios::isatty,
};
use std::io::{stderr, stdin, stdout};

/// The terminals of this process at one moment.
pub struct Terminal {
    /// `true` if the process has a controlling terminal. This terminal sends SIGHUP even if no standard descriptor is a
    /// terminal.
    controls: bool,
    stdio: [bool; 3],
}

impl Terminal {
    pub fn now() -> Self {
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        let stdio = [isatty(stdin()), isatty(stdout()), isatty(stderr())];
        Self { controls: open("/dev/tty", flags, Mode::empty()).is_ok(), stdio }
    }

    /// Returns `true` if one of these terminals has hung up. `isatty`, or opening `/dev/tty`, then fails.
    pub fn is_gone(&self) -> bool {
        let now = Self::now();
        let lost = |(had, has): (&bool, &bool)| *had && !*has;
        lost((&self.controls, &now.controls)) || self.stdio.iter().zip(&now.stdio).any(lost)
    }
}
