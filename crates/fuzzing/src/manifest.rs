//! Manifests: no input may crash the parser. A parsed line must survive writing and parsing.

use thalweg_tree::{
    Hash,
    manifest::{Manifest, write_line},
};

/// Runs one input.
pub fn run(text: &[u8]) {
    for (_, stated) in Manifest::parse(text).lines {
        let hashes = match stated.digest.bytes().len() {
            16 => vec![Hash::Xxh3],
            _ => vec![Hash::Sha256, Hash::Blake3],
        };
        for hash in hashes {
            let mut line = Vec::new();
            write_line(&mut line, hash, &stated.digest, &stated.name);
            // If every line ends with a carriage return, the manifest is read as one that Windows wrote.
            write_line(&mut line, hash, &stated.digest, b"plain");
            let again = Manifest::parse(&line);
            assert!(again.malformed.is_empty());
            let (_, read) = again.lines.first().expect("its own line");
            assert_eq!((&read.name, read.digest), (&stated.name, stated.digest));
        }
    }
}
