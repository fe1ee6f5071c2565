use super::*;
use crate::arms::{Arm, tests::skip, worker::WORKER};
use thalweg_core::Unfit;
use thalweg_measure::schedule::SampleFailure;
use thalweg_testing::Sample;

fn open(text: &str, bytes: u64, scratch: &Path) -> Result<Box<dyn Arm>, Unfit> {
    let studies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    let (with, program) = (text.parse().unwrap(), Path::new("/nowhere"));
    WORKER.open(&ArmJob { arm: "w", with: &with, bytes, scratch, studies: &studies, program })
}

/// Returns `None` if the JDK is missing; the test then counts as skipped.
fn started(test: &str, text: &str, bytes: u64, scratch: &Path) -> Option<Box<dyn Arm>> {
    match open(text, bytes, scratch) {
        Ok(piece) => Some(piece),
        Err(unfit) if unfit.reason.contains("no JDK") => {
            skip(test, &unfit.reason);
            None
        }
        Err(unfit) => panic!("{test}: {}", unfit.reason),
    }
}

fn reason<T>(result: Result<T, Unfit>) -> String {
    match result {
        Ok(_) => panic!("it went well"),
        Err(unfit) => unfit.reason,
    }
}

const ARTICLE: &str = "program = 'programs/ShareMemory.java'\njava_args = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC']";
const SEGMENTS: &str = "program = 'programs/Segments.java'\njdk = 25\njava_sources = ['../java/src/main/java']\njava_args = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '--enable-native-access=ALL-UNNAMED']";
const TRANSFERS: &str = "program = 'programs/Transfers.java'\njdk = 25\njava_sources = ['../java/src/main/java']\njava_args = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '--enable-native-access=ALL-UNNAMED']";

const MESSAGES: &str = "program = 'programs/Messages.java'\njdk = 25\njava_sources = ['../java/src/main/java']\njava_args = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '--enable-native-access=ALL-UNNAMED']\npeer = 'programs/messages.c'\ncflags = ['-O3']";

fn with(program: &str, args: &str) -> String {
    format!("{program}\nargs = [{args}]")
}

