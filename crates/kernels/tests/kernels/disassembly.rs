//! Checks the compiled loops. A kernel that calls memcpy would never return in a program where it
//! replaces memcpy. A kernel whose vectors were split would be measured under the wrong name.

use crate::support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

struct Function {
    name: String,
    text: String,
}

/// Returns the disassembled functions of an optimised build of this crate, or the reason that they
/// are not available. The tests share one build.
fn functions() -> Result<&'static [Function], &'static str> {
    static BUILT: OnceLock<Result<Vec<Function>, String>> = OnceLock::new();
    BUILT.get_or_init(build).as_deref().map_err(String::as_str)
}

fn build() -> Result<Vec<Function>, String> {
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels.o");
    let rustc = std::env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from);
    let built = Command::new(rustc)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["--crate-name=kernels", "--crate-type=lib", "--edition=2024", "-Ccodegen-units=1"])
        .args(["-Copt-level=3", "-Cpanic=abort", "--cap-lints=allow", "--emit=obj", "-o"])
        .arg(&object)
        .arg("src/lib.rs")
        .output()
        .map_err(|error| format!("rustc does not start: {error}"))?;
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let shown = Command::new("objdump")
        .args(["--disassemble", "--reloc", "--demangle", "--no-show-raw-insn"])
        .arg(&object)
        .output()
        .map_err(|error| format!("objdump does not start: {error}"))?;
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));

    let mut functions: Vec<Function> = Vec::new();
    for line in String::from_utf8_lossy(&shown.stdout).lines() {
        let name = line.strip_suffix(">:").and_then(|line| line.split_once(" <"));
        if let Some((_, name)) = name {
            functions.push(Function { name: name.to_owned(), text: String::new() });
        } else if let Some(function) = functions.last_mut() {
            function.text.push_str(line);
            function.text.push('\n');
        }
    }
    Ok(functions)
}

#[test]
fn no_loop_became_a_call_of_what_it_stands_in_for() {
    let all = match functions() {
        Ok(all) => all,
        Err(why) => {
            return support::skip("no_loop_became_a_call_of_what_it_stands_in_for", why);
        }
    };
    let mut checked = 0;
    for function in all {
        let is_loop = ["::rows::", "::crc32c::", "::xxh3::"];
        let is_loop = is_loop.iter().any(|module| function.name.contains(module));
        if !is_loop || function.name.contains("::rows::libc::") {
            continue;
        }
        checked += 1;
        for call in ["memcpy", "memmove", "memset"] {
            assert!(!function.text.contains(call), "{} calls {call}", function.name);
        }
    }
    assert!(checked >= thalweg_kernels::KERNELS.len(), "only {checked} loops were found");
}

#[test]
fn every_vector_is_moved_whole_and_in_registers() {
    let all = match functions() {
        Ok(all) => all,
        Err(why) => return support::skip("every_vector_is_moved_whole_and_in_registers", why),
    };
    for (module, register) in [("avx2", "%ymm"), ("avx512", "%zmm")] {
        for name in ["copy", "move_", "fill"] {
            let path = format!("::wide::{module}::{name}");
            let mut found = all.iter().filter(|function| function.name.ends_with(&path)).peekable();
            assert!(found.peek().is_some(), "no function {path}");
            for function in found {
                assert!(function.text.contains(register), "{path} without {register}");
                // A stack access would mean that blocks are in memory between their load and their
                // store.
                assert!(!function.text.contains("(%rsp)"), "{path} goes through the stack");
            }
        }
    }
}

#[test]
fn every_hash_is_one_function_at_its_own_width() {
    let all = match functions() {
        Ok(all) => all,
        Err(why) => return support::skip("every_hash_is_one_function_at_its_own_width", why),
    };
    for (module, register) in [("avx2", "%ymm"), ("avx512", "%zmm")] {
        for name in ["copy", "sum"] {
            let path = format!("::xxh3::x86::{module}::{name}");
            let mut found = all.iter().filter(|function| function.name.ends_with(&path)).peekable();
            assert!(found.peek().is_some(), "no function {path}");
            for Function { text, .. } in found {
                let products = text.lines().filter(|line| line.contains("vpmuludq"));
                let mut products = products.map(|line| line.contains(register)).peekable();
                assert!(products.peek().is_some(), "{path} multiplies no vectors");
                assert!(products.all(|wide| wide), "{path} has vectors that were split");
                assert!(!text.contains("\tcall"), "{path} calls");
            }
        }
    }
}

#[test]
fn the_simple_loop_is_left_simple() {
    let all = match functions() {
        Ok(all) => all,
        Err(why) => return support::skip("the_simple_loop_is_left_simple", why),
    };
    let mut loops = all.iter().filter(|function| function.name.contains("::simple::")).peekable();
    assert!(loops.peek().is_some(), "no simple loop");
    for function in loops {
        for register in ["%xmm", "%ymm", "%zmm"] {
            assert!(!function.text.contains(register), "{} has {register}", function.name);
        }
    }
}

#[test]
fn tuned_is_a_comparison_and_one_jump_through_a_pointer() {
    let all = match functions() {
        Ok(all) => all,
        Err(why) => {
            return support::skip("tuned_is_a_comparison_and_one_jump_through_a_pointer", why);
        }
    };
    for path in ["entry::copy_by_size", "entry::move_by_size", "entry::fill_by_size"] {
        let path = format!("::{path}");
        let mut found = all.iter().filter(|function| function.name.ends_with(&path)).peekable();
        assert!(found.peek().is_some(), "no function {path}");
        for Function { text, .. } in found {
            // Counts the jumps through a register. The jump to the larger bands goes through a
            // table instead, but only in an unlinked object.
            let jumps = text.lines().filter(|line| line.contains("jmp    *%"));
            assert_eq!(jumps.count(), 1, "{path} has one jump through a pointer:\n{text}");
            let others = text.lines().filter(|line| line.contains("\tj") && !line.contains("jmp"));
            assert_eq!(others.count(), 1, "{path} has one branch:\n{text}");
            assert!(!text.contains("\tcall"), "{path} calls, and comes back:\n{text}");
            assert!(!text.contains("push"), "{path} keeps something:\n{text}");
        }
    }
}
