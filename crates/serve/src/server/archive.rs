//! A tree as a tar archive. The bodies of its files are parts of their own, so that the movers carry them.

use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt, path::Path};

use tar::{Builder, EntryType, Header};

use super::{
    body::{Part, Supply},
    walk::{Entry, Kind, LeftOut, Tree},
};
use crate::http::range::Stretch;

/// The entries of an archive, one at a time. What cannot be read ends it short: nobody would miss it.
pub struct Archive {
    tree: Tree,
    is_over: bool,
}

/// Archives are made of these.
const BLOCK: u64 = 512;

impl Archive {
    /// That of this tree.
    pub fn of(tree: Tree) -> Self {
        Self { tree, is_over: false }
    }

    fn parts(&self, entry: &Entry) -> Result<Vec<Part>, String> {
        let failed = |error: io::Error| error.to_string();
        let missed = || LeftOut { path: entry.path.clone(), is_missed: true }.words();
        let mut header = Header::new_gnu();
        header.set_mode(entry.stat.st_mode & 0o7777);
        header.set_uid(entry.stat.st_uid.into());
        header.set_gid(entry.stat.st_gid.into());
        header.set_mtime(u64::try_from(entry.stat.st_mtime).unwrap_or(0));
        header.set_size(0);
        let mut blocks = Builder::new(Vec::new());
        match &entry.kind {
            Kind::Shut => return Err(missed()),
            Kind::Folder => {
                header.set_entry_type(EntryType::Directory);
                blocks.append_data(&mut header, &entry.path, io::empty()).map_err(failed)?;
            }
            Kind::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                let target = Path::new(OsStr::from_bytes(target));
                blocks.append_link(&mut header, &entry.path, target).map_err(failed)?;
            }
            Kind::File => {
                let file = self.tree.open(&entry.path).ok_or_else(missed)?;
                let size = file.version.size;
                header.set_size(size);
                // Of a body without bytes the builder writes the head alone.
                blocks.append_data(&mut header, &entry.path, io::empty()).map_err(failed)?;
                let head = std::mem::take(blocks.get_mut());
                let padding = vec![0; (size.next_multiple_of(BLOCK) - size) as usize];
                let body = Part::File(file, Stretch { from: 0, to: size });
                return Ok(vec![Part::Bytes(head), body, Part::Bytes(padding)]);
            }
        }
        Ok(vec![Part::Bytes(std::mem::take(blocks.get_mut()))])
    }
}

impl Supply for Archive {
    fn next(&mut self) -> Result<Option<Vec<Part>>, String> {
        loop {
            return match self.tree.next() {
                Some(Ok(entry)) => self.parts(&entry).map(Some),
                Some(Err(left_out)) if left_out.is_missed => Err(left_out.words()),
                Some(Err(_)) => continue,
                None if self.is_over => Ok(None),
                None => {
                    self.is_over = true;
                    Ok(Some(vec![Part::Bytes(vec![0; 2 * BLOCK as usize])]))
                }
            };
        }
    }
}
