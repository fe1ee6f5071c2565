//! Tests that the programs in docs/reference/java.md compile unchanged. Also tests the programs `receive` and `send` in the pages for C,
//! Rust and Java with each other, in all combinations.

use crate::support;
use thalweg_testing::jdk;

use std::{
    fs, io,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};
use support::{compile, guide, run, skip};

/// Compiles all programs of the page about Java at once. Returns the JDK and the directory with the classes. Without a JDK, counts a skip
/// and returns `None`.
fn java(test: &str) -> Option<(PathBuf, PathBuf)> {
    static BUILT: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    let compile = || {
        let jdk = jdk::jdk(|release| release >= 25)?;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("java-guides");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let mut javac = jdk::javac(&jdk);
        javac.args(["-Xlint:all,-restricted", "-Werror", "-implicit:class", "-d"]).arg(&folder);
        javac.arg("-sourcepath").arg(jdk::sources().join("src/main/java"));
        for (text, number) in in_java().iter().zip(0..) {
            let source = folder.join(format!("Guide{number}.java"));
            fs::write(&source, text).unwrap();
            javac.arg(source);
        }
        run(&mut javac);
        Some((jdk, folder))
    };
    let built = BUILT.get_or_init(compile);
    if built.is_none() {
        skip(test, &jdk::none());
    }
    built.clone()
}

fn in_java() -> Vec<String> {
    guide::blocks("java.md", "java")
}

/// Returns the command that runs program `number` of the page.
fn started((jdk, folder): &(PathBuf, PathBuf), number: usize) -> Command {
    let mut command = Command::new(jdk.join("bin/java"));
    command.args(jdk::SHORT).args(["--enable-native-access=ALL-UNNAMED", "-cp"]);
    command.arg(folder).arg(format!("Guide{number}"));
    command
}

#[test]
fn the_programs_of_the_page_about_java_compile_as_they_stand_and_run() {
    let test = "the_programs_of_the_page_about_java_compile_as_they_stand_and_run";
    let folder = tempfile::tempdir().unwrap();
    let blocks = in_java();
    assert!(blocks.len() >= 5, "{} programs in docs/reference/java.md", blocks.len());
    let Some(built) = java(test) else { return };
    for (text, number) in blocks.iter().zip(0..) {
        // The other programs need a path as an argument. The test below runs them.
        if text.contains("void main()") {
            let mut program = started(&built, number);
            let ran = run(program.current_dir(&folder).env("TMPDIR", folder.path()));
            assert!(!ran.stdout.is_empty(), "{text}");
        }
    }
}

#[test]
fn the_page_about_java_names_the_module_as_maven_knows_it() {
    let pom = fs::read_to_string(jdk::sources().join("pom.xml")).unwrap();
    let dependency = &guide::blocks("java.md", "xml")[0];
    for line in dependency.lines().filter(|line| line.starts_with("  <")) {
        assert!(pom.contains(&format!("\n{line}\n")), "{line} is not in pom.xml");
    }
}

/// A program from one of the pages.
struct Program {
    language: &'static str,
    receive: Command,
    send: Command,
}

fn c(folder: &Path) -> Program {
    let build = |name: &str| {
        let begin = format!("/* {name}.c */");
        let blocks = guide::blocks("c.md", "c");
        let source = folder.join(format!("{name}.c"));
        fs::write(&source, blocks.iter().find(|text| text.starts_with(&begin)).unwrap()).unwrap();
        let program = source.with_extension("");
        compile(&source, &program);
        Command::new(program)
    };
    Program { language: "C", receive: build("receive"), send: build("send") }
}

/// Returns the Rust programs, which are examples of the crate `thalweg`. A test of that crate compares them with docs/reference/rust.md.
fn rust() -> Program {
    let example = |name| Command::new(thalweg_testing::example(name));
    Program { language: "Rust", receive: example("receive"), send: example("send") }
}

fn java_pair(test: &str) -> Option<Program> {
    let (blocks, built) = (in_java(), java(test)?);
    let program = |has: &str| {
        let is_it = |text: &String| text.contains("arguments[0]") && text.contains(has);
        started(&built, blocks.iter().position(is_it).unwrap())
    };
    let (receive, send) = (program("Listener.bind"), program("producer.send"));
    Some(Program { language: "Java", receive, send })
}

#[test]
fn programs_of_the_pages_in_c_rust_and_java_talk_to_each_other_in_all_pairs() {
    let test = "programs_of_the_pages_in_c_rust_and_java_talk_to_each_other_in_all_pairs";
    let folder = tempfile::tempdir().unwrap();
    let mut programs = vec![c(folder.path()), rust()];
    programs.extend(java_pair(test));
    for receiver in 0..programs.len() {
        for sender in 0..programs.len() {
            let place = folder.path().join(format!("meeting-{receiver}-{sender}"));
            let mut listens = again(&programs[receiver].receive)
                .arg(&place)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            wait_for(&place, &mut listens);
            run(again(&programs[sender].send).arg(&place));
            let heard = listens.wait_with_output().unwrap();
            let (to, from) = (programs[receiver].language, programs[sender].language);
            assert!(heard.status.success(), "{from} to {to}: {}", heard.status);
            let heard = String::from_utf8(heard.stdout).unwrap();
            assert_eq!(heard, format!("{to} received: hello from {from}\n"));
        }
    }
}

#[test]
fn a_sender_without_a_receiver_names_the_path_in_every_language() {
    let test = "a_sender_without_a_receiver_names_the_path_in_every_language";
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("nowhere");
    let mut programs = vec![c(folder.path()), rust()];
    programs.extend(java_pair(test));
    for program in programs {
        let refused = again(&program.send).arg(&place).output().unwrap();
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{}", program.language);
        let named = told.contains(place.to_str().unwrap()) && told.contains("ENOENT")
            || told.contains("No such file or directory") && told.contains(place.to_str().unwrap());
        assert!(
            named && told.contains("start the process that listens"),
            "{}: {told}",
            program.language
        );
    }
}

/// Returns a copy of the command.
fn again(command: &Command) -> Command {
    let mut same = Command::new(command.get_program());
    same.args(command.get_args());
    same
}

/// Waits until the program listens. Connecting a socket of another type fails with EPROTOTYPE then, and the program does not notice this.
fn wait_for(place: &Path, program: &mut Child) {
    let asks = UnixDatagram::unbound().unwrap();
    let listens = |error: io::Error| error.raw_os_error() == Some(libc::EPROTOTYPE);
    while !asks.connect(place).is_err_and(listens) {
        assert!(program.try_wait().unwrap().is_none(), "{program:?} has ended");
        thread::sleep(Duration::from_millis(5));
    }
}
