//! The receiving side of a transfer by open file.

use super::{Data, Watch};
use crate::bulk::control_message::{ControlKind, ControlMessage};
use crate::bulk::files::opened::{NotMoved, WAY, looked_at};
use crate::bulk::files::{BYTES, FileHead, Problem, SO_FAR, Sink};
use crate::bulk::receiver::Receiver;
use crate::error::{Error, Result};
use crate::shared::stop::WaitStop;
use rustix::fs::{Stat, fstat};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use thalweg_core::{Cancelled, changed::changed};

/// Minimum interval of progress reports to the sender. It is longer than
/// [`PROGRESS_FLUSH`](thalweg_core::cadence::PROGRESS_FLUSH), because each report is a message.
const PROGRESS_REPORT: Duration = Duration::from_millis(100);

impl Receiver {
    /// Copies a file that the sender has open. If that is not possible, asks the sender for the
    /// bytes and returns `None`.
    pub(super) fn recv_open(
        &mut self,
        head: &FileHead,
        sink: &mut dyn Sink,
        moved: &mut u64,
        watch: &mut Watch<'_>,
    ) -> Result<Option<Data>> {
        let got = self.control().message().map_err(|stop| self.stopped(stop))?;
        let size = head.announced.size.unwrap_or_default();
        let ([file], ControlKind::File, true) =
            (&got.fds[..], got.message.kind, got.message.word(0) == size)
        else {
            return Err(self.lost(Error::corrupt("the peer did not pass the announced file")));
        };
        let (mut stopped, mut told) = (None, Instant::now());
        let before = looked_at(file.as_fd());
        let outcome =
            before.as_ref().map_err(|why| NotMoved::Refused(why.clone())).and_then(|_| {
                let control = self.control();
                sink.move_open(file.as_fd(), size, &mut |now: u64| {
                    if let Err(stop) = control.check() {
                        stopped = Some(stop);
                        return Err(Cancelled);
                    }
                    watch(&head.announced, moved.saturating_add(now));
                    if told.elapsed() >= PROGRESS_REPORT {
                        told = Instant::now();
                        control.mention(
                            &ControlMessage::new(ControlKind::Answer).words(&[SO_FAR, now]),
                        );
                    }
                    Ok(())
                })
            });
        match (outcome, before) {
            (Ok(by), Ok(before)) => {
                // If the sender ended during the copy, report an error, as in a transfer of bytes.
                self.control().check().map_err(|stop| self.stopped(stop))?;
                *moved += size;
                watch(&head.announced, *moved);
                let after = fstat(file).map_err(Error::system("fstat"));
                let after = after.map_err(|error| self.lost(error))?;
                Ok(Some(match change(size, &before, &after) {
                    Some(why) => Data::Failed(Problem::GivenUp { why }),
                    None => Data::Moved(by),
                }))
            }
            (Err(NotMoved::Refused(why)), _) | (_, Err(why)) => {
                self.say(&ControlMessage::new(ControlKind::Answer).words(&[BYTES]).text(&*why))?;
                self.skip(WAY, why);
                Ok(None)
            }
            (Err(NotMoved::Failed(why)), _) => Ok(Some(Data::Failed(Problem::NotTaken { why }))),
            (Err(NotMoved::Stopped), _) => {
                Err(self.stopped(stopped.unwrap_or(WaitStop::Interrupted)))
            }
        }
    }
}

/// Returns a description of the change if the file changed during the copy or does not have the
/// announced size.
fn change(size: u64, before: &Stat, after: &Stat) -> Option<String> {
    let is_announced = u64::try_from(before.st_size) == Ok(size);
    if is_announced && !changed(before, after) {
        return None;
    }
    let now = after.st_size;
    Some(if u64::try_from(now) == Ok(size) {
        "the file changed during the copy".to_owned()
    } else {
        format!("the file changed during the copy: expected {size} bytes, but it has {now}")
    })
}
