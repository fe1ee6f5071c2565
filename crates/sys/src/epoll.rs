//! Waiting for many descriptors at once. Set up the epoll instance with rustix directly.

use crate::Errno;
use crate::fault::{Call, counted};
use rustix::event::{Timespec, epoll};
use rustix::fd::AsFd;

pub use rustix::event::epoll::{Event, EventData, EventFlags};

/// An empty event, for initializing a buffer.
pub const NO_EVENT: Event = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };

/// `epoll_wait(2)`: returns the number of events written to `events`, or 0 after the timeout. `None` means no limit. If
/// `events` is too short, the next call returns the other events.
pub fn wait(
    epoll: impl AsFd,
    events: &mut [Event],
    timeout: Option<&Timespec>,
) -> Result<usize, Errno> {
    let most = events.len();
    counted(Call::EpollWait, most, |most| epoll::wait(epoll, &mut events[..most], timeout))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::io;
    use rustix::event::epoll::CreateFlags;
    use rustix::fd::OwnedFd;

    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    /// Three pipes that contain data.
    fn three() -> (OwnedFd, Vec<(OwnedFd, OwnedFd)>) {
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let pipes: Vec<_> = (0..3).map(|_| rustix::pipe::pipe().unwrap()).collect();
        for (token, (reader, writer)) in (0..).zip(&pipes) {
            let data = EventData::new_u64(token);
            epoll::add(&epoll, reader, data, EventFlags::IN | EventFlags::ET).unwrap();
            io::write(writer, b"x").unwrap();
        }
        (epoll, pipes)
    }

    fn tokens(events: &[Event]) -> Vec<u64> {
        let mut tokens: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
        tokens.sort_unstable();
        tokens
    }

    #[test]
    fn what_has_no_room_comes_next_time() {
        let (epoll, _pipes) = three();
        let mut events = [NO_EVENT; 2];
        assert_eq!(wait(&epoll, &mut events, Some(&AT_ONCE)), Ok(2));
        let mut all = tokens(&events);
        assert_eq!(wait(&epoll, &mut events, Some(&AT_ONCE)), Ok(1));
        all.extend(tokens(&events[..1]));
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        assert_eq!(wait(&epoll, &mut events, Some(&AT_ONCE)), Ok(0));
    }

    #[cfg(feature = "faults")]
    #[test]
    fn faults_reach_it_and_lose_no_event() {
        use crate::fault::{Effect, Rule, Script};
        let (epoll, _pipes) = three();
        let script = Script::new(vec![
            Rule::once(Call::EpollWait, 1, Effect::Errno(Errno::INTR)),
            Rule::once(Call::EpollWait, 2, Effect::Zero),
            Rule::once(Call::EpollWait, 3, Effect::Short(1)),
        ]);
        let outcome = script.run(|| {
            let mut events = [NO_EVENT; 8];
            let mut look = || wait(&epoll, &mut events, Some(&AT_ONCE));
            [look(), look(), look(), look(), look()]
        });
        assert_eq!(outcome.value, [Err(Errno::INTR), Ok(0), Ok(1), Ok(2), Ok(0)]);
        assert_eq!(outcome.fired, 3);
    }
}
