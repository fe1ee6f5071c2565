use super::*;
use crate::arms::tests::skip;
use std::fs;

fn studies() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies")
}

fn open(with: &toml::Table, bytes: u64, scratch: &Path) -> Result<Box<dyn Arm>, Unfit> {
    let (studies, program) = (studies(), Path::new("/nowhere"));
    WORKER.open(&ArmJob { arm: "w", with, bytes, scratch, studies: &studies, program })
}

fn reason<T>(result: Result<T, Unfit>) -> String {
    match result {
        Ok(_) => panic!("it went well"),
        Err(unfit) => unfit.reason,
    }
}

/// Returns the parameters of a worker that is this shell script, and the directory that contains
/// it.
fn shell(script: &str) -> (tempfile::TempDir, toml::Table) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("worker.sh");
    thalweg_testing::script(&path, script);
    let mut with = toml::Table::new();
    with.insert("program".to_owned(), path.display().to_string().into());
    (folder, with)
}

/// Returns a worker that answers `hello` and runs `rest` for every other request.
fn after_hello(rest: &str) -> (tempfile::TempDir, toml::Table) {
    shell(&format!(
        "while read -r line; do case $line in hello) echo thalweg-worker 1;; quit) exit 0;; *) {rest};; esac; done"
    ))
}

fn program(text: &str) -> toml::Table {
    text.parse().unwrap()
}

/// Returns `None` if there is no C compiler; the test then counts as skipped.
fn built(test: &str, with: &toml::Table, bytes: u64, scratch: &Path) -> Option<Box<dyn Arm>> {
    match open(with, bytes, scratch) {
        Ok(piece) => Some(piece),
        Err(unfit) if unfit.reason.contains("needs a C compiler") => {
            skip(test, &unfit.reason);
            None
        }
        Err(unfit) => panic!("{test}: {}", unfit.reason),
    }
}

#[test]
fn every_region_and_action_does_its_work_and_proves_it() {
    let scratch = tempfile::tempdir().unwrap();
    for kind in ["file", "sysv", "posix", "memfd", "anon"] {
        for (action, fresh) in
            [("random", 0), ("random", 1), ("xorshift", 1), ("clear", 0), ("generator", 0)]
        {
            let with = program(&format!(
                "program = 'programs/regions.c'\ncflags = ['-O0']\nargs = ['kind={kind}', 'action={action}', 'fresh={fresh}', 'writes=1000']"
            ));
            let name = format!("regions {kind} {action}");
            let Some(mut piece) = built(&name, &with, 65_539, scratch.path()) else { return };
            piece.warm_up().unwrap();
            let sample = piece.sample(3).unwrap();
            let moved = if action == "clear" { 65_539 } else { 1000 };
            assert_eq!(sample.bytes, 3 * moved, "{name}");
            assert!(sample.wall > Duration::ZERO && sample.calls_kind == CallsKind::ReadWrite);
            // Copies in memory need no system calls. Calls for the protocol may be counted late.
            assert!(sample.calls.is_none_or(|calls| fresh == 1 || calls <= 2), "{sample:?}");
            assert_eq!(sample.calls.is_none(), piece.calls_uncounted().is_some());
            piece.check().unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(piece.is_fresh(), fresh == 1);
            assert!(piece.alias().is_none() && piece.promises().is_none());
        }
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "files are left behind");
}

