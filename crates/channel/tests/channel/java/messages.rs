//! Messages of all sizes, in both directions, where either side may listen.

use super::jvm::Jvm;
use std::path::Path;
use std::time::{Duration, Instant};
use thalweg_channel::{Address, Consumer, Error, Link, Listener, Options, Producer, Wait};
use thalweg_sys::Errno;
use thalweg_sys::fault::{Call, Effect, Rule, Script};
use thalweg_testing::{from_env, message};

pub fn options(wait: Wait) -> Options {
    Options { capacity: 16384, wait, checksums: true, ..Options::default() }
}

pub fn in_a_while() -> Option<Instant> {
    Instant::now().checked_add(Duration::from_secs(120))
}

fn address(place: &Path) -> Address {
    Address::at(place.join("ring"))
}

/// Starts Java with these words as arguments, and connects to it. The words decide which side
/// listens. Without a JDK, returns `None`.
pub fn meet(test: &str, words: &str, place: &Path) -> Option<(Jvm, Link)> {
    if words.contains(" host ") {
        let mut jvm = Jvm::peer(test, words, place)?;
        assert_eq!(jvm.line(), "ready");
        Some((jvm, Link::connect(&address(place)).unwrap()))
    } else {
        let listener = Listener::bind(&address(place)).unwrap();
        let jvm = Jvm::peer(test, words, place)?;
        Some((jvm, listener.accept_until(in_a_while()).unwrap()))
    }
}

fn from_java(test: &str, messages: u64, words: &str, wait: Wait) -> bool {
    let place = tempfile::tempdir().unwrap();
    let words = words.replace("COUNT", &messages.to_string());
    let Some((jvm, link)) = meet(test, &words, place.path()) else { return false };
    let mut consumer = Consumer::open_until(link, &options(wait), in_a_while()).unwrap();
    let mut expected = Vec::new();
    for seq in 0..messages {
        message(seq, &mut expected);
        let sample = consumer.receive_until(in_a_while()).unwrap();
        assert!(*sample == expected[..], "{words}: message {seq} is torn");
    }
    let end = consumer.receive_until(in_a_while()).err();
    assert_eq!(end, Some(Error::Closed { delivered: messages }), "{words}");
    assert_eq!(jvm.finish(), format!("sent {messages}"));
    true
}

fn to_java(test: &str, messages: u64, words: &str, wait: Wait) -> bool {
    let place = tempfile::tempdir().unwrap();
    let words = words.replace("COUNT", &messages.to_string());
    let Some((jvm, link)) = meet(test, &words, place.path()) else { return false };
    let mut producer = Producer::open_until(link, &options(wait), in_a_while()).unwrap();
    let mut bytes = Vec::new();
    for seq in 0..messages {
        message(seq, &mut bytes);
        producer.send_until(&bytes, in_a_while()).unwrap();
    }
    assert_eq!(jvm.finish(), format!("received {messages}"));
    let end = producer.drained_until(in_a_while());
    // Java may close its end before this process has read Java's last tail.
    assert!(matches!(end, Ok(()) | Err(Error::Closed { .. })), "{end:?}");
    assert_eq!(producer.sent(), messages);
    true
}

#[test]
fn messages_from_java_arrive_whole() {
    let (test, many) = ("messages_from_java_arrive_whole", from_env("THALWEG_MESSAGES", 10_000));
    let few = many / 10;
    let _ = from_java(test, many, "produce connect PATH COUNT checksums", Wait::HYBRID)
        && from_java(test, few, "produce host PATH COUNT", Wait::Block)
        && from_java(test, few, "produce host PATH COUNT block checksums", Wait::Block)
        && from_java(test, few, "produce connect PATH COUNT spin", Wait::Spin);
}

#[test]
fn messages_to_java_arrive_whole() {
    let (test, many) = ("messages_to_java_arrive_whole", from_env("THALWEG_MESSAGES", 10_000));
    let few = many / 10;
    let _ = to_java(test, many, "consume connect PATH COUNT", Wait::HYBRID)
        && to_java(test, few, "consume host PATH COUNT untrusted", Wait::Block)
        && to_java(test, few, "consume host PATH COUNT block", Wait::Block)
        && to_java(test, few, "consume connect PATH COUNT spin", Wait::Spin);
}

#[test]
fn without_futex_waitv_on_either_side_the_link_wakes() {
    let test = "without_futex_waitv_on_either_side_the_link_wakes";
    let few = from_env("THALWEG_MESSAGES", 10_000) / 5;
    let rule = Rule::always(Call::FutexWaitv, Effect::Errno(Errno::NOSYS));
    let run = Script::new(vec![rule]).run(|| {
        from_java(test, few, "produce connect PATH COUNT block", Wait::Block)
            && to_java(test, few, "consume connect PATH COUNT block", Wait::Block)
            && from_java(test, few, "produce connect PATH COUNT block link", Wait::Block)
    });
    if run.value {
        assert!(run.fired > 0);
        from_java(test, few, "produce connect PATH COUNT block link", Wait::Block);
        to_java(test, few, "consume connect PATH COUNT block link", Wait::Block);
    }
}
