//! Copies: between open files, a file, a tree.

use std::fs::{self, File};
use thalweg::{Guarantees, Hash};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    fs::create_dir_all("photos/2026")?;
    fs::write("photos/2026/one", "some bytes")?;

    // Between open files, pipes or sockets (any `AsFd`), from the current offset to the end.
    let (source, sink) = (File::open("photos/2026/one")?, File::create("one")?);
    let report = thalweg::copy(&source, &sink, Guarantees::default())?;
    let main = report.main().map_or("nothing", |share| share.mechanism);
    println!("{} bytes by {main}", report.bytes);

    // By path. The destination appears when the copy is complete.
    thalweg::copy_file("photos/2026/one", "two")?;
    let report = thalweg::copy_tree("photos", "backup").verify(Hash::Xxh3).run()?;
    println!("{} files, {} folders", report.files, report.dirs);
    Ok(())
}
