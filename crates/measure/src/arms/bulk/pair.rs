//! The pair of processes between which bulk transfers are measured: A is this process, B is the helper. All arms
//! (compared variants) with the same helper program and buffer size share both processes and A's memory.

use std::{
    cell::RefCell,
    path::PathBuf,
    rc::{Rc, Weak},
    time::Instant,
};
use thalweg_channel::{
    Address, Listener,
    bulk::{Options, Sender},
};
use thalweg_core::{Unfit, cadence::REACTION};
use thalweg_sys::map::Map;

use super::{
    PairJob,
    landing::{Residency, ordinary},
};
use crate::{
    arms::{content::ByteContent, far::Far},
    scratch::room_for,
};

/// Process A, and the connection to B.
pub struct ProcessPair {
    pub far: Far,
    listener: Listener,
    bytes: usize,
    source: Option<Map>,
    /// The position in the pattern at which the most recent content starts.
    at: u64,
    /// Number of senders that B has connected to.
    seats: u32,
}

/// The distance in the pattern between the starts of two successive contents. It is coprime to the period of the
/// pattern, so that contents repeat only after a long time.
const STEP: u64 = 8209;

/// The helper program, the buffer size, and the pair, which ends with the last arm that uses it.
type KnownPair = (PathBuf, usize, Weak<RefCell<ProcessPair>>);

thread_local! {
    /// The pairs of this thread's arms.
    static PAIRS: RefCell<Vec<KnownPair>> = const { RefCell::new(Vec::new()) };
}

/// Returns the pair for this helper program and buffer size, or starts a new one.
pub fn pair_of(job: &PairJob<'_>) -> Result<Rc<RefCell<ProcessPair>>, Unfit> {
    PAIRS.with_borrow_mut(|pairs| {
        pairs.retain(|(.., pair)| pair.strong_count() > 0);
        let same = |(program, len, _): &&KnownPair| program == job.program && *len == job.bytes;
        if let Some(pair) = pairs.iter().find(same).and_then(|(.., pair)| pair.upgrade()) {
            return Ok(pair);
        }
        let pair = Rc::new(RefCell::new(ProcessPair::start(job)?));
        pairs.push((job.program.to_owned(), job.bytes, Rc::downgrade(&pair)));
        Ok(pair)
    })
}

impl ProcessPair {
    fn start(job: &PairJob<'_>) -> Result<Self, Unfit> {
        let bytes = job.bytes;
        let path = job.scratch.join("bulk");
        let failed = |what: &str| Unfit::because(format!("{}: {what}", path.display()));
        let listener = Listener::bind(&Address::at(&path)).map_err(|e| failed(&e.to_string()))?;
        let name = path.to_str().ok_or_else(|| failed("not UTF-8"))?;
        let mut far = Far::start(job.program, "bulk", &[name, &bytes.to_string()])?;
        far.hear_only("ready")?;
        Ok(Self { far, listener, bytes, source: None, at: 0, seats: 0 })
    }

    /// Creates a sender to a receiver in process B. Returns the sender and B's number of the receiver.
    pub fn join(
        &mut self,
        residency: Residency,
        reads: bool,
        options: Options,
    ) -> Result<(Sender, u32), Unfit> {
        self.far.say(&format!("join {} {}", residency.name(), u8::from(reads)))?;
        self.far.hear_only("called")?;
        let unfit = |error: thalweg_channel::Error| Unfit::because(error.to_string());
        let deadline = Some(Instant::now() + REACTION);
        let link = loop {
            let link = self.listener.accept_until(deadline).map_err(unfit)?;
            // Another process of this user may connect. The helper's own connection waits meanwhile.
            if link.peer().pid == self.far.id() {
                break link;
            }
        };
        let seat = self.seats;
        self.seats += 1;
        let met = Sender::over(link, options).map_err(unfit);
        // Reads the helper's answer even if the sender failed; otherwise the next command would read it. The sender's
        // error is returned first.
        let answer = self.far.hear_only("ready");
        let sender = met?;
        answer.map(|()| (sender, seat))
    }

    /// Allocates A's memory. Returns an error if an operation might use up the machine's memory.
    pub fn make_room(&mut self) -> Result<(), Unfit> {
        // A's memory, B's memory, and the buffers between them.
        room_for(self.bytes.saturating_mul(3)).map_err(Unfit::because)?;
        if self.source.is_none() {
            let made = ordinary(self.bytes);
            let failed = |e| Unfit::because(format!("cannot allocate {} bytes: {e}", self.bytes));
            self.source = Some(made.map_err(failed)?);
            let at = self.next_content();
            self.fill_source(at);
        }
        Ok(())
    }

    /// Returns the position in the pattern of content that neither process has yet.
    pub fn next_content(&mut self) -> u64 {
        self.at += STEP;
        self.at
    }

    /// Overwrites the memory of process A with content.
    pub fn fill_source(&mut self, at: u64) {
        ByteContent::Pattern.fill(at, self.source_mut());
    }

    pub fn source(&self) -> &[u8] {
        self.source.as_ref().and_then(Map::bytes).unwrap_or_default()
    }

    /// Returns A's memory for writing.
    pub fn source_mut(&mut self) -> &mut [u8] {
        self.source.as_mut().and_then(Map::bytes_mut).unwrap_or_default()
    }

    /// Returns `None` if the bytes that B verified are correct, otherwise the position of the first wrong byte.
    pub fn verdict(&mut self) -> Result<Option<String>, Unfit> {
        let line = self.far.hear()?;
        match line.strip_prefix("wrong ") {
            None if line == "same" => Ok(None),
            None => Err(self.far.odd(&format!("{line:?}"))),
            place => Ok(place.map(str::to_owned)),
        }
    }

    pub fn look_again(&mut self, at: u64) -> Result<Option<String>, Unfit> {
        self.far.say(&format!("again {at}"))?;
        self.verdict()
    }
}