#[test]
fn every_way_between_processes_arrives_and_shows_whether_it_is_stable() {
    let scratch = tempfile::tempdir().unwrap();
    let sides: &[_] = &[("both", 0), ("sender", 1), ("receiver", 0)];
    let alone: &[_] = &[("both", 0), ("both", 1)];
    for (way, seen, sides) in [
        ("shm", Alias::Copied, sides),
        ("vmsplice", Alias::Shared, sides),
        ("vmsplice-read", Alias::Shared, sides),
        ("memcpy", Alias::Copied, alone),
        ("mymemcpy", Alias::Copied, alone),
    ] {
        for (side, fresh) in sides {
            let with = program(&format!(
                "program = 'programs/between.c'\nargs = ['way={way}', 'side={side}', 'fresh={fresh}']\npromises = {{ stable = true, private = true }}"
            ));
            let Some(mut piece) = built(way, &with, 300_001, scratch.path()) else { return };
            match piece.warm_up() {
                Err(unfit) if unfit.reason.contains("vmsplice") => return skip(way, &unfit.reason),
                warm => warm.unwrap(),
            }
            piece.check().unwrap();
            let sample = piece.sample(2).unwrap();
            assert_eq!(sample.bytes, 600_002);
            let counts = way.contains("vms") || way == "mymemcpy";
            assert_eq!(sample.calls_kind == CallsKind::Counted, counts);
            assert!(sample.calls.is_some() || piece.calls_uncounted().is_some(), "{way}");
            assert_eq!(piece.alias(), Some(Ok(seen)), "{way}");
            piece.check().unwrap();
            assert_eq!(piece.promises(), Some(Guarantees::COPIED));
        }
    }
}

#[test]
fn loops_copy_at_every_length_and_offset() {
    let scratch = tempfile::tempdir().unwrap();
    for (bytes, more) in
        [(64, "constant=1"), (4096, "constant=1"), (1, "offset=3"), (999, "span=100000")]
    {
        for which in ["simple", "memcpy"] {
            let with = program(&format!(
                "program = 'programs/loops.c'\ncflags = ['-O3']\nargs = ['loop={which}', 'use=read-back', '{more}']"
            ));
            let Some(mut piece) = built("loops", &with, bytes, scratch.path()) else { return };
            piece.warm_up().unwrap();
            assert_eq!(piece.sample(100).unwrap().bytes, 100 * bytes);
            piece.check().unwrap();
        }
    }
}

#[test]
fn executions_of_a_fuzzer_count_their_branches_in_every_kind_of_map() {
    let scratch = tempfile::tempdir().unwrap();
    for kind in ["sysv", "posix", "file"] {
        let with = program(&format!("program = 'programs/forkserver.c'\nargs = ['kind={kind}']"));
        if let Err(unfit) = open(&with, 65536, scratch.path())
            && unfit.reason.contains("is on tmpfs")
        {
            skip(kind, &unfit.reason);
            continue;
        }
        let Some(mut piece) = built(kind, &with, 65536, scratch.path()) else { return };
        piece.warm_up().unwrap();
        let sample = piece.sample(20).unwrap();
        assert_eq!(sample.bytes, 20 * 65536);
        assert!(sample.minor_faults >= 20, "each child touches the map: {sample:?}");
        piece.check().unwrap();
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "files are left behind");
}

/// What a link between two hosts needs, as the reasons name it.
const LINK_NEEDS: [&str; 8] = [
    "needs a C compiler",
    "liburing-dev",
    "libssl-dev",
    "IORING_OP_SEND_ZC",
    "io_uring:",
    "network namespace",
    "iproute2",
    "does not encrypt in the kernel",
];

#[test]
fn files_cross_a_link_between_two_hosts_in_every_way() {
    let scratch = tempfile::tempdir().unwrap();
    let tls = "cflags = ['-DWITH_TLS']\npkg_config = { openssl = 'libssl-dev' }";
    let uring = "cflags = ['-DWITH_URING']\npkg_config = { liburing = 'liburing-dev' }";
    for (args, flags) in [
        ("'way=read-send'", ""),
        ("'way=sendfile', 'mbit=1000'", ""),
        ("'way=send-zc'", uring),
        ("'way=tls'", tls),
        ("'way=ktls'", tls),
    ] {
        for spoil in [0, 1] {
            let text =
                format!("program = 'programs/links.c'\nargs = [{args}, 'spoil={spoil}']\n{flags}");
            let ran = open(&program(&text), 1_000_001, scratch.path()).and_then(|mut piece| {
                piece.warm_up()?;
                Ok(piece)
            });
            let mut piece = match ran {
                Ok(piece) => piece,
                Err(Unfit { reason, .. })
                    if LINK_NEEDS.iter().any(|needed| reason.contains(needed)) =>
                {
                    skip(args, &reason);
                    break;
                }
                Err(unfit) => panic!("{args}: {}", unfit.reason),
            };
            assert_eq!(piece.sample(2).unwrap().bytes, 2_000_002, "{args}");
            assert_eq!(piece.check().is_err(), spoil == 1, "{args}");
        }
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "files are left behind");
}

