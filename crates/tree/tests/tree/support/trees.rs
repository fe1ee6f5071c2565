//! Generates random trees as plain data that proptest can shrink and print, and creates them on disk.
#![allow(dead_code, clippy::unwrap_used)]

use proptest::prelude::*;
use std::{
    ffi::OsString,
    fs,
    os::unix::{
        ffi::OsStringExt,
        fs::{FileExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use super::{large, largest_small, noise};

#[derive(Clone, Debug)]
pub enum Node {
    File { len: usize, mode: u32, time: (i64, i64) },
    Sparse { len: u64, islands: Vec<(u64, usize)> },
    Link(Vec<u8>),
    HardLinkTo(usize),
    Dir { mode: u32, time: (i64, i64), children: Vec<(Vec<u8>, Node)> },
}

pub fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        8 => proptest::char::range('a', 'e').prop_map(|c| c as u8),
        2 => (1..=255_u8).prop_filter("no slash", |b| *b != b'/'),
    ];
    prop::collection::vec(byte, 1..12).prop_filter("dots", |name| name != b"." && name != b"..")
}

fn time() -> impl Strategy<Value = (i64, i64)> {
    (-1_000_000_i64..4_000_000_000, 0_i64..1_000_000_000)
}

pub fn node() -> impl Strategy<Value = Node> {
    let edge = largest_small();
    let len = prop_oneof![
        5 => 0..20_000_usize,
        1 => Just(4096_usize),
        1 => edge - 2..edge + 3,
        1 => large()..large() + 400_000,
    ];
    let leaf = prop_oneof![
        6 => (len, 0..0o10000_u32, time())
            .prop_map(|(len, mode, time)| Node::File { len, mode: mode | 0o400, time }),
        1 => (1..3_000_000_u64, prop::collection::vec((0..3_000_000_u64, 1..9000_usize), 0..4))
            .prop_map(|(len, islands)| Node::Sparse { len, islands }),
        1 => name().prop_map(Node::Link),
        1 => (0..100_usize).prop_map(Node::HardLinkTo),
    ];
    leaf.prop_recursive(4, 60, 8, |inner| {
        let children = prop::collection::vec((name(), inner), 0..8);
        (0..0o2000_u32, time(), children).prop_map(|(mode, time, children)| Node::Dir {
            mode: mode | 0o700,
            time,
            children,
        })
    })
}

fn stamp(path: &Path, (tv_sec, tv_nsec): (i64, i64)) {
    let time = rustix::fs::Timespec { tv_sec, tv_nsec };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
}

pub fn build(path: &Path, node: &Node, files: &mut Vec<PathBuf>) {
    match node {
        Node::File { len, mode, time } => {
            fs::write(path, noise(*len, files.len() as u64 + 1)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
            stamp(path, *time);
            files.push(path.to_owned());
        }
        Node::Sparse { len, islands } => {
            let file = fs::File::create(path).unwrap();
            file.set_len(*len).unwrap();
            for (at, size) in islands {
                let at = at % len;
                let size = (*size as u64).min(len - at) as usize;
                file.write_all_at(&noise(size, at), at).unwrap();
            }
            files.push(path.to_owned());
        }
        Node::Link(target) => symlink(OsString::from_vec(target.clone()), path).unwrap(),
        Node::HardLinkTo(n) => match files.get(n % files.len().max(1)) {
            Some(file) => fs::hard_link(file, path).unwrap(),
            None => fs::write(path, "alone").unwrap(),
        },
        Node::Dir { mode, time, children } => {
            fs::create_dir(path).unwrap();
            for (name, child) in children {
                let child_path = path.join(OsString::from_vec(name.clone()));
                if fs::symlink_metadata(&child_path).is_err() {
                    build(&child_path, child, files);
                }
            }
            fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
            stamp(path, *time);
        }
    }
}
