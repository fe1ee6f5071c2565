//! An error message has words first, then the call and its errno. A line with a hint follows if the user can do
//! something. Names are in quotes, and the prefix occurs once.

use std::fs;

use crate::support::{
    Scratch,
    deny::{FOLDER, run_without},
    run, skip, thalweg,
};

#[test]
fn a_missing_file_is_named_in_words_by_every_command() {
    let here = Scratch::new();
    let absent = here.join("absent");
    let why = format!("'{}': no such file or directory (", absent.display());
    for words in [vec!["copy"], vec!["copy", "-a"], vec!["plan"], vec!["send", "--to", "x"]] {
        let mut command = thalweg();
        command.args(&words).arg(&absent);
        if words[0] != "send" {
            command.arg(here.join("to"));
        }
        let ran = run(&mut command);
        assert!(ran.code() != 0, "{words:?}");
        ran.expect_said("thalweg: cannot ");
        ran.expect_said(&why);
        ran.expect_said(": ENOENT)");
        assert!(!ran.stderr.contains("thalweg: thalweg"), "{}", ran.stderr);
    }
}

#[test]
fn a_directory_without_r_gets_a_hint_how_to_copy_it() {
    let here = Scratch::new();
    let (folder, to) = (here.join("folder"), here.join("to"));
    fs::create_dir(&folder).unwrap();
    let ran = run(thalweg().arg("copy").arg(&folder).arg(&to)).expect(1);
    let said = format!("thalweg: '{}': is a directory (-r not specified)\n", folder.display());
    assert_eq!(ran.stderr, said);
    run(thalweg().args(["send", "--to", "x"]).arg(&folder))
        .expect_said(": is a directory\nhint: send the files");
}

#[test]
fn a_folder_that_may_not_be_made_is_a_sentence_of_one_line() {
    let test = "a_folder_that_may_not_be_made_is_a_sentence_of_one_line";
    let here = Scratch::new();
    let (folder, to) = (here.join("folder"), here.join("to\nthere"));
    fs::create_dir(&folder).unwrap();
    let mut command = thalweg();
    command.args(["copy", "-r"]).arg(&folder).arg(&to);
    match run_without(&[&FOLDER], libc::EACCES, &mut command) {
        Ok(ran) => {
            ran.expect_said("thalweg: cannot create directory '");
            ran.expect_said("to\\nthere': permission denied (mkdirat: EACCES)\n");
        }
        Err(reason) => skip(test, &format!("no seccomp: {reason}")),
    }
}