#[test]
fn a_planted_wrong_byte_is_found_by_every_program() {
    let scratch = tempfile::tempdir().unwrap();
    for (name, args) in [
        ("regions", "'action=random'"),
        ("regions", "'action=clear'"),
        ("regions", "'action=xorshift'"),
        ("between", "'way=shm'"),
        ("between", "'way=memcpy'"),
        ("loops", "'loop=simple'"),
        ("forkserver", "'kind=sysv'"),
    ] {
        let with = program(&format!("program = 'programs/{name}.c'\nargs = [{args}, 'spoil=1']"));
        let Some(mut piece) = built(name, &with, 8192, scratch.path()) else { return };
        piece.warm_up().unwrap();
        let words = reason(piece.check());
        assert!(words.contains(&format!("programs/{name}.c")), "{words}");
    }
}

#[test]
fn a_program_that_refuses_says_why() {
    let scratch = tempfile::tempdir().unwrap();
    for (name, args, why) in [
        ("regions", "'kind=magic'", "kind=magic"),
        ("regions", "'speed=1'", "known: kind action writes"),
        ("regions", "'writes=many'", "not a number"),
        ("regions", "'kind=anon', 'flush=1'", "no file"),
        ("between", "'way=memcpy', 'side=sender'", "one process"),
        ("loops", "'constant=1', 'offset=9999'", "offset"),
    ] {
        let with = program(&format!("program = 'programs/{name}.c'\nargs = [{args}]"));
        match open(&with, 4096, scratch.path()) {
            Err(unfit) if unfit.reason.contains("C compiler") => {
                return skip("refusals", &unfit.reason);
            }
            result => assert!(reason(result).contains(why), "{args}"),
        }
    }
}

#[test]
fn a_source_that_does_not_compile_is_a_reason_with_the_compilers_words() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("broken.c");
    fs::write(&source, "int main(void) { return nothing_of_this_name; }\n").unwrap();
    let with = program(&format!("program = '{}'", source.display()));
    let words = reason(open(&with, 1, folder.path()));
    if words.contains("needs a C compiler") {
        return skip("broken source", &words);
    }
    assert!(words.contains("nothing_of_this_name"), "{words}");
    let none = reason(open(&program("program = 'programs/none.c'"), 1, folder.path()));
    assert!(none.contains("none.c"), "{none}");
}

#[test]
fn packages_give_flags_that_the_studys_own_override() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        "Name: it\nDescription: a package\nVersion: 1\nCflags: -DPACKED=4 -DOWN=1\nLibs: -lm\n";
    let package = folder.path().join("it.pc");
    fs::write(&package, text).unwrap();
    // The compiler cannot compute the root of a number that it does not know, so the program needs
    // libm.
    let source = folder.path().join("packed.c");
    let worker = "#include <math.h>\n#include <stdio.h>\nint main(int argc, char **argv) {\n\
        getchar(); printf(\"unfit %d %d\\n\", (int)cbrt(7 * argc + PACKED), OWN); }\n";
    fs::write(&source, worker).unwrap();
    let with = program(&format!(
        "program = '{}'\ncflags = ['-UOWN', '-DOWN=7']\npkg_config = {{ '{}' = 'libit-dev' }}",
        source.display(),
        package.display()
    ));
    let words = reason(open(&with, 1, folder.path()));
    if words.contains("needs a C compiler") || words.contains("pkg-config: No such file") {
        return skip("packages", &words);
    }
    // argc is 3, because `bytes` and `scratch` follow the program's name. The cube root of 7 * 3 +
    // 4 is 2 after rounding down.
    assert!(words.ends_with("2 7"), "{words}");
    let none = program("program = 'programs/loops.c'\npkg_config = { no-such = 'libnothing-dev' }");
    let words = reason(open(&none, 1, folder.path()));
    assert!(words.contains("needs libnothing-dev: apt-get install") && words.contains("no-such"));
}

