//! A receiver that listens: it accepts the first valid sender and refuses all other processes.

use super::choose::Options;
use super::handshake::error_of;
use super::receiver::Receiver;
use crate::error::{Error, Result};
use crate::link::{Link, Listener};
use crate::shared::stop::WaitStop;
use crate::shared::wait::WaitLimits;
use std::time::Instant;
use thalweg_core::cadence::REACTION;

impl Receiver {
    /// Waits for the first valid sender. Refuses a process that is silent for [`Listener::PATIENCE`], disconnects,
    /// violates the format, or wants to receive too. For each refused process, calls `refused` with its process id and
    /// closes its link.
    ///
    /// Returns [`Error::Timeout`] at the deadline, [`Error::NotPermitted`] if no mechanism works with a sender, and
    /// [`Error::System`] with EINTR if `options.stop` returns `true`.
    pub fn accept(
        listener: &Listener,
        options: &Options,
        deadline: Option<Instant>,
        refused: &mut dyn FnMut(u32, &Error),
    ) -> Result<Self> {
        let limits = WaitLimits { deadline, stop: options.stop };
        loop {
            limits.check().map_err(|stop| error_of(stop, 0))?;
            let soon = limits.left().and_then(|left| Instant::now().checked_add(left));
            let link = match listener.accept_until(soon) {
                Ok(link) => link,
                Err(Error::Timeout | Error::NotPermitted { .. }) => continue,
                Err(error) => return Err(error),
            };
            let process = link.peer().pid;
            match Self::of_visitor(link, options, limits) {
                Ok(receiver) => return Ok(receiver),
                Err(
                    stop @ (WaitStop::Interrupted
                    | WaitStop::Refused(_)
                    | WaitStop::Failed(Error::System { .. })),
                ) => {
                    return Err(error_of(stop, 0));
                }
                Err(stop) => refused(process, &error_of(stop, 0)),
            }
        }
    }

    fn of_visitor(
        link: Link,
        options: &Options,
        limits: WaitLimits,
    ) -> std::result::Result<Self, WaitStop> {
        let within = |patience| {
            let end = Instant::now() + patience;
            WaitLimits {
                deadline: Some(limits.deadline.map_or(end, |deadline| deadline.min(end))),
                ..limits
            }
        };
        let silent = within(Listener::PATIENCE);
        while !link.has_message() {
            silent.check()?;
            link.await_news(silent.left())?;
        }
        Self::agreed(link, options, within(REACTION).deadline)
    }
}
