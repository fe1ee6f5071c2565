//! Formats a change as a line, in the form of `rsync --itemize-changes`.

use rustix::fs::FileType;
use serde_json::{Value, json};
use thalweg_core::shown;
use thalweg_tree::{AttributeDifferences, ChangeAction, SyncChange};

/// Returns the line of a change, such as `>f.st...... docs/page`.
pub fn line(change: &SyncChange<'_>) -> String {
    let slash = if change.kind == FileType::Directory { "/" } else { "" };
    format!("{} {}{slash}", code(change), shown(change.path))
}

/// Returns the change as a JSON object.
pub fn object(change: &SyncChange<'_>) -> Value {
    json!({
        "change": change.action.name(),
        "path": shown(change.path).to_string(),
        "kind": kind(change.kind).1,
        "size": change.size,
        "differs": change.differs.names(),
        "itemized": code(change).trim_end(),
    })
}

/// Returns the letter and the word of a file type.
fn kind(kind: FileType) -> (char, &'static str) {
    match kind {
        FileType::RegularFile => ('f', "file"),
        FileType::Directory => ('d', "directory"),
        FileType::Symlink => ('L', "symlink"),
        FileType::BlockDevice | FileType::CharacterDevice => ('D', "device"),
        FileType::Fifo => ('S', "fifo"),
        FileType::Socket => ('S', "socket"),
        FileType::Unknown => ('f', "unknown"),
    }
}

/// Returns the eleven characters before the name.
fn code(change: &SyncChange<'_>) -> String {
    let is_file = change.kind == FileType::RegularFile;
    let how = match change.action {
        ChangeAction::Delete => return "*deleting  ".to_owned(),
        ChangeAction::Attributes => '.',
        ChangeAction::Link => 'h',
        _ if change.is_linked => 'h',
        _ if is_file => '>',
        _ => 'c',
    };
    let AttributeDifferences { content, size, time, mode, owner, group, acl, xattrs, .. } =
        change.differs;
    let is_new = change.action == ChangeAction::Create || change.differs.kind;
    let flags = [
        (content, 'c'),
        (size, 's'),
        (time, 't'),
        (mode, 'p'),
        (owner, 'o'),
        (group, 'g'),
        (false, 'u'),
        (acl, 'a'),
        (xattrs, 'x'),
    ];
    let flags = flags.iter().map(|(differs, letter)| match differs {
        _ if is_new => '+',
        _ if change.action == ChangeAction::Link => ' ',
        true => *letter,
        false => '.',
    });
    [how, kind(change.kind).0].into_iter().chain(flags).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn lines_have_the_form_of_rsync() {
        let change = SyncChange {
            path: Path::new("a/b"),
            action: ChangeAction::Create,
            kind: FileType::RegularFile,
            is_linked: false,
            size: 4,
            differs: AttributeDifferences::default(),
        };
        assert_eq!(line(&change), ">f+++++++++ a/b");
        let differs = AttributeDifferences { size: true, time: true, ..Default::default() };
        let replaced = SyncChange { action: ChangeAction::Replace, differs, ..change };
        assert_eq!(line(&replaced), ">f.st...... a/b");
        let kind = FileType::Directory;
        let differs = AttributeDifferences { mode: true, ..Default::default() };
        let changed = SyncChange { action: ChangeAction::Attributes, kind, differs, ..change };
        assert_eq!(line(&changed), ".d...p..... a/b/");
        let deleted = SyncChange { action: ChangeAction::Delete, ..change };
        assert_eq!(line(&deleted), "*deleting   a/b");
        let link = SyncChange { action: ChangeAction::Link, ..change };
        assert_eq!(line(&link), "hf          a/b");
    }
}
