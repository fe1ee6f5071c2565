//! Links the command of debug builds at a fixed address, like the installed one (docs/decisions/022). The tests start it
//! some thousand times, and otherwise each start relocates its pointers.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
