//! Takes commands from README.md and the pages of docs, and runs them. The crates of the C, Rust and Java bindings test
//! the programs in those languages.

mod links;

use crate::support;
use thalweg_testing::{Sample, jdk};

use std::{
    env,
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use support::{Scratch, skip};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the lines of the code block that begins with `begins`.
fn block(page: &str, begins: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let (_, rest) = text.split_once(&format!("```\n{begins}")).expect(begins);
    let (block, _) = rest.split_once("\n```").expect("its end");
    format!("{begins}{block}").lines().map(str::to_owned).collect()
}

/// Makes a directory with the files of a checkout that these commands read. The commands write only there.
fn checkout() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("java/pom.xml", fs::read(root().join("java/pom.xml")).unwrap());
    symlink(root().join("java/src").canonicalize().unwrap(), scratch.path("java/src")).unwrap();
    symlink(root().join("studies").canonicalize().unwrap(), scratch.path("studies")).unwrap();
    scratch
}

/// Returns a command that runs shell lines in the scratch directory, with this JDK first in PATH.
fn shell(scratch: &Scratch, jdk: &Path, lines: &[String]) -> Command {
    let mut path = OsString::from(jdk.join("bin"));
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.arg("-ec").arg(lines.join("\n")).current_dir(scratch.path(".")).stdin(Stdio::null());
    command.env("PATH", path).env("JAVA_HOME", jdk);
    command
}

fn jdk(test: &str) -> Option<PathBuf> {
    let found = jdk::jdk(|release| release >= 25);
    if found.is_none() {
        skip(test, &jdk::none());
    }
    found
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns the blocks that a page marks as runnable with the language `sh`.
fn runnable(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let blocks = text.split("```sh\n").skip(1);
    blocks.map(|rest| rest.split_once("\n```").expect("its end").0.to_owned()).collect()
}

/// Returns README.md and every page below docs.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut directories = vec![root().join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

#[test]
fn every_block_of_shell_that_is_marked_runs_as_it_stands() {
    let mut count = 0;
    let mut sample = Sample::new("every_block_of_shell_that_is_marked_runs", 3);
    for page in pages() {
        for block in sample.of(runnable(&page)) {
            let scratch = Scratch::new();
            let bin = Path::new(env!("CARGO_BIN_EXE_thalweg")).parent().unwrap();
            let mut path = OsString::from(bin);
            path.push(":");
            path.push(env::var_os("PATH").unwrap_or_default());
            let ran = Command::new("bash")
                .args(["-euo", "pipefail", "-c", &block])
                .current_dir(scratch.path("."))
                .stdin(Stdio::null())
                .env("PATH", path)
                .env("HOME", scratch.path("."))
                .env("XDG_RUNTIME_DIR", scratch.path("."))
                .env("THALWEG_PROFILE", scratch.path("profile.json"))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
            assert!(ran.status.success(), "{}:\n{block}\n{}: {said}", page.display(), ran.status);
            count += 1;
        }
    }
    assert!(count > 0, "no page has a block that begins with sh");
}

/// Returns the commands of a page in order: blocks of `sh`, and lines that begin with `$ ` in blocks of `console`.
fn commands(page: &Path) -> String {
    let text = fs::read_to_string(page).unwrap();
    let mut script = String::new();
    for block in text.split("\n```").skip(1).step_by(2) {
        let (language, body) = block.split_once('\n').expect("its language");
        let typed = body.lines().filter_map(|line| line.strip_prefix("$ "));
        match language {
            "sh" => script.push_str(body),
            "console" => script.push_str(&typed.collect::<Vec<_>>().join("\n")),
            _ => continue,
        }
        script.push('\n');
    }
    script
}

#[test]
#[ignore = "takes long: the audit suite languages runs it"]
fn every_command_of_the_tutorial_about_a_claim_runs_in_its_order() {
    let scratch = Scratch::new();
    let script = commands(&root().join("docs/tutorials/check-a-claim.md"));
    // Skips the pauses between the processes of the study.
    let script = script.replace("./cat-dd.toml\n", "./cat-dd.toml --pause 0s\n");
    let bin = Path::new(env!("CARGO_BIN_EXE_thalweg")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), env::var("PATH").unwrap_or_default());
    let ran = Command::new("bash")
        .args(["-euxo", "pipefail", "-c", &script])
        .current_dir(scratch.path("."))
        .stdin(Stdio::null())
        .env("PATH", path)
        .env("HOME", scratch.path("."))
        .env_remove("XDG_STATE_HOME")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
    assert!(ran.status.success(), "{script}\n{}: {said}", ran.status);
    assert_eq!(said.matches("\ncat-dd.2 as published: ").count(), 3, "{said}");
    assert!(!said.contains("not runnable"), "{said}");
    let page = fs::read_to_string(scratch.path("claim.html")).expect("the report");
    assert!(page.contains("cat is as fast as dd"), "the page shows the claim");
}

/// Appends the sources of all tests to `all`.
fn test_sources(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let extension = entry.extension().unwrap_or_default();
        if entry.is_dir() && !entry.ends_with("target") {
            test_sources(&entry, all);
        } else if ["rs", "py", "java", "c"].iter().any(|known| extension == *known) {
            all.push_str(&fs::read_to_string(&entry).unwrap_or_default());
        }
    }
}