#[test]
fn a_program_of_ours_lies_beside_our_binary_or_is_said_to_be_built_how() {
    let scratch = tempfile::tempdir().unwrap();
    let (folder, _) = after_hello("echo ok");
    let own = folder.path().join("thalweg");
    let (with, studies) = (program("program = 'thalweg-ring'"), studies());
    let scratch = scratch.path();
    let job = ArmJob { arm: "w", with: &with, bytes: 1, scratch, studies: &studies, program: &own };
    let words = reason(WORKER.open(&job));
    assert!(words.contains("thalweg-ring does not exist: `make build`"), "{words}");
    assert!(words.contains("cargo build --package thalweg-ring"), "{words}");
    fs::rename(folder.path().join("worker.sh"), folder.path().join("thalweg-ring")).unwrap();
    WORKER.open(&job).unwrap().warm_up().unwrap();
}

#[test]
fn parameters_that_are_not_known_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let refused = |text: &str| reason(open(&program(text), 1, scratch.path()));
    assert!(refused("").contains("program"));
    assert!(refused("program = 'x'\nspeed = 1").contains("speed"));
    assert!(refused("program = 'x'\npromises = { stable = true }").contains("private"));
    assert!(refused("program = 'sh'\ncflags = ['-O3']").contains("cflags"));
    assert!(refused("program = 'sh'\npkg_config = { x = 'y' }").contains("pkg_config"));
    assert!(refused("program = 'no-such-program-anywhere'").contains("cannot be started"));
    assert!(refused("program = 'programs/none'").contains("cannot be started"));
}

#[test]
fn a_worker_that_dies_is_reported_with_its_last_words() {
    let scratch = tempfile::tempdir().unwrap();
    let (_folder, with) = shell("echo all is lost >&2; exit 3");
    let words = reason(open(&with, 1, scratch.path()));
    assert!(words.contains("all is lost") && words.contains('3'), "{words}");
    let (_folder, with) = after_hello("echo too late >&2; kill -9 $$");
    let mut piece = open(&with, 1, scratch.path()).unwrap();
    let words = reason(piece.warm_up());
    assert!(words.contains("too late") && words.contains('9'), "{words}");
    // The worker stays dead, and further requests fail.
    assert!(piece.sample(1).is_err() && piece.check().is_err());
}

