//! Compares hard links: names of one source file must be names of one destination file, and vice versa.

use rustix::fs::{FileType, Stat};
use std::{collections::HashMap, sync::Mutex};

use crate::{
    identity::{Id, kind},
    threads::locked,
};

/// For each side, maps a file with several names to the corresponding file of the other side.
#[derive(Debug, Default)]
pub(crate) struct HardLinkPairs(Mutex<[HashMap<Id, Id>; 2]>);

impl HardLinkPairs {
    /// Returns `true` if this pair of files agrees with all earlier pairs.
    pub fn agree(&self, stats: &[Stat; 2]) -> bool {
        let is_alone = |stat: &Stat| stat.st_nlink < 2 || kind(stat) == FileType::Directory;
        if stats.iter().all(is_alone) {
            return true;
        }
        let [source, sink] = stats.each_ref().map(Id::of);
        let mut sides = locked(&self.0);
        let partner = *sides[0].entry(source).or_insert(sink);
        let other = *sides[1].entry(sink).or_insert(source);
        partner == sink && other == source
    }
}
