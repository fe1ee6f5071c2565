//! thalweg's channels: `job=ping-pong` and `job=stream` use two message rings, `job=bulk` the bulk
//! arms.
//!
//! wait=spin|hybrid|block   method of waiting for the other end
//! arm=auto|NAME            bulk: the arm; auto chooses, as `thalweg send` does
//! knobs=NAME:VALUE,...     bulk: knobs of the named arm
//! profile=1|0              bulk: auto uses the profile of this machine, if it exists
#![forbid(unsafe_code)]

use std::ops::Deref;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use thalweg_channel::bulk::{self, Destination, Loan, Receiver, Sender};
use thalweg_channel::{Address, Consumer, Error, Link, Listener, Options, Producer, Wait};
use thalweg_core::{Profile, Tuning};
use thalweg_peers::words::{Job, PATIENCE, Setting, Side, retry};
use thalweg_peers::{Outcome, Way, main_of};

/// The profile of this machine. Like a user's sender, this treats a missing or invalid profile as
/// none.
static PROFILE: OnceLock<Option<Arc<Profile>>> = OnceLock::new();

fn main() -> ExitCode {
    // Reads the profile before this process is pinned, because a profile is valid only for the set
    // of processors that the process may use.
    PROFILE.get_or_init(|| bulk::saved_profile().ok().map(Arc::new));
    main_of(&["wait", "arm", "knobs", "profile"], |setting, side| {
        let waits = [Wait::HYBRID, Wait::Spin, Wait::Block];
        let wait = waits[setting.choice("wait", &["hybrid", "spin", "block"])?];
        match setting.job {
            Job::PingPong | Job::Stream => Ok(Box::new(Rings::meet(setting, side, wait)?)),
            Job::Bulk => Ok(Box::new(Bulk::meet(setting, side, wait)?)),
        }
    })
}

fn words(error: Error) -> String {
    error.to_string()
}

/// Opens N links.
fn links<const N: usize>(setting: &Setting, side: Side) -> Outcome<[Link; N]> {
    let address = Address::at(setting.scratch.join("link"));
    let mut links = Vec::new();
    match side {
        Side::Sender => {
            let listener = Listener::bind(&address).map_err(words)?;
            for _ in 0..N {
                let link = listener.accept_until(Some(Instant::now() + PATIENCE));
                links.push(link.map_err(words)?);
            }
        }
        Side::Receiver => {
            for _ in 0..N {
                links.push(retry("connect", || Link::connect(&address))?);
            }
        }
    }
    links.try_into().map_err(|_| "too few links".to_owned())
}

/// One ring in each direction.
struct Rings {
    producer: Producer,
    consumer: Consumer,
}

impl Rings {
    fn meet(setting: &Setting, side: Side, wait: Wait) -> Outcome<Self> {
        let [there, back] = links(setting, side)?;
        // The default capacity is 1 MiB, as much as Aeron has in flight here. For large messages, adds 64 bytes for each, for
        // the frame's header and its rounding.
        let least = setting.depth() as u64 * (setting.bytes as u64 + 64);
        let options = Options { wait, ..Options::default() };
        let options = Options { capacity: options.capacity.max(least), ..options };
        let deadline = Some(Instant::now() + PATIENCE);
        let produce = |link| Producer::open_until(link, &options, deadline).map_err(words);
        let consume = |link| Consumer::open_until(link, &options, deadline).map_err(words);
        Ok(match side {
            Side::Sender => Self { producer: produce(there)?, consumer: consume(back)? },
            Side::Receiver => {
                let consumer = consume(there)?;
                Self { producer: produce(back)?, consumer }
            }
        })
    }
}

impl Way for Rings {
    fn send(&mut self, from: &[u8]) -> Outcome {
        self.producer.send(from).map_err(words)
    }

    fn receive(&mut self, into: &mut [u8]) -> Outcome {
        let sample = self.consumer.receive().map_err(words)?;
        if sample.len() != into.len() {
            return Err(format!("a message of {} bytes, not {}", sample.len(), into.len()));
        }
        into.copy_from_slice(&sample);
        Ok(())
    }
}

fn knobs(text: &str) -> Outcome<Tuning> {
    let mut tuning = Tuning::default();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let knob = word.split_once(':').and_then(|(name, value)| Some((name, value.parse().ok()?)));
        let (name, value) = knob.ok_or_else(|| format!("knobs: {word} is not NAME:VALUE"))?;
        tuning = tuning.with(name, value);
    }
    Ok(tuning)
}

/// One end of a bulk transfer.
enum Bulk {
    Sends { sender: Sender, loan: Option<Loan> },
    Receives(Receiver),
}

impl Bulk {
    fn meet(setting: &Setting, side: Side, wait: Wait) -> Outcome<Self> {
        let [link] = links(setting, side)?;
        let only = setting.text("arm").filter(|arm| *arm != "auto").map(str::to_owned);
        let with_profile = setting.choice("profile", &["1", "0"])? == 0;
        let measured = PROFILE.get().cloned().flatten().filter(|_| only.is_none() && with_profile);
        let destination = if setting.fresh { Destination::Fresh } else { Destination::Resident };
        let options = bulk::Options {
            only,
            tuning: knobs(setting.text("knobs").unwrap_or_default())?,
            measured,
            destination,
            will_loan: setting.loan,
            size: Some(setting.bytes as u64),
            wait,
            ..bulk::Options::default()
        };
        match side {
            Side::Sender => {
                let sender = Sender::over(link, options).map_err(words)?;
                Ok(Self::Sends { sender, loan: None })
            }
            Side::Receiver => Receiver::over(link, &options).map(Self::Receives).map_err(words),
        }
    }

    fn sender(&mut self) -> Outcome<(&mut Sender, &mut Option<Loan>)> {
        match self {
            Self::Sends { sender, loan } => Ok((sender, loan)),
            Self::Receives(_) => Err("B does not send".to_owned()),
        }
    }

    fn receiver(&mut self) -> Outcome<&mut Receiver> {
        match self {
            Self::Receives(receiver) => Ok(receiver),
            Self::Sends { .. } => Err("A does not receive".to_owned()),
        }
    }
}

impl Way for Bulk {
    // Needs no separate answer, because `send_from` returns when B has all bytes.
    fn send(&mut self, from: &[u8]) -> Outcome {
        self.sender()?.0.send_from(from).map_err(words)
    }

    fn receive(&mut self, into: &mut [u8]) -> Outcome {
        let got = self.receiver()?.recv_into(into).map_err(words)?;
        if got == into.len() { Ok(()) } else { Err(format!("{got} bytes, not {}", into.len())) }
    }

    fn hand(&mut self, from: &[u8]) -> Outcome {
        self.send(from)
    }

    fn take(&mut self, into: &mut [u8]) -> Outcome {
        self.receive(into)
    }

    fn take_new(&mut self) -> Outcome<Box<dyn Deref<Target = [u8]>>> {
        let made = self.receiver()?.recv_new().map_err(words)?;
        Ok(Box::new(made))
    }

    fn lent(&mut self, len: usize) -> Outcome<&mut [u8]> {
        let (sender, loan) = self.sender()?;
        let loan = match loan {
            Some(loan) => loan,
            none => none.insert(sender.alloc(len).map_err(words)?),
        };
        Ok(loan)
    }

    fn hand_lent(&mut self) -> Outcome {
        let (sender, loan) = self.sender()?;
        let lent = loan.take().ok_or("nothing was lent")?;
        *loan = sender.send_loan(lent).map_err(words)?;
        Ok(())
    }
}