#[test]
fn the_page_of_commands_has_the_help_of_every_command() {
    if !is_installed("python3") {
        return skip(
            "the_page_of_commands_has_the_help_of_every_command",
            "python3 is not installed",
        );
    }
    let script = root().join("tests/setup/commands");
    let ran = Command::new(script).arg(env!("CARGO_BIN_EXE_thalweg")).output().unwrap();
    let output = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
    assert!(ran.status.success(), "{output}");
}

#[test]
fn options_of_rsync_that_the_guide_marks_as_always_on_are_accepted() {
    let page = fs::read_to_string(root().join("docs/guides/coming-from-rsync.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | always |"));
    // Every second part is an option in backticks.
    let options = rows.flat_map(|(options, _)| options.split('`').skip(1).step_by(2));
    let options: Vec<&str> = options.collect();
    assert!(options.len() > 15, "{options:?}");
    let scratch = Scratch::new();
    scratch.file("src/file", "text");
    for option in options {
        let ran = scratch.run(&["sync", option, "src", "dst"]);
        assert_eq!(ran.code, 0, "{option}: {}", ran.err);
    }
}

#[test]
fn every_guarantee_names_a_test_that_exists() {
    let mut sources = String::new();
    for folder in ["crates", "python/tests", "java/src/test"] {
        test_sources(&root().join(folder), &mut sources);
    }
    let page = fs::read_to_string(root().join("docs/explanation/guarantees.md")).unwrap();
    let rows: Vec<_> =
        page.lines().filter(|line| line.starts_with("| ") && !line.contains("| test |")).collect();
    assert!(rows.len() > 30, "{} rows", rows.len());
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit("| ").next().unwrap();
        let names: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test: {row}");
        for name in names {
            let is_function = ["fn ", "def ", "void "]
                .iter()
                .any(|word| sources.contains(&format!("{word}{name}(")));
            let is_suite = root().join("tests/audit/suites").join(name).is_file();
            assert!(is_function || is_suite, "'{name}' is neither a test nor a suite: {row}");
        }
    }
}

#[test]
#[ignore = "takes long: the audit suite languages runs it"]
fn five_lines_of_the_guide_fuzz_a_java_parser() {
    let test = "five_lines_of_the_guide_fuzz_a_java_parser";
    let begins = "(cd java && mvn -q package dependency:copy";
    let mut lines = block("docs/guides/fuzz-a-java-parser.md", begins);
    assert_eq!(lines.len(), 5, "{lines:#?}");
    for program in ["mvn", "afl-fuzz"] {
        if !is_installed(program) {
            return skip(test, &format!("{program} is not installed"));
        }
    }
    let Some(jdk) = jdk(test) else { return };
    let scratch = checkout();
    // By itself, afl-fuzz never ends. These options end it after 5000 executions, or after an hour if it hangs.
    lines[4] = lines[4].replacen("afl-fuzz ", "afl-fuzz -E 5000 -V 3600 ", 1);
    let ran = shell(&scratch, &jdk, &lines)
        // The test has no terminal, shares the CPUs with other tests, and cannot change where the kernel writes core
        // files.
        .env("AFL_NO_UI", "1")
        .env("AFL_NO_AFFINITY", "1")
        .env("AFL_SKIP_CPUFREQ", "1")
        .env("AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
    assert!(ran.status.success(), "{}: {said}", ran.status);
    let found = inputs(&scratch.path("out/default/queue"));
    assert!(found.iter().any(|name| name.contains("orig:one")), "{found:?}");
    let new = found.iter().filter(|name| name.contains("+cov")).count();
    assert!(new > 3, "{found:?}: {said}");
    // Most inputs are invalid. The exceptions that the parser throws for them do not count as crashes.
    assert!(inputs(&scratch.path("out/default/crashes")).is_empty(), "{said}");
}

/// Returns the names of the inputs in a directory of the fuzzer.
fn inputs(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("id:")).collect()
}

/// A process that is killed at the end of the test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "takes long: the audit suite languages runs it"]
fn the_guides_programs_of_study_003_send_a_file() {
    let test = "the_guides_programs_of_study_003_send_a_file";
    let Some(jdk) = jdk(test) else { return };
    let lines = block("docs/reference/java.md", "javac --release 25");
    let ([build @ .., server, client], true) = (&lines[..], lines.len() > 3) else {
        panic!("{lines:#?}");
    };
    let scratch = checkout();
    let built = shell(&scratch, &jdk, build).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    scratch.file("sent", vec![7; 3_000_001]);
    for way in ["transferto", "traditional"] {
        // Changes the line so that the server takes any free port and runs in the foreground.
        let server = server.replace("transferto", way).replace("port=2000", "port=0");
        let server = [format!("exec {}", server.strip_suffix(" &").unwrap())];
        let mut server =
            Ending(shell(&scratch, &jdk, &server).stdout(Stdio::piped()).spawn().unwrap());
        let mut told = BufReader::new(server.0.stdout.take().unwrap()).lines();
        let port = told.next().expect("its port").unwrap().replace("port ", "port=");
        let client = client.replace("transferto", way).replace("port=2000", &port);
        let client = [client.replace("FILE", "sent")];
        let ran = shell(&scratch, &jdk, &client).output().unwrap();
        let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
        assert!(said.starts_with("3000001 bytes sent in "), "{said}");
        let served = told.next().expect("what it served").unwrap();
        assert!(served.starts_with("served 3000001 "), "{served}");
    }
}
