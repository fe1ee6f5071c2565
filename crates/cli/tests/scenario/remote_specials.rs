//! FIFOs, sockets and devices in copies and syncs between machines.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        fs::{FileTypeExt, MetadataExt},
        net::UnixListener,
    },
    path::Path,
};

use crate::{
    remote_copies::over_each,
    remote_syncs::BothWays,
    support::{Scratch, bytes, run, shell, skip::has_tools, sshd::OtherMachine, thalweg},
    sync_trees::{lines, record},
};

/// Creates a FIFO, a socket and, as root, a device.
fn create(directory: &Path) {
    drop(UnixListener::bind(directory.join("socket")).unwrap());
    shell(directory, "mkfifo -m 640 pipe; touch -d 2001-02-03 pipe socket").expect(0);
    if rustix::process::geteuid().is_root() {
        shell(directory, "mknod -m 604 null c 1 3; chown 12:34 null pipe").expect(0);
    }
}

/// Returns mode, owner, device number and time of each special file.
fn specials(directory: &Path) -> BTreeMap<String, (u32, u32, u64, i64)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let special = entries.filter(|entry| {
        let kind = entry.file_type().unwrap();
        kind.is_fifo() || kind.is_socket() || kind.is_char_device()
    });
    special
        .map(|entry| {
            let meta = entry.metadata().unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, (meta.mode(), meta.uid(), meta.rdev(), meta.mtime()))
        })
        .collect()
}

#[test]
fn a_sync_creates_and_replaces_special_files_like_a_local_one() {
    over_each("a_sync_creates_and_replaces_special_files", |scratch, machine| {
        let local = scratch.folder("local");
        let source = scratch.folder("source");
        create(&source);
        let wanted = specials(&source);
        let obstacles = "touch pipe; mkdir other; mkfifo socket; mkfifo extra";
        shell(&local, obstacles).expect(0);
        let mut alone = thalweg();
        alone.args(["sync", "-i", "--delete"]);
        let expected = lines(&run(alone.arg(&source).arg(&local)).expect(0));
        for is_push in [false, true] {
            let dst = scratch.folder(&format!("dst{is_push}"));
            shell(&dst, obstacles).expect(0);
            let both = BothWays { machine, source: source.clone(), is_push };
            assert_eq!(lines(&both.sync(&["-n", "--delete"], &dst).expect(0)), expected);
            assert_eq!(lines(&both.sync(&["-i", "--delete"], &dst).expect(0)), expected);
            assert_eq!(specials(&dst), wanted);
            assert!(lines(&both.sync(&["-i", "--delete"], &dst).expect(0)).is_empty());
            shell(&dst, "chmod 600 pipe").expect(0);
            both.sync(&[], &dst).expect(0);
            assert_eq!(specials(&dst), wanted);
        }
    });
}

/// With `-L`, a link to a FIFO becomes a FIFO. The sync removes an ACL that a FIFO inherits, and replaces a FIFO of
/// another user.
#[test]
fn special_files_get_only_the_attributes_of_the_source() {
    let test = "special_files_get_only_the_attributes_of_the_source";
    over_each(test, |scratch, machine| {
        let source = scratch.folder("source");
        shell(&source, "mkfifo -m 660 pipe; ln -s pipe link; ln -s /dev/null null").expect(0);
        let has_acls = has_tools(test, &["setfacl", "getfacl"]);
        let is_root = rustix::process::geteuid().is_root();
        for is_push in [false, true] {
            let dst = scratch.folder(&format!("dst{is_push}"));
            if has_acls {
                shell(&dst, "setfacl -d -m u:1234:rwx .").expect(0);
            }
            let both = BothWays { machine, source: source.clone(), is_push };
            both.sync(&["-L"], &dst).expect(i32::from(!is_root));
            assert!(fs::symlink_metadata(dst.join("link")).unwrap().file_type().is_fifo());
            assert_eq!(dst.join("null").exists(), is_root);
            assert_eq!(fs::metadata(dst.join("pipe")).unwrap().mode() & 0o777, 0o660);
            if has_acls {
                let said = shell(&dst, "getfacl -cs pipe").expect(0);
                assert_eq!(String::from_utf8_lossy(&said.stdout), "");
            }
            if is_root {
                shell(&dst, "chown 1234 pipe").expect(0);
                let planted = fs::metadata(dst.join("pipe")).unwrap().ino();
                both.sync(&[], &dst).expect(0);
                let found = fs::metadata(dst.join("pipe")).unwrap();
                assert!(found.ino() != planted && found.uid() == 0);
            }
        }
    });
}

