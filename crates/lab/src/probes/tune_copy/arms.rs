//! The arm of a file: a mechanism at one tuning.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};
use thalweg_core::{Guarantees, Mechanism, Sink, Source, Transfer, Tuning, Unfit};
use thalweg_sys::{Errno, io as call};

use super::Stop;
use crate::{
    arms::transfer::{end_of, move_all},
    measure::{
        sample::{Meter, Sample},
        schedule::{Arm, Failure},
    },
};

/// What every arm of a tuning moves.
pub(super) struct Work<'w> {
    /// What our arms read.
    pub source: PathBuf,
    /// What `cp` reads: the same bytes.
    pub peer_source: PathBuf,
    /// What all of them write.
    pub sink: PathBuf,
    /// How many bytes, from the start.
    pub len: u64,
    /// What must hold afterwards.
    pub needs: Guarantees,
    pub stop: &'w Stop<'w>,
}

const COMPARED_AT_ONCE: usize = 256 << 10;

/// A mechanism at one tuning, without fallback: whatever the driver would step down for ends it.
pub(super) struct MoverArm<'w> {
    pub mechanism: &'static dyn Mechanism,
    pub tuning: Tuning,
    work: &'w Work<'w>,
}

impl<'w> MoverArm<'w> {
    pub fn new(mechanism: &'static dyn Mechanism, tuning: Tuning, work: &'w Work<'w>) -> Self {
        Self { mechanism, tuning, work }
    }
}

impl Arm for MoverArm<'_> {
    fn sample(&mut self, _repeats: u32) -> Result<Sample, Failure> {
        crate::peer::remove(&self.work.sink);
        let meter = Meter::start();
        let moved = move_file(self.mechanism, &self.tuning, self.work)?;
        Ok(meter.stop(moved))
    }

    fn check(&mut self) -> Result<(), Unfit> {
        self.work.check()
    }
}

impl Work<'_> {
    /// Whether the sink holds the bytes of the source and no others.
    pub fn check(&self) -> Result<(), Unfit> {
        let failed = |e: io::Error| Unfit::because(format!("reading the copy: {e}"));
        let size = self.sink.metadata().map_err(failed)?.len();
        if size != self.len {
            return Err(Unfit::because(format!("wrote {size} bytes of {}", self.len)));
        }
        match first_difference(&self.source, &self.sink, self.len).map_err(failed)? {
            None => Ok(()),
            Some(at) => Err(Unfit::because(format!("delivered a wrong byte at {at}"))),
        }
    }
}

/// The whole of a copy: both files opened, the bytes moved, both closed.
pub(super) fn move_file(
    mechanism: &dyn Mechanism,
    tuning: &Tuning,
    work: &Work<'_>,
) -> Result<u64, Failure> {
    let unfit = |text: &str, e: io::Error| Failure::Unfit(Unfit::because(format!("{text}: {e}")));
    let source = File::open(&work.source).map_err(|e| unfit("source", e))?;
    let sink = create(&work.sink).map_err(|e| unfit("destination", e))?;
    let transfer = Transfer {
        source: Source::Fd(end_of(&source)?),
        sink: Sink::Fd(end_of(&sink)?),
        len: Some(work.len),
        needs: Guarantees { durable: false, ..work.needs },
    };
    move_all((mechanism, tuning), transfer, work.stop, &mut || ())
}

/// A new file, readable too: mechanisms that map the sink need that.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).open(path)
}

/// The first place within `len` bytes where two files differ.
pub(super) fn first_difference(a: &Path, b: &Path, len: u64) -> io::Result<Option<u64>> {
    let (a, b) = (File::open(a)?, File::open(b)?);
    let (mut left, mut right) = (vec![0; COMPARED_AT_ONCE], vec![0; COMPARED_AT_ONCE]);
    let mut at = 0;
    while at < len {
        let want = (len - at).min(COMPARED_AT_ONCE as u64) as usize;
        let (got, other) = (full(&a, &mut left[..want], at)?, full(&b, &mut right[..want], at)?);
        let same = left[..got].iter().zip(&right[..other]);
        if left[..got] != right[..other] || got < want {
            let equal = same.take_while(|(x, y)| x == y).count();
            return Ok(Some(at + equal as u64));
        }
        at += want as u64;
    }
    Ok(None)
}

/// Reads until the buffer is full or the file ends.
fn full(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match call::pread(file, &mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_found_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let mut bytes = vec![7; 600 << 10];
        std::fs::write(&a, &bytes).unwrap();
        let len = bytes.len() as u64;
        for at in [0, 300 << 10, bytes.len() - 1] {
            bytes[at] = 8;
            std::fs::write(&b, &bytes).unwrap();
            assert_eq!(first_difference(&a, &b, len).unwrap(), Some(at as u64));
            bytes[at] = 7;
        }
        std::fs::write(&b, &bytes).unwrap();
        assert_eq!(first_difference(&a, &b, len).unwrap(), None);
        std::fs::write(&b, &bytes[..1000]).unwrap();
        assert_eq!(first_difference(&a, &b, len).unwrap(), Some(1000));
    }
}
