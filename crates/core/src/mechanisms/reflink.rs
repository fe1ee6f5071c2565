//! Clones: the sink shares the source's blocks until either is written. No byte is read or written,
//! so only metadata costs time. Ranges must consist of whole blocks, except at the end of the
//! source.

use rustix::fs::fstat;
use thalweg_sys::{Errno, copy};

use crate::{
    Blocks, End, Error, Facts, Guarantees, Info, Kind, Mechanism, Mover, Nature, Pair, Role, Side,
    Transfer, Tuning, Unfit, advance_by_steps, length_guard::length,
};

/// Clones with `FICLONERANGE`, piece by piece.
pub struct Reflink;

static INFO: Info = Info {
    name: "reflink",
    summary: "clone: share the blocks on disk, copy on write",
    calls: &["FICLONERANGE"],
    pairs: &[Pair::new(Kind::File, Kind::File, Guarantees::COPIED)],
    knobs: &[],
    role: Role::Mover,
    nature: Nature { blocks: Blocks::Shared, ..Nature::PLAIN },
};

struct ReflinkMover<'a> {
    source: End<'a>,
    sink: End<'a>,
    block: u64,
}

impl Mechanism for Reflink {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn fits(&self, facts: &Facts) -> Result<(), Unfit> {
        if facts.sink.append {
            return Err(Unfit::because("FICLONERANGE fails with EBADF on O_APPEND destinations"));
        }
        if !facts.source.addressed || !facts.sink.addressed {
            return Err(Unfit::because("a clone needs files that can seek"));
        }
        if !one_clone_domain(facts) {
            return Err(Unfit::because("a clone cannot cross file systems"));
        }
        Ok(())
    }

    fn saves_work(&self, facts: &Facts) -> bool {
        one_clone_domain(facts) && !facts.sink.append
    }

    fn open<'a>(&self, t: Transfer<'a>, _: &Tuning) -> Result<Box<dyn Mover + 'a>, Error> {
        let (source, sink) = t.descriptors(&INFO)?;
        let block = |end: &End<'_>| fstat(end.fd).map(|stat| stat.st_blksize as u64);
        let larger = block(&source).and_then(|a| Ok(a.max(block(&sink)?)));
        let block = larger.map_err(|e| INFO.error("fstat", Side::Either, e, 0))?;
        Ok(Box::new(ReflinkMover { source, sink, block: block.max(1) }))
    }
}

impl Mover for ReflinkMover<'_> {
    fn advance(&mut self, budget: u64) -> Result<u64, Error> {
        advance_by_steps(budget, |most| self.step(most))
    }
}

impl ReflinkMover<'_> {
    /// Clones one piece. A length of 0 ("to the end") is never passed. It would also clone bytes
    /// that are appended during the call, and their number would not be known.
    fn step(&mut self, most: u64) -> Result<u64, Error> {
        let failed = |errno| INFO.error("FICLONERANGE", Side::Either, errno, 0);
        let (Some(from), Some(to)) = (self.source.at, self.sink.at) else {
            return Err(failed(Errno::SPIPE));
        };
        let left = length(&self.source).map_err(|e| INFO.error("fstat", Side::Source, e, 0))?;
        let left = left.saturating_sub(from);
        if left == 0 {
            return Ok(0);
        }
        let len = if left <= most { left } else { most / self.block * self.block };
        if len == 0 {
            // The budget is less than a block, and this is not the end of the source.
            return Err(failed(Errno::INVAL));
        }
        copy::clone_range(self.source.fd, from, len, self.sink.fd, to).map_err(failed)?;
        self.source.forward(len);
        self.sink.forward(len);
        Ok(len)
    }
}

/// Returns `true` if the kernel might clone between the two endpoints. The subvolumes of one btrfs
/// have different device numbers, so on btrfs only the kernel can decide.
fn one_clone_domain(facts: &Facts) -> bool {
    let btrfs = |end: &crate::EndFacts| end.fs.as_ref().is_some_and(|fs| fs.name == "btrfs");
    facts.one_file_system() || (btrfs(&facts.source) && btrfs(&facts.sink))
}
