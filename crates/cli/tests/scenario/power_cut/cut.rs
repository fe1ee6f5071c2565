//! Builds the disk that a power cut leaves from the log of its requests.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use super::system::copy_image;
use crate::support::fuse::disk::DiskEvent;
use thalweg_testing::Dice;

/// Number of bytes that a disk writes atomically. File systems rely on no larger unit.
const ATOM: usize = 4096;

/// The choice of the unflushed writes that reached the disk.
#[derive(Clone, Copy, Debug)]
enum Kept {
    /// Each write with this probability, in percent.
    Some(u64),
    /// Each page of each write with this probability, in percent.
    Torn(u64),
}

/// The moment of a power cut, and the choice of the unflushed writes that reached the disk.
#[derive(Debug)]
pub struct PowerCut {
    /// Requests that had completed.
    pub at: usize,
    kept: Kept,
    seed: u64,
}

impl PowerCut {
    /// Returns a random cut within this range of the log.
    pub fn within(range: std::ops::RangeInclusive<usize>, dice: &mut Dice) -> Self {
        let at = dice.within(*range.start() as u64..*range.end() as u64 + 1) as usize;
        let kept = match dice.within(0..8) {
            0 => Kept::Some(0),
            1 => Kept::Some(100),
            2 | 3 => Kept::Torn(dice.within(10..100)),
            _ => Kept::Some(dice.within(5..100)),
        };
        Self { at, kept, seed: dice.within(1..u64::from(u32::MAX)) }
    }

    /// Moves the cut to the last moment before the next flush, when most writes are unflushed.
    pub fn before_flush(mut self, log: &[DiskEvent]) -> Self {
        let is_flush = |event: &DiskEvent| matches!(event, DiskEvent::Flush);
        self.at += log[self.at..].iter().position(is_flush).unwrap_or(0);
        self
    }

    /// Makes the image: all writes up to the last flush, and some of the writes after it.
    pub fn make_image(&self, base: &Path, log: &[DiskEvent], to: &Path) {
        copy_image(base, to);
        let image = File::options().write(true).open(to).unwrap();
        let log = &log[..self.at];
        let is_flush = |event: &DiskEvent| matches!(event, DiskEvent::Flush);
        let flushed = log.iter().rposition(is_flush).unwrap_or(0);
        let mut dice = Dice::seeded(self.seed);
        for (n, event) in log.iter().enumerate() {
            let DiskEvent::Write { offset, bytes } = event else { continue };
            if n < flushed {
                image.write_all_at(bytes, *offset).unwrap();
            } else {
                self.write_some(&image, *offset, bytes, &mut dice);
            }
        }
    }

    fn write_some(&self, image: &File, offset: u64, bytes: &[u8], dice: &mut Dice) {
        let mut hits = |percent| dice.within(0..100) < percent;
        match self.kept {
            Kept::Some(percent) => {
                if hits(percent) {
                    image.write_all_at(bytes, offset).unwrap();
                }
            }
            Kept::Torn(percent) => {
                for (n, page) in bytes.chunks(ATOM).enumerate().filter(|_| hits(percent)) {
                    image.write_all_at(page, offset + (n * ATOM) as u64).unwrap();
                }
            }
        }
    }
}