#[test]
fn a_worker_that_hangs_is_ended_at_the_deadline_with_its_helpers() {
    let scratch = tempfile::tempdir().unwrap();
    let pids = scratch.path().join("pids");
    let (_folder, mut with) = after_hello(&format!(
        "sleep 1000 & echo $! > {0}.tmp; mv {0}.tmp {0}; wait",
        pids.display()
    ));
    with.insert("deadline-seconds".to_owned(), 1.into());
    assert!(
        reason(open(&with, 1, scratch.path())).contains("deadline"),
        "the key has an underscore"
    );
    with.remove("deadline-seconds");
    // On a busy machine, the first deadlines may pass before the worker says hello or starts its
    // helper.
    let helper = [1, 10, 100].into_iter().find_map(|seconds| {
        with.insert("deadline_seconds".to_owned(), seconds.into());
        let mut piece = open(&with, 1, scratch.path()).ok()?;
        let words = reason(piece.warm_up());
        assert!(words.contains(&format!("did not answer within {seconds}s")), "{words}");
        fs::read_to_string(&pids).ok()
    });
    let helper = helper.expect("a worker that has started its helper");
    let stat = || fs::read_to_string(format!("/proc/{}/stat", helper.trim())).unwrap_or_default();
    // The helper is gone, or it is a zombie that init has not waited for. A killed process exits
    // only when it gets a CPU.
    let is_gone = || stat().is_empty() || stat().contains(") Z");
    for _ in 0..6000 {
        if is_gone() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{}", stat());
}

#[test]
fn nonsense_is_called_so() {
    let scratch = tempfile::tempdir().unwrap();
    for (says, why) in [
        ("echo hi", "does not use"),
        ("echo thalweg-worker 7", "version"),
        // One write for both lines, so that the second one does not arrive late.
        ("printf 'thalweg-worker 1\\nand more\\n'", "before a request"),
        ("printf '\\377\\n'", "UTF-8"),
        ("head -c 200000 /dev/zero | tr '\\\\0' x; sleep 1", "does not end"),
        ("exec >&-; sleep 0.1", "end"),
        ("echo unfit it does not want to", "does not want to"),
    ] {
        let (_folder, with) = shell(&format!("read -r line; {says}; read -r line"));
        let mut result = open(&with, 1, scratch.path());
        if let Ok(piece) = &mut result {
            let warm = piece.warm_up();
            result = warm.and_then(|()| open(&with, 1, scratch.path()));
        }
        let words = reason(result);
        assert!(words.contains(why), "{says}: {words}");
    }
}

#[test]
fn a_worker_may_close_its_standard_error_and_chatter_there() {
    let scratch = tempfile::tempdir().unwrap();
    let (_folder, with) =
        after_hello("head -c 300000 /dev/zero >&2; exec 2>&-; sleep 0.1; echo ok");
    let mut piece = open(&with, 1, scratch.path()).unwrap();
    piece.warm_up().unwrap();
    piece.check().unwrap();
}

#[test]
fn a_lie_about_the_time_is_a_failure() {
    let scratch = tempfile::tempdir().unwrap();
    let taken = |wall: &str| {
        format!(
            "echo '{{\"wall_ns\":{wall},\"user_us\":1,\"sys_us\":1,\"minor_faults\":0,\"major_faults\":0,\"voluntary\":0,\"involuntary\":0,\"bytes\":1}}'"
        )
    };
    let (_folder, with) = after_hello(&taken("99999999999999"));
    let mut piece = open(&with, 1, scratch.path()).unwrap();
    match piece.sample(1) {
        Err(SampleFailure::Unfit(unfit)) => {
            assert!(unfit.reason.contains("answered within"), "{unfit}");
        }
        other => panic!("{other:?}"),
    }
    let (_folder, with) = after_hello(&taken("1"));
    let mut piece = open(&with, 1, scratch.path()).unwrap();
    assert_eq!(piece.sample(1).unwrap().wall, Duration::from_nanos(1));
    assert!(piece.warm_up().is_err(), "that is no answer to warm");
}

#[test]
fn other_programs_get_their_arguments_in_the_folder_of_the_study() {
    let scratch = tempfile::tempdir().unwrap();
    let (_folder, mut with) = shell("read -r line; test -d programs && echo unfit \"$*\"");
    with.insert("args".to_owned(), toml::Value::Array(vec!["one two".into(), "three".into()]));
    let words = reason(open(&with, 77, scratch.path()));
    let expected = format!("one two three bytes=77 scratch={}", scratch.path().display());
    assert!(words.ends_with(&expected), "{words}");
}

#[test]
fn a_worker_that_halves_its_time_is_doubted() {
    // This test does not include an honest worker: on a busy machine its shell may wait for half of
    // the time. Tests with simulated times cover that case.
    let counts = "\"user_us\":0,\"sys_us\":0,\"minor_faults\":0,\"major_faults\":0,\"voluntary\":0,\"involuntary\":0,\"bytes\":1";
    let says = format!(
        "run*) a=$(date +%s%N); sleep 0.05; b=$(date +%s%N); echo \"{{\\\"wall_ns\\\":$(((b-a)/2)),{}}}\"",
        counts.replace('"', "\\\"")
    );
    let (folder, with) = shell(&format!(
        "while read -r line; do case $line in hello) echo thalweg-worker 1;; {says};; *) echo ok;; esac; done",
    ));
    let mut arm = open(&with, 1, folder.path()).unwrap();
    arm.warm_up().unwrap();
    for _ in 0..5 {
        arm.sample(1).unwrap();
    }
    let told = arm.doubt().expect("half of the time is missing");
    assert!(told.contains("of the time that the lab waited"), "{told}");
}
