//! The sending side of a transfer by open file.

use super::{OpenOffer, Pace, problem_of};
use crate::bulk::control_message::{ControlKind, ControlMessage};
use crate::bulk::files::opened::{WAY, looked_at};
use crate::bulk::files::{BYTES, FileTail, Handed, SO_FAR};
use crate::bulk::sender::Sender;
use crate::error::Result;
use crate::shared::stop::WaitStop;
use std::os::fd::BorrowedFd;

impl Sender {
    /// Returns `true` if the receiver may get this file as an open descriptor. `takes` is `true` if the receiver
    /// accepts one.
    pub(super) fn may_open(&mut self, file: BorrowedFd<'_>, takes: bool) -> bool {
        let distrust = self.distrust().map(|why| why.reason.clone());
        let refusal = match distrust {
            Some(why) => Some(why),
            None if !takes => Some("the receiver does not accept open files".to_owned()),
            None => looked_at(file).err(),
        };
        refusal.map(|why| self.skip(WAY, why)).is_none()
    }

    /// Passes the open file to the receiver.
    pub(super) fn send_open(
        &mut self,
        file: BorrowedFd<'_>,
        size: u64,
        pace: &mut Pace<'_>,
        handed: &mut Handed,
    ) -> Result<OpenOffer> {
        let packet = ControlMessage::new(ControlKind::File).words(&[size]);
        match self.control().send(&packet, &[file]) {
            Ok(()) => {}
            // A security module may forbid passing the descriptor. Then no message was sent.
            Err(WaitStop::Refused(why)) => {
                self.skip(WAY, why.reason);
                return Ok(OpenOffer::Refused);
            }
            Err(stop) => return Err(self.break_off(stop)),
        }
        self.send_from(&[])?;
        self.send_from(&FileTail::Open { bytes: size }.to_bytes())?;
        loop {
            let heard = self.heard()?;
            match (heard.kind, heard.word(0)) {
                (ControlKind::Answer, SO_FAR) => {
                    (pace.watch)(handed.bytes.saturating_add(heard.word(1).min(size)));
                }
                (ControlKind::Answer, BYTES) => {
                    self.skip(WAY, format!("rejected by the receiver: {}", heard.text));
                    return Ok(OpenOffer::Refused);
                }
                _ => {
                    let problem = problem_of(&heard).map_err(|stop| self.break_off(stop))?;
                    if problem.is_none() {
                        handed.bytes += size;
                        handed.from_open.add(size, heard.text);
                        (pace.watch)(handed.bytes);
                    }
                    return Ok(OpenOffer::Answered(problem));
                }
            }
        }
    }
}
