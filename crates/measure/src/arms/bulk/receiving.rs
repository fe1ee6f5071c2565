//! The helper `bulk PATH BYTES`: the receiving process of bulk transfers. The sender listens at PATH, and every buffer
//! has BYTES bytes. The helper reads commands from stdin, one per line:
//!
//! - `join RESIDENCY READS` connects to another sender. Senders are numbered from 0. Answers `called`, then `ready`.
//! - `take NUMBER COUNT` receives COUNT buffers from sender NUMBER. Answers `go`, then `read` if READS is 1, then the
//!   cost.
//! - `look NUMBER AT` receives a buffer and compares it with the pattern from position AT. Answers `go`, then `same` or
//!   `wrong PLACE`.
//! - `again AT` repeats the comparison, to detect a later change of the buffer. Answers `same` or `wrong PLACE`.
//!
//! A command that fails answers `no REASON`.

use std::hint::black_box;
use thalweg_channel::{
    Address, Link,
    bulk::{Options, Receiver},
};

use super::landing::{DestinationMemory, Residency, read_through};
use crate::arms::content::{ByteContent, first_difference};
use crate::line::{Ledger, hear, number, say};

/// Runs until stdin is closed.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let [path, bytes] = arguments else {
        return Err(format!("arguments {arguments:?}: expected PATH BYTES"));
    };
    let bytes = bytes.parse().map_err(|_| format!("BYTES {bytes:?} is not a number"))?;
    let landings = Residency::ALL.map(|residency| DestinationMemory::new(residency, bytes));
    let address = Address::at(path);
    let mut bench = ReceiverBench { address, bytes, landings, seats: Vec::new(), looked: None };
    say("ready")?;
    while let Some(words) = hear()? {
        if let Err(reason) = bench.obey(&words)? {
            say(&format!("no {}", reason.replace('\n', " ")))?;
        }
    }
    Ok(())
}

/// The result of a command, as reported to the sender's process. After an error, that process may try another
/// mechanism.
type SenderAnswer = Result<(), String>;

struct ReceiverBench {
    address: Address,
    bytes: usize,
    /// The destination memory for each value of [`Residency::ALL`], in that order. All senders share it.
    landings: [DestinationMemory; 3],
    seats: Vec<ReceiverSeat>,
    /// The index in `landings` of the buffer that was verified last.
    looked: Option<usize>,
}

/// The receiving end for one sender. `receiver` is `None` if opening it failed.
struct ReceiverSeat {
    receiver: Option<Receiver>,
    landing: usize,
    reads: bool,
}

impl ReceiverBench {
    /// Executes a command. An outer error ends this process: the command is invalid, or the parent cannot be reached.
    fn obey(&mut self, words: &[String]) -> Result<SenderAnswer, String> {
        match words.first().map_or("", String::as_str) {
            "join" => self.join(words),
            "take" => {
                let (seat, count) = (number(words, 1)? as usize, number(words, 2)? as u32);
                self.take(seat, count)
            }
            "look" => self.look(number(words, 1)? as usize, number(words, 2)?),
            "again" => {
                let landing =
                    self.looked.take().ok_or("the command `again` requires an earlier `look`")?;
                self.compare(landing, number(words, 1)?)?;
                self.landings[landing].clear();
                Ok(Ok(()))
            }
            other => Err(format!("unknown command {other:?}: expected join, take, look or again")),
        }
    }

    fn join(&mut self, words: &[String]) -> Result<SenderAnswer, String> {
        let name = words.get(1).map_or("", String::as_str);
        let landing = Residency::ALL.iter().position(|residency| residency.name() == name);
        let landing = landing.ok_or_else(|| format!("unknown residency {name:?}"))?;
        let reads = number(words, 2)? != 0;
        let link = match Link::connect(&self.address) {
            Ok(link) => link,
            Err(error) => return Ok(Err(error.to_string())),
        };
        say("called")?;
        let destination = Residency::ALL[landing].destination();
        let options = Options { destination, size: Some(self.bytes as u64), ..Options::default() };
        let met = Receiver::over(link, &options).map_err(|error| error.to_string());
        let (receiver, answer) = match met {
            Ok(receiver) => (Some(receiver), say("ready").map(Ok)),
            Err(reason) => (None, Ok(Err(reason))),
        };
        self.seats.push(ReceiverSeat { receiver, landing, reads });
        answer
    }

    fn take(&mut self, seat: usize, count: u32) -> Result<SenderAnswer, String> {
        let landing = self.landing_of(seat)?;
        if let Err(reason) = self.landings[landing].prepare(count) {
            return Ok(Err(reason));
        }
        say("go")?;
        let ledger = Ledger::open();
        let received = self.receive(seat, count);
        let reads = received.is_ok() && self.seats[seat].reads;
        if reads {
            say("read")?;
        }
        let cost = ledger.close();
        // Cleared before the answer, so that freeing new memory does not affect the next sample.
        self.landings[landing].clear();
        Ok(match received {
            Ok(()) => say(&cost).map(Ok)?,
            Err(reason) => Err(reason),
        })
    }

    fn look(&mut self, seat: usize, at: u64) -> Result<SenderAnswer, String> {
        let landing = self.landing_of(seat)?;
        if let Err(reason) = self.landings[landing].prepare(1) {
            return Ok(Err(reason));
        }
        say("go")?;
        if let Err(reason) = self.receive(seat, 1) {
            self.landings[landing].clear();
            return Ok(Err(reason));
        }
        self.looked = Some(landing);
        self.compare(landing, at).map(Ok)
    }

    fn compare(&self, landing: usize, at: u64) -> Result<(), String> {
        let landed = self.landings[landing].landed(0);
        let found = first_difference(ByteContent::Pattern, at, landed);
        say(&found.map_or("same".to_owned(), |place| format!("wrong {place}")))
    }

    fn receive(&mut self, seat: usize, count: u32) -> SenderAnswer {
        let ReceiverSeat { receiver, landing, reads } = &mut self.seats[seat];
        let receiver = receiver.as_mut().ok_or("the sender never connected")?;
        let landing = &mut self.landings[*landing];
        for number in 0..count {
            let got = if let Some(place) = landing.destination(number) {
                receiver.recv_into(place).map_err(|error| error.to_string())?
            } else {
                let made = receiver.recv_new().map_err(|error| error.to_string())?;
                let len = made.len();
                landing.keep(made);
                len
            };
            if got != self.bytes {
                return Err(format!(
                    "received a buffer of {got} bytes instead of {} bytes",
                    self.bytes
                ));
            }
            if *reads {
                black_box(read_through(landing.landed(number)));
            }
        }
        Ok(())
    }

    fn landing_of(&self, seat: usize) -> Result<usize, String> {
        let seat = self.seats.get(seat).ok_or_else(|| format!("unknown sender {seat}"))?;
        Ok(seat.landing)
    }
}