#[test]
fn the_articles_program_does_its_work_on_both_releases_and_proves_it() {
    let scratch = tempfile::tempdir().unwrap();
    for jdk in [17, 25] {
        let actions = [
            ("published", 1000),
            ("generator", 1000),
            ("put", 1000),
            ("clear", 65536),
            ("clear-reused", 65536),
        ];
        for (action, moved) in Sample::new("the_articles_program", 3).of(actions) {
            let args = format!("'action={action}', 'writes=1000', 'warmup=1'");
            let text = format!("{}\njdk = {jdk}", with(ARTICLE, &args));
            let name = format!("java {jdk} {action}");
            let Some(mut piece) = started(&name, &text, 65536, scratch.path()) else { break };
            piece.warm_up().unwrap();
            assert_eq!(piece.sample(3).unwrap().bytes, 3 * moved, "{name}");
            piece.check().unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "files are left behind");
}

#[test]
fn segments_of_every_kind_are_written_and_cleared() {
    let scratch = tempfile::tempdir().unwrap();
    let cases = [
        ("file", "set"),
        ("sysv", "set"),
        ("posix", "set"),
        ("memfd", "set"),
        ("memfd", "opaque"),
        ("sysv", "release"),
        ("memfd", "alone"),
        ("sysv", "clear"),
        ("file", "fill"),
    ];
    for (kind, action) in Sample::new("segments", 4).of(cases) {
        let args = format!("'kind={kind}', 'action={action}', 'writes=1000', 'warmup=1'");
        let name = format!("java segments {kind} {action}");
        let Some(mut piece) = started(&name, &with(SEGMENTS, &args), 65536, scratch.path()) else {
            return;
        };
        piece.warm_up().unwrap();
        let sample = piece.sample(2).unwrap();
        let bytes = if action == "clear" || action == "fill" { 65536 } else { 1000 };
        assert_eq!(sample.bytes, 2 * bytes, "{name}");
        piece.check().unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "files are left behind");
}

#[test]
fn files_reach_the_server_by_every_way_and_both_sides_are_accounted_for() {
    let scratch = tempfile::tempdir().unwrap();
    for way in ["traditional", "transferto", "splice"] {
        for reader in Sample::new("files_reach_the_server", 4).of([4096, 262_144]) {
            let args = format!("'way={way}', 'reader={reader}', 'congestion=reno', 'warmup=1'");
            let name = format!("java {way}");
            let text = with(TRANSFERS, &args);
            let Some(mut piece) = started(&name, &text, 3_000_001, scratch.path()) else { return };
            piece.warm_up().unwrap();
            let sample = piece.sample(2).unwrap();
            assert_eq!(sample.bytes, 6_000_002, "{name}");
            let (far, all) = (sample.far_user + sample.far_sys, sample.user + sample.sys);
            assert!(!far.is_zero() && far < all, "{name}: {far:?} of {all:?}");
            piece.check().unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "files are left behind");
}

#[test]
fn files_go_through_a_pipe_by_both_ways_to_both_readers() {
    let scratch = tempfile::tempdir().unwrap();
    let program = TRANSFERS.replace("Transfers", "Pipes");
    for (way, reader) in
        [("transferto", "read"), ("transferto-file", "splice"), ("splice", "splice")]
    {
        let args = format!("'way={way}', 'reader={reader}', 'warmup=1'");
        let text = with(&program, &args);
        let Some(mut piece) = started("java pipe", &text, 3_000_001, scratch.path()) else {
            return;
        };
        piece.warm_up().unwrap();
        assert_eq!(piece.sample(2).unwrap().bytes, 6_000_002, "{way}");
        piece.check().unwrap_or_else(|e| panic!("{way}: {e}"));
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "files are left behind");
}

#[test]
fn a_target_in_java_counts_its_branches_in_every_kind_of_map() {
    let scratch = tempfile::tempdir().unwrap();
    let program = MESSAGES.replace("Messages", "Target").replace("messages.c", "forkserver.c");
    for kind in Sample::new("a_target_in_java", 3).of(["sysv", "posix", "file"]) {
        let text = with(&program, &format!("'kind={kind}', 'warmup=1'"));
        let Some(mut piece) = started(kind, &text, 65536, scratch.path()) else { return };
        match piece.warm_up() {
            Err(unfit) if unfit.reason.contains("is on tmpfs") => {
                skip(kind, &unfit.reason);
                continue;
            }
            warmed => warmed.unwrap(),
        }
        let sample = piece.sample(20).unwrap();
        assert_eq!(sample.bytes, 20 * 65536, "{kind}");
        assert!(sample.far_user + sample.far_sys < sample.user + sample.sys, "{kind}");
        piece.check().unwrap_or_else(|e| panic!("{kind}: {e}"));
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "files are left behind");
}

#[test]
fn messages_reach_the_peer_in_c_and_come_back_by_every_way() {
    let scratch = tempfile::tempdir().unwrap();
    for way in ["udp", "unix", "mapped"] {
        let text = with(MESSAGES, &format!("'way={way}', 'warmup=1'"));
        let Some(mut piece) = started(way, &text, 4096, scratch.path()) else { return };
        piece.warm_up().unwrap();
        assert_eq!(piece.sample(5).unwrap().bytes, 5 * 4096, "{way}");
        piece.check().unwrap_or_else(|e| panic!("{way}: {e}"));
    }
    let text = with(MESSAGES, "'way=ring', 'warmup=1'");
    let mut piece = started("ring", &text, 64, scratch.path()).unwrap();
    assert!(reason(piece.warm_up()).contains("without thalweg's C library"));
    let text = with(MESSAGES, "'way=udp'");
    assert!(reason(open(&text, 1 << 20, scratch.path())).contains("at most 65507 bytes"));
    drop(piece);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "files are left behind");
}

#[test]
fn a_cold_arm_has_a_new_process_for_every_operation() {
    let scratch = tempfile::tempdir().unwrap();
    let args = "'action=put', 'writes=1000', 'warmup=0'";
    let text = format!("{}\njdk = 25\ncold = true", with(ARTICLE, args));
    let Some(mut piece) = started("cold java", &text, 65536, scratch.path()) else { return };
    assert!(piece.is_fresh());
    piece.warm_up().unwrap();
    assert_eq!(piece.sample(2).unwrap().bytes, 2000);
    piece.check().unwrap();
}

#[test]
fn a_planted_wrong_byte_is_found_in_java_too() {
    let scratch = tempfile::tempdir().unwrap();
    let programs = [
        (ARTICLE.to_owned() + "\njdk = 17", "'action=published'"),
        (ARTICLE.to_owned() + "\njdk = 17", "'action=clear'"),
        (SEGMENTS.to_owned(), "'kind=memfd', 'action=set'"),
        (SEGMENTS.to_owned(), "'kind=sysv', 'action=clear'"),
        (TRANSFERS.to_owned(), "'way=transferto'"),
        (TRANSFERS.replace("Transfers", "Pipes"), "'way=splice'"),
        (MESSAGES.to_owned(), "'way=mapped'"),
    ];
    for (program, args) in Sample::new("a_planted_wrong_byte_in_java", 3).of(programs) {
        let text = with(&program, &format!("{args}, 'spoil=1', 'warmup=0'"));
        let Some(mut piece) = started("spoilt java", &text, 65536, scratch.path()) else {
            continue;
        };
        piece.warm_up().unwrap();
        let words = reason(piece.check());
        assert!(words.contains(".java: "), "{words}");
    }
}

#[test]
fn a_java_program_that_refuses_says_why() {
    let scratch = tempfile::tempdir().unwrap();
    let seventeen = ARTICLE.to_owned() + "\njdk = 17";
    for (args, bytes, why) in [
        ("'action=magic'", 65536, "action=magic: not known here"),
        ("'speed=1'", 65536, "no such parameter"),
        ("'writes=many'", 65536, "not a number"),
        ("'action=put'", 65537, "power of two"),
    ] {
        match open(&with(&seventeen, args), bytes, scratch.path()) {
            Err(unfit) if unfit.reason.contains("no JDK") => {
                return skip("refusals", &unfit.reason);
            }
            result => assert!(reason(result).contains(why), "{args}"),
        }
    }
}

#[test]
fn what_is_missing_or_makes_no_sense_is_a_reason() {
    let scratch = tempfile::tempdir().unwrap();
    let refused = |text: &str| reason(open(text, 1, scratch.path()));
    assert!(refused("program = 'programs/ShareMemory.java'").contains("needs jdk"));
    let none = refused("program = 'programs/ShareMemory.java'\njdk = 3");
    assert!(none.contains("no JDK 3 in JAVA_HOME") && none.contains("install"), "{none}");
    assert!(refused("program = 'programs/regions.c'\njdk = 25").contains("for a Java source"));
    assert!(refused("program = 'sh'\njava_args = ['-Xmx1g']").contains("for a Java source"));
    let words = refused("program = 'programs/None.java'\njdk = 25");
    assert!(words.contains("no JDK") || words.contains("None.java"), "{words}");
}

#[test]
fn a_source_that_does_not_compile_is_a_reason_with_javacs_words() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("Broken.java");
    fs::write(&source, "class Broken { int x = nothingOfThisName; }\n").unwrap();
    let text = format!("program = '{}'\njdk = 17", source.display());
    let words = reason(open(&text, 1, folder.path()));
    if words.contains("no JDK") {
        return skip("broken Java", &words);
    }
    assert!(words.contains("cannot build") && words.contains("nothingOfThisName"), "{words}");
}

#[test]
fn a_virtual_machine_that_dies_is_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("Dies.java");
    fs::write(
        &source,
        "class Dies { public static void main(String[] a) { var in = new java.util.Scanner(System.in); \
         in.nextLine(); System.out.println(\"thalweg-worker 1\"); in.nextLine(); \
         throw new IllegalStateException(\"all is lost\"); } }",
    )
    .unwrap();
    let text = format!("program = '{}'\njdk = 17", source.display());
    let Some(mut piece) = started("dying Java", &text, 1, folder.path()) else { return };
    match piece.sample(1) {
        Err(SampleFailure::Unfit(unfit)) => {
            assert!(unfit.reason.contains("all is lost"), "{unfit}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn sources_are_found_in_every_folder_but_no_module() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("a/b")).unwrap();
    for name in ["module-info.java", "a/A.java", "a/b/B.java", "a/notes.txt"] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    let mut found = Vec::new();
    sources_below(folder.path(), &mut found).unwrap();
    found.sort();
    assert_eq!(found, ["a/A.java", "a/b/B.java"].map(|name| folder.path().join(name)));
    assert!(sources_below(&folder.path().join("none"), &mut found).unwrap_err().contains("none"));
}
