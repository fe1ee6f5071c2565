//! A whole client and a server that answers anything. No answer may crash or hang the client, and a name appears only
//! with a complete file or tree. Nothing is created outside the destination.

use std::{fs, path::Path};

use thalweg_core::atomic_file::{Destination, Until};
use thalweg_serve::client::{
    Connections, DigestList, Expected, FetchOptions, FetchUrl, TlsTrust, fetch, header,
    tree::{TreeDestination, TreeOptions, fetch_tree},
};
use thalweg_tree::Hash;

use crate::{
    scripted::{CERTIFICATE, Scripted},
    watched::{Watched, options},
};

// Bits of the first byte.
const PROXY: u8 = 1;
const SECURE: u8 = 2;
const TREE: u8 = 4;
const DIGEST: u8 = 8;
const SEVERAL: u8 = 16;
const SUMS: u8 = 32;
const AGAIN: u8 = 64;
const VERIFY: u8 = 128;

/// SHA-256 of `abc`.
const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// Runs one input: a byte of options, then the answers of the server.
pub fn run(bytes: &[u8]) {
    let Some((mode, script)) = bytes.split_first() else { return };
    let is_set = |bit: u8| mode & bit != 0;
    let server = Scripted::start(script);
    // A redirect may name any host. With a proxy, every connection goes to the scripted server.
    let redirects = script.to_ascii_lowercase().windows(8).any(|word| word == b"location");
    // If both bits are set, the client speaks TLS with the server itself.
    let is_proxied = is_set(PROXY) != is_set(SECURE);
    let proxy = (is_proxied || redirects).then(|| server.address());
    let mut options = options(proxy);
    // Without the certificate, the server is not trusted.
    options.trust = TlsTrust::of((!is_set(DIGEST)).then(|| CERTIFICATE.into()));
    options.verify = is_set(VERIFY);
    options.extra.wants_digest = is_set(VERIFY);
    if let Ok(text) = std::str::from_utf8(script) {
        let named = text.lines().next().map(header).and_then(Result::ok);
        options.extra.headers.extend(named);
    }
    // A retry costs half a second, so only one value of the first byte allows it.
    options.retries = u32::from(*mode == AGAIN | SEVERAL);
    if is_set(DIGEST) {
        let expected = Expected::of_digits(Hash::Sha256, ABC, "the test says");
        options.expected.push(expected.expect("64 digits"));
    }
    if is_set(SEVERAL) {
        options.connections = Connections::Exactly(3);
    }
    let scheme = if is_set(SECURE) { "https" } else { "http" };
    let target = format!("{scheme}://u:p%20@{}/d/f?q", server.address());
    let target = FetchUrl::parse(&target).expect("a URL");
    let place = tempfile::tempdir().expect("a directory");
    if is_set(SUMS) {
        let _ = DigestList::fetch(&target, &options, &|| Ok(()));
        return;
    }
    for _ in 0..if is_set(AGAIN) { 2 } else { 1 } {
        if is_set(TREE) {
            tree(&target, place.path(), &options);
        } else {
            file(&target, place.path(), &options);
        }
    }
}

fn file(target: &FetchUrl, place: &Path, options: &FetchOptions) {
    let path = place.join("f");
    let before = path.exists();
    let Ok(destination) = Destination::open_until(&path, Until::Part) else { return };
    match fetch(target, destination, options, &Watched) {
        Ok(fetched) => {
            let length = fs::metadata(&path).expect("the file").len();
            assert_eq!(length, fetched.bytes);
            assert_eq!(names(place), ["f"]);
            let bytes = fs::read(&path).expect("the file");
            assert!(options.expected.is_empty() || bytes == b"abc");
        }
        Err(failure) => {
            drop(failure.error.to_string());
            assert_eq!(path.exists(), before);
        }
    }
}

fn tree(target: &FetchUrl, place: &Path, options: &FetchOptions) {
    let path = place.join("tree");
    let before = path.exists();
    let by_hash = options.verify;
    let options =
        TreeOptions { jobs: 2, by_hash, most_list: 1 << 20, ..TreeOptions::new(options.clone()) };
    let Ok(to) = TreeDestination::open(&path) else { return };
    let fetched = fetch_tree(&target.as_directory(), to, &options, &Watched);
    let is_complete = fetched.is_ok_and(|fetched| fetched.halted.is_none());
    assert!(path.exists() == (is_complete || before));
    for name in names(place) {
        assert!(name == "tree" || name.starts_with(".tree.thalweg-part"), "{name}");
    }
}

fn names(place: &Path) -> Vec<String> {
    let names = fs::read_dir(place).expect("a directory");
    names.map(|entry| entry.expect("a name").file_name().to_string_lossy().into_owned()).collect()
}
