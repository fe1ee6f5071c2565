//! Builds the object that is preloaded, from the sources of this crate and of the kernels. The library includes the object from
//! OUT_DIR.
//!
//! `kernels` is a symbolic link to the sources of thalweg-kernels, so that a published package
//! contains them.
//!
//! The script calls rustc directly. Whatever profile and flags cargo uses for the library, the object is optimised, aborts on a
//! panic, and links no library.

use std::{env, fs, path::Path, process::Command};

const FLAGS: &[&str] = &[
    "--edition=2024",
    "--cfg=thalweg_object",
    "--cap-lints=allow",
    "-Copt-level=3",
    "-Ccodegen-units=1",
    "-Cpanic=abort",
];

/// Links without start files, libraries and symbols of other objects. The unwind tables of Rust's crate `core` refer to
/// `rust_eh_personality`. The object never calls that function, so the linker defines it as 0.
const LINKED_ALONE: &[&str] = &[
    "-Clto=fat",
    "-Clink-arg=-nostdlib",
    "-Clink-arg=-nostartfiles",
    "-Clink-arg=-Wl,-Bsymbolic,--no-undefined,--defsym=rust_eh_personality=0",
    "-Clink-arg=-Wl,-soname,thalweg-preload.so",
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(thalweg_object)");
    for path in ["src", "kernels", "build.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    let missing = build(out).err().unwrap_or_default();
    if !missing.is_empty() {
        println!("cargo::warning=no preload object: {missing}");
        fs::write(out.join("preload.so"), "").expect("OUT_DIR is writable");
    }
    fs::write(out.join("missing.txt"), missing).expect("OUT_DIR is writable");
}

/// Builds the object. Returns the reason if this target is not supported; panics if a supported build
/// fails.
fn build(out: &Path) -> Result<(), String> {
    let var = |name: &str| env::var(name).unwrap_or_default();
    let (target, host) = (var("TARGET"), var("HOST"));
    let architecture = var("CARGO_CFG_TARGET_ARCH");
    if !matches!(architecture.as_str(), "x86_64" | "aarch64") {
        return Err(format!("not written for {architecture}"));
    }
    let linker = env::var("RUSTC_LINKER").ok().map(|linker| format!("-Clinker={linker}"));
    let kernels = out.join("libthalweg_kernels.rlib");
    let compiled = rustc(&target, |rustc| {
        rustc.args(["--crate-name=thalweg_kernels", "--crate-type=lib", "kernels/lib.rs"]);
        rustc.arg("-o").arg(&kernels);
    });
    let linked = compiled.and_then(|()| {
        rustc(&target, |rustc| {
            rustc.args(["--crate-name=thalweg_preload", "--crate-type=cdylib", "src/lib.rs"]);
            rustc.arg(format!("--extern=thalweg_kernels={}", kernels.display()));
            rustc.args(LINKED_ALONE).args(&linker).arg("-o").arg(out.join("preload.so"));
        })
    });
    match linked {
        // A compiler for another target is often installed without a linker for it.
        Err(words) if target != host => Err(format!(
            "it could not be built for {target}: {}",
            words.lines().next().unwrap_or_default()
        )),
        Err(words) => panic!("the preload object could not be built:\n{words}"),
        Ok(()) => Ok(()),
    }
}

fn rustc(target: &str, add: impl FnOnce(&mut Command)) -> Result<(), String> {
    let mut rustc = Command::new(env::var_os("RUSTC").expect("cargo sets RUSTC"));
    rustc.args(FLAGS).arg(format!("--target={target}"));
    if target.starts_with("aarch64") {
        // Outlined atomics would need libc's getauxval to read the CPU's features.
        rustc.arg("-Ctarget-feature=-outline-atomics");
    }
    add(&mut rustc);
    let done =
        rustc.output().map_err(|error| format!("{}: {error}", rustc.get_program().display()))?;
    if done.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }
}
