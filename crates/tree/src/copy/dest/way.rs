//! Under which name a file is written until it is whole.

use rustix::fs::{AtFlags, OFlags, Stat};
use std::os::fd::OwnedFd;
use thalweg_core::atomic_file::Leftovers;
use thalweg_sys::Errno;

use crate::{
    Refusal,
    copy::{
        dest::{conflict::Existing, publish::Sink},
        leaf::Leaf,
        run::Company,
        spot::{Spot, has_no_links},
        worker::Worker,
    },
    error::{Attempt, Failure, at_sink},
    identity::Id,
};

/// Under which name a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Its own.
    Own,
    /// None, until it is linked.
    Nameless,
    /// That of an unfinished file.
    Part,
    /// It is there already and written into.
    Existing,
}

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

/// Whether a folder takes no new file: no right to write it, mounted read-only, or one of `/proc`
/// or `/sys`. The file that is to be replaced there may be written all the same.
pub(crate) fn cannot_be_made(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT | Errno::OPNOTSUPP | Errno::NOSYS
    )
}

/// Whether a file does not give up its name: another user's in a sticky folder, one that something
/// is mounted on, as containers do with /etc/hosts, or any where a filter lets no file be renamed.
pub(crate) fn cannot_be_replaced(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ACCESS
            | Errno::PERM
            | Errno::BUSY
            | Errno::ROFS
            | Errno::XDEV
            | Errno::INVAL
            | Errno::NOSYS
            | Errno::OPNOTSUPP
    )
}

/// Whether a file without a name cannot get one here: older kernels go by /proc, and it may be
/// missing.
pub(crate) fn cannot_be_named(failure: &Failure) -> bool {
    let errnos = [Errno::NOENT, Errno::ACCESS];
    matches!(failure, Failure::Sink("linkat", errno, _) if errnos.contains(errno) || has_no_links(*errno))
}
