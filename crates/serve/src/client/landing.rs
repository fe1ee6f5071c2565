//! Where the bytes go: a part with its journal beside what it will be, or a stream.

use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::fs::fstat;
use thalweg_core::{
    End, Kind,
    atomic_file::{
        Destination, DestinationError, Fsync, failed,
        ownership::{LeftAlone, remove_own},
    },
};
use thalweg_sys::{Errno, io};
use thalweg_tree::{
    Ranges,
    foreign::{Attributes, InheritFrom, inherit},
    journal::{Keeper, LONGEST_URL, Remote, Source, earlier},
};

use super::Error;

/// An open destination and what of it is done.
pub struct Landing {
    destination: Destination,
    /// The journal's folder and name, if it can have one.
    place: Option<(OwnedFd, CString)>,
    keeper: Option<Keeper<OwnedFd>>,
    done: Ranges,
}

impl Landing {
    /// Nothing is known of what an earlier run left.
    pub fn at(destination: Destination) -> Result<Self, Error> {
        let place = match &destination {
            Destination::Whole { file, .. } => match file.journal() {
                Some(name) => {
                    let folder = file.folder().try_clone_to_owned();
                    Some((folder.map_err(|_| failed("fcntl")(Errno::MFILE))?, name))
                }
                None => None,
            },
            Destination::Direct(_) => None,
        };
        Ok(Self { destination, place, keeper: None, done: Ranges::default() })
    }

    /// A leftover that was not used, as another user may have made it.
    pub fn left_alone(&self) -> Option<&LeftAlone> {
        self.destination.left_alone()
    }

    /// Takes over what an earlier run left of this URL, if that can be trusted; else it is emptied.
    pub fn adopt(&mut self, url: &str) -> Result<Option<Remote>, Error> {
        let Some(remote) = self.left(url)? else {
            self.empty()?;
            return Ok(None);
        };
        self.begin(&remote)?;
        Ok(Some(remote))
    }

    fn left(&mut self, url: &str) -> Result<Option<Remote>, Error> {
        let (Destination::Whole { file, .. }, Some((folder, name))) =
            (&self.destination, &self.place)
        else {
            return Ok(None);
        };
        let Some(Ok(journal)) = earlier(folder.as_fd(), name).filter(|_| file.adopted) else {
            return Ok(None);
        };
        let there = fstat(&file.fd).map_err(failed("fstat"))?.st_size as u64;
        // The page cache outlives a process, and not the machine; the server's bytes cannot be compared.
        let is_true = journal.is_of_this_boot() && journal.done.end() <= there;
        match journal.source {
            Source::Remote(remote) if is_true && remote.url == url => {
                // The last byte is asked for once more: the server then says that this is still its file.
                let all_but_one = Ranges::up_to(remote.size.saturating_sub(1));
                let is_whole = journal.done.bytes() == remote.size;
                self.done = if is_whole { all_but_one } else { journal.done };
                Ok(Some(remote))
            }
            _ => Ok(None),
        }
    }

    /// From now on a journal says what of this file is there.
    pub fn begin(&mut self, remote: &Remote) -> Result<(), Error> {
        let Some((folder, name)) = &self.place else { return Ok(()) };
        if remote.url.len() > LONGEST_URL {
            return Ok(());
        }
        let folder = folder.try_clone().map_err(|_| failed("fcntl")(Errno::MFILE))?;
        let mut keeper = Keeper::new((folder, name.clone()), Source::Remote(remote.clone()), true);
        keeper.note_ranges(&self.done);
        keeper.write();
        self.keeper = Some(keeper);
        Ok(())
    }

    /// Nothing of it is there any more.
    pub fn empty(&mut self) -> Result<(), Error> {
        self.forget()?;
        if let Destination::Whole { file, .. } = &self.destination {
            io::ftruncate(&file.fd, 0).map_err(failed("ftruncate"))?;
        } else if self.done != Ranges::default() {
            // Whoever reads the stream has the bytes of another file.
            return Err(Error::Changing);
        }
        self.done = Ranges::default();
        Ok(())
    }

    fn forget(&mut self) -> Result<(), Error> {
        self.keeper = None;
        if let Some((folder, name)) = &self.place {
            remove_own(folder.as_fd(), name).map_err(failed("unlinkat"))?;
        }
        Ok(())
    }

    /// The bytes from `from` to `to` are there.
    pub fn note(&mut self, from: u64, to: u64) {
        self.done.add(from, to);
        if let Some(keeper) = &mut self.keeper {
            keeper.note_ranges(&self.done);
        }
    }

    /// What is there.
    pub fn done(&self) -> &Ranges {
        &self.done
    }

    /// Whether it can be begun anew after some bytes were moved.
    pub fn is_rewindable(&self) -> bool {
        matches!(self.destination, Destination::Whole { .. })
    }

    /// Another name for the descriptor, so that bytes can be moved while this is told of them.
    pub fn descriptor(&self) -> Result<OwnedFd, Error> {
        let fd = self.destination.fd().try_clone_to_owned();
        Ok(fd.map_err(|_| failed("fcntl")(Errno::MFILE))?)
    }

    /// Where a byte of the file goes; a stream goes on where it is.
    pub fn end<'a>(&self, fd: BorrowedFd<'a>, at: u64) -> Result<End<'a>, Error> {
        let end = End::of(fd).map_err(failed("fstat"))?;
        let at = (end.kind == Kind::File && self.is_rewindable()).then_some(at);
        Ok(End { at, ..end })
    }

    /// A file that can be read back.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.is_rewindable().then(|| self.destination.fd())
    }

    /// Gives it its name, and before that what else it has to get.
    pub fn publish(mut self, attributes: Option<&Attributes>, fsync: Fsync) -> Result<(), Error> {
        // Files of other users in a tree are not taken for what an earlier run brought, and would come every time.
        let from = if attributes.is_some() { InheritFrom::Own } else { InheritFrom::Anyone };
        inherit(&mut self.destination, from);
        if let Destination::Whole { file, mode, .. } = &mut self.destination {
            // Of something that began anew there may be more.
            io::ftruncate(&file.fd, self.done.end()).map_err(failed("ftruncate"))?;
            if let Some(attributes) = attributes {
                attributes.give(file.fd.as_fd())?;
                *mode = None;
            }
        }
        // Before the journal goes: after a power cut the name has all of the file, or the old one.
        if fsync == Fsync::Auto && self.is_rewindable() {
            let synced = io::sync_data(self.destination.fd()).map_err(failed("fdatasync"));
            if let Err(error) = synced {
                drop(self.forget());
                return Err(error.into());
            }
        }
        self.forget()?;
        self.destination.publish_synced(fsync).map_err(|error: DestinationError| error.into())
    }

    /// Leaves it to a later run if that can go on with it; says so.
    pub fn leave(mut self) -> bool {
        match &mut self.keeper {
            Some(keeper) if self.done != Ranges::default() => {
                keeper.note_ranges(&self.done);
                keeper.write();
                self.destination.leave()
            }
            _ => {
                // What cannot be removed now is removed by the next run.
                drop(self.forget());
                false
            }
        }
    }
}
