use super::*;

#[test]
fn a_program_that_was_wrong_only_while_it_was_timed_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count").display().to_string();
    // The second run of the script is the timed one, and its copy has a wrong byte.
    let script = "echo >>$2; cp $0 $1; test $(wc -l <$2) -ne 2 || printf X | dd of=$1 conv=notrunc";
    let command = ["sh", "-c", script, "{source}", "{sink}", &count].map(toml::Value::from);
    let with = toml::Table::from_iter([("command".to_owned(), command.to_vec().into())]);
    let (scratch, nowhere) = (folder.path(), Path::new("/nowhere"));
    let job =
        ArmJob { arm: "p", with: &with, bytes: 5000, scratch, studies: nowhere, program: nowhere };
    let mut arm = PROGRAM.open(&job).unwrap();
    arm.warm_up().unwrap();
    let Err(SampleFailure::Unfit(wrong)) = arm.sample(1) else { panic!("a wrong copy counts") };
    assert!(wrong.reason.starts_with("sh: "), "{}", wrong.reason);
    arm.sample(1).unwrap();
    arm.check().unwrap();
}
