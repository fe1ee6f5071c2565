//! Exchanges between two programs, neither of which is in Rust.

use super::program::Language::{self, C, Java, Python};
use super::rust::{delays, how_many, ways};
use thalweg_testing::{Dice, sample_share};

const PAIRS: [[Language; 2]; 6] =
    [[C, C], [C, Java], [C, Python], [Java, Java], [Java, Python], [Python, Python]];

/// Returns every second pair of languages, at random the odd or the even ones. Each half contains all languages.
/// `THALWEG_SAMPLE=1` selects all pairs.
fn pairs(test: &str) -> impl Iterator<Item = [Language; 2]> {
    let step = sample_share(2) as usize;
    let first = Dice::new(test).within(0..step as u64) as usize;
    PAIRS
        .into_iter()
        .skip(first)
        .step_by(step)
        .filter(move |pair| pair.iter().all(|language| language.is_here(test)))
}

#[test]
fn every_pair_exchanges_messages() {
    for pair in pairs("every_pair_exchanges_messages") {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = pair;
        let directions = if one == other { vec![pair] } else { vec![pair, [other, one]] };
        for [sender, receiver] in directions {
            for (way, (_, words)) in ways().into_iter().enumerate() {
                let (count, listens) = (how_many(way), [words, &["listen"]].concat());
                eprintln!("{sender:?} to {receiver:?}, {words:?}");
                let (sender, receiver) = if way == 0 {
                    let receiver = receiver.start(folder.path(), "receive", 0, &listens);
                    (sender.start(folder.path(), "send", count, words), receiver)
                } else {
                    let sender = sender.start(folder.path(), "send", count, &listens);
                    (sender, receiver.start(folder.path(), "receive", 0, words))
                };
                sender.finish().assert("done", count);
                receiver.finish().assert("closed", count);
            }
        }
    }
}

#[test]
fn either_process_of_every_pair_gets_an_error_when_its_peer_is_killed() {
    for pair in pairs("either_process_of_every_pair_gets_an_error_when_its_peer_is_killed") {
        let folder = tempfile::tempdir().unwrap();
        // Four cases: each program is killed once as the sender and once as the receiver.
        for (n, delay) in delays(4).enumerate() {
            let [sender, receiver] = [pair, [pair[1], pair[0]]][n % 2];
            let words = ways()[n % 3].1;
            let listens = [words, &["listen"]].concat();
            eprintln!("{sender:?} to {receiver:?}, {words:?}");
            let mut receiver = receiver.start(folder.path(), "receive", 0, &listens);
            let mut sender = sender.start(folder.path(), "send", 0, words);
            receiver.opened();
            sender.opened();
            std::thread::sleep(delay);
            if n / 2 % 2 == 0 {
                sender.kill();
                receiver.finish().assert_died("receive");
            } else {
                receiver.kill();
                sender.finish().assert_died("send");
            }
        }
    }
}