/// Hard links of FIFOs, sockets, devices and symbolic links are kept, as by a local sync and by `rsync -aH`.
#[test]
fn special_files_and_links_with_several_names_stay_one_inode() {
    over_each("special_files_and_links_with_several_names", |scratch, machine| {
        let source = scratch.folder("source");
        create(&source);
        let names = "mkdir -p d/e; ln -s nowhere link; touch -h -d 2001-02-03 link
            for name in *; do test -d $name || ln $name d/e/$name; done; ln link d/z; ln pipe z";
        shell(&source, names).expect(0);
        let inode = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
        for is_push in [false, true] {
            let dst = scratch.join(&format!("dst{is_push}"));
            let both = BothWays { machine, source: source.clone(), is_push };
            let sync_planned = || {
                let planned = lines(&both.sync(&["-n", "--delete"], &dst).expect(0));
                assert_eq!(lines(&both.sync(&["-i", "--delete"], &dst).expect(0)), planned);
                assert_eq!(record(&dst), record(&source));
                assert!(lines(&both.sync(&["-i", "--delete"], &dst).expect(0)).is_empty());
                planned
            };
            let planned = sync_planned();
            for line in ["cS+++++++++ pipe", "hS+++++++++ z", "hL+++++++++ d/z"] {
                assert!(planned.iter().any(|planned| planned == line), "{line} in {planned:#?}");
            }
            // Separate entries that an earlier version made, an obstacle, and a directory in place of a name.
            let apart = "rm z d/z link d/e/socket; cp -a pipe new; mv new z; ln -s nowhere link
                touch -h -d 2001-02-03 link; touch d/z; mkdir d/e/socket";
            shell(&dst, apart).expect(0);
            assert_ne!(inode(&dst.join("z")), inode(&dst.join("pipe")));
            sync_planned();
            // A FIFO with other attributes is replaced, so all of its names change.
            shell(&dst, "chmod 600 pipe").expect(0);
            assert_eq!(sync_planned().len(), 3);
        }
        let pulled = scratch.join("pulled");
        run(machine.copy(&["-a"]).arg(machine.at(&source)).arg(&pulled)).expect(0);
        assert_eq!(record(&pulled), record(&source));
    });
}

/// The client fetches a large file with a separate request.
#[test]
fn a_large_file_replaces_a_special_file() {
    let scratch = Scratch::new();
    let machine = OtherMachine::by_script(scratch.path());
    let source = scratch.folder("source");
    for name in ["fifo", "socket"] {
        bytes::write(&source.join(name), 7, 17 << 20);
    }
    for is_push in [false, true] {
        let dst = scratch.folder(&format!("dst{is_push}"));
        shell(&dst, "mkfifo fifo").expect(0);
        drop(UnixListener::bind(dst.join("socket")).unwrap());
        let both = BothWays { machine: &machine, source: source.clone(), is_push };
        let planned = lines(&both.sync(&["-n", "--delete"], &dst).expect(0));
        assert_eq!(lines(&both.sync(&["-i", "--delete"], &dst).expect(0)), planned);
        assert_eq!(record(&dst), record(&source));
    }
}

#[test]
fn a_copy_creates_special_files() {
    over_each("a_copy_creates_special_files", |scratch, machine| {
        let source = scratch.folder("source");
        create(&source);
        let [pulled, pushed] = ["pulled", "pushed"].map(|name| scratch.join(name));
        run(machine.copy(&["-a"]).arg(machine.at(&source)).arg(&pulled)).expect(0);
        run(machine.copy(&["-a"]).arg(&source).arg(machine.at(&pushed))).expect(0);
        for copy in [pulled, pushed] {
            assert_eq!(specials(&copy), specials(&source));
        }
    });
}
