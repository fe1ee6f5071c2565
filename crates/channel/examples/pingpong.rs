//! Measures the round trip of a message to another process and back, over two rings. Run it on an idle machine. The other process may also
//! be the class `PingPong` in `java/src/test` (docs/reference/java.md).
//!
//! `cargo run --release -p thalweg-channel --example pingpong ping|pong DIR [spin|hybrid|block] [ROUNDS] [BATCHES] [BYTES]`
//!
//! `pong` listens, and answers until `ping` closes its ring. `ping` prints the nanoseconds of a round trip: the median, the minimum and the
//! maximum of the batches.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use thalweg_channel::{Address, Consumer, Link, Listener, Options, Producer, Wait};

/// Time limit for the other process to connect.
const PATIENCE: Duration = Duration::from_secs(60);

struct Told {
    rounds: u64,
    batches: usize,
    bytes: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize, default: &'static str| words.get(at).map_or(default, String::as_str);
    let wait = match word(2, "hybrid") {
        "spin" => Wait::Spin,
        "block" => Wait::Block,
        _ => Wait::HYBRID,
    };
    let options = Options { wait, ..Options::default() };
    let told = Told {
        rounds: word(3, "100000").parse()?,
        batches: word(4, "21").parse()?,
        bytes: word(5, "64").parse()?,
    };
    match (word(0, ""), words.get(1)) {
        ("ping", Some(place)) => ping(Path::new(place), &options, &told),
        ("pong", Some(place)) => pong(Path::new(place), &options),
        _ => {
            Err("usage: pingpong ping|pong DIR [spin|hybrid|block] [ROUNDS] [BATCHES] [BYTES]"
                .into())
        }
    }
}

fn ping(place: &Path, options: &Options, told: &Told) -> Result<(), Box<dyn Error>> {
    let mut there = Producer::open(join(&place.join("there"))?, options)?;
    let mut back = Consumer::open(join(&place.join("back"))?, options)?;
    let message = vec![7; told.bytes];
    let mut batch = || -> thalweg_channel::error::Result<f64> {
        let begin = Instant::now();
        for _ in 0..told.rounds {
            there.send(&message)?;
            let answer = back.receive()?;
            assert_eq!(answer.len(), message.len());
        }
        Ok(begin.elapsed().as_nanos() as f64 / told.rounds as f64)
    };
    // The first batches are not counted, because a JVM at the other end compiles its code during them.
    for _ in 0..5 {
        batch()?;
    }
    let mut times = (0..told.batches).map(|_| batch()).collect::<Result<Vec<_>, _>>()?;
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    println!("{median:.1} ns [{:.1}-{:.1}]", times[0], times[times.len() - 1]);
    Ok(())
}

/// Connects to the other process. Retries until that process listens.
fn join(path: &Path) -> thalweg_channel::error::Result<Link> {
    let end = Instant::now() + PATIENCE;
    loop {
        match Link::connect(&Address::at(path)) {
            Err(error) if error.is_absent() && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            answer => return answer,
        }
    }
}

fn pong(place: &Path, options: &Options) -> Result<(), Box<dyn Error>> {
    let there = Listener::bind(&Address::at(place.join("there")))?;
    let back = Listener::bind(&Address::at(place.join("back")))?;
    let until = Some(Instant::now() + PATIENCE);
    let mut there = Consumer::open(there.accept_until(until)?, options)?;
    let mut back = Producer::open(back.accept_until(until)?, options)?;
    loop {
        match there.receive() {
            Ok(message) => back.send(&message)?,
            Err(thalweg_channel::Error::Closed { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
