//! A bare command line for measuring: `tree_copy [-p|-a] [-r] [-jN] SRC DST`.
use std::path::{Path, PathBuf};
use thalweg_tree::{CopyOptions, Preserve};

fn main() {
    let mut options = CopyOptions { recursive: true, ..CopyOptions::default() };
    let mut paths: Vec<PathBuf> = Vec::new();
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "-a" => options = CopyOptions::archive(),
            "-p" => options.preserve = Preserve::usual(),
            "-mt" => options.preserve = Preserve { mode: true, times: true, ..Preserve::default() },
            "--resume" => options.resume = true,
            _ if arg.starts_with("-j") => options.jobs = arg[2..].parse().unwrap_or(0),
            _ => paths.push(arg.into()),
        }
    }
    let Some(destination) = paths.pop() else { return };
    match thalweg_tree::copy(&paths, Path::new(&destination), &options, &()) {
        Ok(report) => println!("{report:?}"),
        Err(error) => println!("{error}"),
    }
}
