//! Opens the file that a copy writes.

use rustix::fs::{AtFlags, OFlags, Stat};
use std::os::fd::OwnedFd;
use thalweg_core::atomic_file::Leftovers;
use thalweg_sys::Errno;

use crate::{
    Refusal,
    copy::{
        dest::{conflict::Existing, publish::Sink, way::Way},
        leaf::Leaf,
        run::Company,
        spot::Spot,
        worker::Worker,
    },
    error::{Attempt, Failure, at_sink},
    identity::Id,
};

impl Worker<'_> {
    /// Under which name the file is written.
    pub fn way(&self, leaf: &Leaf<'_>, there: Option<&Existing>, is_single: bool) -> Way {
        let options = self.run.options;
        match there {
            Some(there) if there.is_written_into(options) => Way::Existing,
            None if options.inplace => Way::Own,
            // A part could neither get its name nor go; what has no name can get one.
            None if leaf.directory.is_append_only() => {
                if self.names_all {
                    Way::Own
                } else {
                    Way::Nameless
                }
            }
            // It is not visible there, and half of a single write never is.
            _ if is_single && leaf.directory.is_staged => Way::Own,
            // In company no part is gone on with.
            None if is_single && (!options.resume || self.has_company()) && !self.names_all => {
                Way::Nameless
            }
            _ => Way::Part,
        }
    }

    /// Whether others may write the same file, whom no lock keeps away.
    fn has_company(&self) -> bool {
        self.run.company != Company::None
    }

    /// Opens the file to write.
    pub fn open_sink<'a>(
        &mut self,
        leaf: &Leaf<'_>,
        (spot, way, there): (Spot<'a>, Way, Option<&Existing>),
        mode: u32,
        (is_single, source, stat): (bool, &OwnedFd, &Stat),
    ) -> Attempt<Sink<'a>> {
        let options = self.run.options;
        // A pipe that is open for reading too waits for no reader, and loses what is written to it.
        let reads = options.verify.is_some() && there.is_none_or(Existing::can_be_read_again);
        let access = if reads { OFlags::RDWR } else { OFlags::WRONLY };
        match way {
            Way::Own => match Sink::own(spot, access, mode) {
                // Names that differ in the source may be one name here (case folding).
                Err(Failure::Sink(_, Errno::EXIST, _)) if leaf.directory.is_fresh => {
                    Err(Failure::Refused(Refusal::JustCreated))
                }
                // An earlier run left it unfinished, in a place nobody can see.
                Err(Failure::Sink(_, Errno::EXIST, _)) if leaf.directory.is_staged => {
                    let _ = rustix::fs::unlinkat(spot.dir, spot.name, AtFlags::empty());
                    Sink::own(spot, access, mode)
                }
                answer => answer,
            },
            Way::Nameless => {
                if let Some(sink) = Sink::nameless(spot, access, mode)? {
                    return Ok(sink);
                }
                self.names_all = true;
                if leaf.directory.is_append_only() {
                    return Sink::own(spot, access, mode);
                }
                if self.has_company() {
                    return Sink::apart(spot);
                }
                Sink::part(spot, Leftovers { resume: false, spare: Id::of(stat) })
            }
            Way::Part if self.has_company() => Sink::apart(spot),
            Way::Part => {
                let resume = options.resume && !is_single;
                Sink::part(spot, Leftovers { resume, spare: Id::of(stat) })
            }
            Way::Existing => {
                match Sink::existing(spot, access, (source, stat), &|| leaf.source_path()) {
                    Err(Failure::Sink(_, Errno::ACCESS | Errno::PERM | Errno::TXTBSY, _))
                        if options.force =>
                    {
                        rustix::fs::unlinkat(spot.dir, spot.name, AtFlags::empty())
                            .map_err(at_sink("unlinkat"))?;
                        Sink::own(spot, access, mode)
                    }
                    answer => answer,
                }
            }
        }
    }
}
