//! Moves an exact number of bytes by an opened mechanism. Whatever the driver would step down for,
//! or ask a read about, ends it here: an arm is one mechanism and nothing else.

use std::{
    fs::File,
    os::fd::AsFd,
    time::{Duration, Instant},
};
use thalweg_core::{End, Mover, Unfit};

/// How long a mechanism, or a process of ours, may make us wait without anything happening.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// An open file as an end; from its first byte if it can be addressed.
pub(super) fn from_start(file: &File) -> Result<End<'_>, Unfit> {
    let end = End::of(file.as_fd());
    let end = end.map_err(|e| Unfit::because(format!("looking at an end: {e}")))?;
    Ok(if end.at.is_some() { end.at(0) } else { end })
}

/// Moves `total` bytes.
pub(super) fn move_exactly(mover: &mut dyn Mover, total: u64) -> Result<(), Unfit> {
    let (mut moved, mut progress) = (0, Instant::now());
    while moved < total {
        match mover.advance(total - moved) {
            Ok(0) => {
                let text = format!("the source seemed to end after {moved} of {total} bytes");
                return Err(Unfit::because(text));
            }
            Ok(count) => {
                moved += count;
                progress = Instant::now();
            }
            Err(error) if error.is_interruption() => moved += error.moved,
            Err(error) if error.is_would_block() && progress.elapsed() < PATIENCE => {
                moved += error.moved;
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => {
                let moved = moved + error.moved;
                let unfit = Unfit::from(error);
                let reason = format!("{} after {moved} of {total} bytes", unfit.reason);
                return Err(Unfit { reason, ..unfit });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_core::{Error, Side};
    use thalweg_sys::Errno;

    /// Answers one after the other; then ends.
    struct Script(Vec<Result<u64, Error>>);

    impl Mover for Script {
        fn advance(&mut self, budget: u64) -> Result<u64, Error> {
            if self.0.is_empty() { Ok(0) } else { self.0.remove(0).map(|n| n.min(budget)) }
        }
    }

    #[test]
    fn short_steps_interruptions_and_waits_are_gone_on_from_and_the_rest_is_told() {
        let error = |errno| Error { mechanism: "m", call: "c", errno, side: Side::Sink, moved: 2 };
        let calm = vec![Ok(3), Err(error(Errno::INTR)), Err(error(Errno::AGAIN)), Ok(9)];
        assert_eq!(move_exactly(&mut Script(calm), 10), Ok(()));
        let unfit = move_exactly(&mut Script(vec![Ok(3)]), 10).unwrap_err();
        assert!(unfit.reason.contains("end after 3 of 10"), "{unfit}");
        let failing = vec![Ok(3), Err(error(Errno::PIPE))];
        let unfit = move_exactly(&mut Script(failing), 10).unwrap_err();
        assert_eq!(unfit.errno, Some(Errno::PIPE));
        assert!(unfit.reason.contains("after 5 of 10"), "{unfit}");
    }
}
