//! An invalid `THALWEG_CPU` never ends a program.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    process::{Command, Stdio},
};

/// Set in the environment of the child.
const CHILD: &str = "THALWEG_TEST_CHILD";

#[test]
fn the_error_in_the_variable_is_lost_if_standard_error_is_a_pipe_without_a_reader() -> io::Result<()>
{
    if std::env::var_os(CHILD).is_some() {
        // The first question about a feature reads the variable.
        assert!(thalweg_kernels::KERNELS.iter().any(|row| (row.is_available)()));
        assert!(thalweg_kernels::CHECKSUMS.iter().any(|row| (row.is_available)()));
        return Ok(());
    }
    let (reader, writer) = io::pipe()?;
    drop(reader);
    let name = "the_error_in_the_variable_is_lost_if_standard_error_is_a_pipe_without_a_reader";
    let mut child = Command::new(std::env::current_exe()?);
    child.args(["--exact", &format!("environment::{name}"), "--nocapture"]);
    child.env(CHILD, "").env(thalweg_kernels::cpu::VARIABLE, "-typo");
    child.stdout(Stdio::null()).stderr(File::from(OwnedFd::from(writer)));
    assert!(child.status()?.success());
    Ok(())
}
