//! Lists the files that the library contains: the studies, their programs, and the Java sources of these programs.
//! Outside the repository, for example in the package of this crate, the list is empty.

use std::{
    env,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

/// A study that contains this text runs programs of other projects. It is left out, because those programs can only be
/// built in the repository.
const OTHERS: &str = "\"../peers/";

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    let mut files = Vec::new();
    for (folder, ends) in
        [("studies", ".toml"), ("studies/programs", ""), ("java/src/main/java", ".java")]
    {
        let deep = folder.starts_with("java");
        println!("cargo:rerun-if-changed={}", root.join(folder).display());
        below(&root.join(folder), deep, &mut files)?;
        files.retain(|path: &PathBuf| {
            !path.starts_with(root.join(folder)) || path.to_string_lossy().ends_with(ends)
        });
    }
    files.sort();
    files.dedup();
    let mut list = String::from("&[\n");
    for path in files {
        println!("cargo:rerun-if-changed={}", path.display());
        if fs::read(&path)?.windows(OTHERS.len()).any(|part| part == OTHERS.as_bytes()) {
            continue;
        }
        let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        // Paths are relative to the repository, so that the list and the library are equal wherever the repository is.
        let _ = writeln!(
            list,
            "    ({name:?}, include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../../\", {name:?}))),"
        );
    }
    list.push(']');
    fs::write(Path::new(&env::var("OUT_DIR").unwrap_or_default()).join("carried.rs"), list)
}

/// Collects the files of a directory; with `deep`, also those of its subdirectories.
fn below(folder: &Path, deep: bool, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_file() {
            found.push(path);
        } else if deep {
            below(&path, deep, found)?;
        }
    }
    Ok(())
}
