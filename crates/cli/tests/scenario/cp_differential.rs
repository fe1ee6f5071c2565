//! `cp` as the oracle: runs random commands on random trees with the system's `cp` and with `thalweg copy`. Compares
//! the trees, the exit codes and the lines of `-v`. Each run has the same cases. `THALWEG_CASES=2000` tries more cases,
//! and `THALWEG_SEED` selects others.
//!
//! Not tested, for the reasons in docs/reference/cp.md: existing files with several hard links (thalweg replaces them,
//! cp writes into them), and `-n` with `-i` (in thalweg, `-n` always wins).

use crate::support::{
    Scratch, run,
    run::{Ran, quiet_environment},
    skip::has_tools,
};
use std::{
    path::Path,
    process::{Command, Stdio},
};
use thalweg_testing::{Dice, from_env};

/// Flags of which any number can be combined.
const FLAGS: [&str; 27] = [
    "-r",
    "-R",
    "-a",
    "-d",
    "-P",
    "-L",
    "-H",
    "-p",
    "-f",
    "-n",
    "-i",
    "-u",
    "-v",
    "-l",
    "-s",
    "-b",
    "-T",
    "-x",
    "--remove-destination",
    "--attributes-only",
    "--backup=numbered",
    "--backup=simple",
    "-S.old",
    "--preserve=links,timestamps",
    "--no-preserve=mode",
    "--parents",
    "--strip-trailing-slashes",
];

/// Sources and destinations.
const ENDS: [&str; 19] = [
    "s/f d",
    "s/f d/f",
    "s/f d/new",
    "s/f s/twin d",
    "s/f s/l d",
    "s/l d/f",
    "s/l d/l",
    "s/lost d",
    "s/dl d",
    "s/dl/ d/",
    "s/dir d",
    "s/dir d/new",
    "s/dir/. d",
    "s/dir d/dir",
    "s/dir/g s/f d",
    "d/f d/f",
    "d/f d/lf",
    "s/f s/twin",
    "s/nothing s/f d",
];

/// Commands that prepare the destination.
const THERE: [&str; 12] = [
    "echo old >d/f; touch -d @50 d/f",
    "echo new >d/f; touch -d @5000 d/f",
    "echo other >d/other; ln -s other d/f",
    "ln -s gone d/f",
    "mkdir d/f",
    "echo l >d/l",
    "ln -s f d/l",
    "mkdir -p d/dir/sub; echo old >d/dir/g",
    "echo file >d/dir",
    "mkdir d/real; ln -s real d/dir",
    "ln -f s/f d/f",
    "ln -s f d/lf",
];

const SOURCES: &str = "umask 022; mkdir -p s/dir/sub d; echo f >s/f; chmod 640 s/f; ln s/f s/twin; ln -s f s/l
    ln -s gone s/lost; ln -s dir s/dl; echo g >s/dir/g; chmod 751 s/dir; ln -s g s/dir/gl; ln s/dir/g s/dir/sub/h
    touch -d @1000 s/f s/dir/g; touch -h -d @1000 s/l s/lost s/dl s/dir/gl; touch -d @1000 s/dir/sub s/dir";

/// Gives the entries that were just created a fixed time, which is the same in both trees.
const SETTLE: &str = "find s d -newermt @100000 -exec touch -h -d @3000 {} +";

fn shell(folder: &Path, line: &str) -> Ran {
    let mut command = Command::new("sh");
    quiet_environment(&mut command);
    run(command.arg("-c").arg(line).current_dir(folder).stdin(Stdio::null()))
}

/// Lists everything in the directory: type, mode, link target, hard links and contents. `times`: `true` to include
/// modification times, except for new files and directories.
fn listing(folder: &Path, times: bool) -> String {
    let find = "find s d -printf '%p %y %m %T@ %i %l\\n' | sort";
    let time = if times { "if ($4 > 100000 || $1 == \"d\") $4 = \"now\"" } else { "$4 = \"\"" };
    let one = "if (!($5 in seen)) seen[$5] = NR; $5 = seen[$5]";
    let contents = "find s d -type f | sort | xargs -r tail -v -n +1";
    let line = format!("{find} | awk '{{ {time}; {one}; print }}'; {contents}");
    String::from_utf8(shell(folder, &line).expect(0).stdout).unwrap()
}

fn sorted(out: &[u8]) -> Vec<String> {
    // cp does not quote the directories that --parents makes.
    let text = String::from_utf8_lossy(out).replace('\'', "");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

struct Case {
    setup: String,
    words: Vec<&'static str>,
}

impl Case {
    fn roll(dice: &mut Dice) -> Self {
        let mut pick = |list: &[&'static str]| list[dice.within(0..list.len() as u64) as usize];
        let mut words = Vec::new();
        let count = ["", "1", "11", "11", "111", "1111"];
        for _ in 0..pick(&count).len() {
            words.push(pick(&FLAGS));
        }
        words.extend(pick(&ENDS).split(' '));
        let mut setup = vec![SOURCES];
        for _ in 0..pick(&count).len().min(3) {
            setup.push(pick(&THERE));
        }
        setup.push(SETTLE);
        Self { setup: setup.join("\n"), words }
    }

    /// Returns `true` if docs/reference/cp.md documents the difference, or if it is a bug of cp 9.1.
    fn is_accepted(&self) -> bool {
        let has = |word: &str| self.words.iter().any(|said| said.starts_with(word));
        let backs_up = has("-b") || has("-S") || has("--backup");
        let into_folder = self.words.last().is_some_and(|last| *last == "d" || *last == "d/");
        // In thalweg, -n wins over -i. cp 9.1 makes no backups in a destination directory.
        (has("-n") && has("-i"))
            || (backs_up && into_folder)
            // cp removes or renames the old file before it finds that it cannot make the link.
            || (has("-s")
                && (backs_up
                    || has("--remove-destination")
                    || (has("s/l") && ["-P", "-d", "-r", "-R", "-a"].into_iter().any(has))))
            // If cp has written the first name through a symbolic link, it makes the second name a hard link to that
            // symbolic link.
            || ((has("s/twin") || has("s/l") && self.setup.contains("ln -s f d/l"))
                && (has("-d") || has("-a") || has("--preserve")))
            // With --parents, cp does not make the directories of a missing source, and does not keep the times of
            // directories that two sources share.
            || (has("--parents") && (has("s/nothing") || has("s/dir/g") || (has("s/f") && (has("s/l") || has("s/twin")))))
            // cp makes the directories of --parents before it finds that -r is missing. With -r, cp fails because the
            // last of these directories then exists.
            || (has("--parents") && has("s/dir/."))
            // cp removes a link, or renames it to its own backup, and then has no source to copy or link. With -u, cp
            // first finds that no copy is needed. thalweg refuses this case, too.
            || (self.words.ends_with(&["d/f", "d/f"])
                && (has("--remove-destination") || (backs_up && (has("-l") || has("-u")))))
    }

    /// Returns the tree, success or failure, and the output of the command.
    fn run(&self, program: &str) -> (String, bool, Vec<String>) {
        let scratch = Scratch::new();
        shell(scratch.path(), &self.setup);
        let line = format!("umask 022; yes n | {program} {}", self.words.join(" "));
        let ran = shell(scratch.path(), &line).expect_no_panic();
        let keeps = ["-a", "-p", "--preserve=links,timestamps"];
        let times = keeps.iter().any(|word| self.words.contains(word));
        // After a declined `-i`, coreutils up to 9.1 exits with 0. Later versions and thalweg exit with 1.
        let is_done = ran.code() == 0 && !self.words.contains(&"-i");
        // cp prints the name of a copy before the copy fails, so the lines are compared only after success.
        let said = if is_done { sorted(&ran.stdout) } else { Vec::new() };
        (listing(scratch.path(), times), is_done, said)
    }
}

#[test]
fn what_cp_does_with_any_flags_we_do() {
    let test = "what_cp_does_with_any_flags_we_do";
    if !has_tools(test, &["cp", "find", "awk", "yes"]) {
        return;
    }
    let ours = format!("{} copy", env!("CARGO_BIN_EXE_thalweg"));
    let mut dice = Dice::fixed(test, 12);
    let mut differing = Vec::new();
    let cases = from_env("THALWEG_CASES", 15);
    for _ in 0..cases {
        let case = Case::roll(&mut dice);
        let (expected, found) = (case.run("cp"), case.run(&ours));
        if expected != found && !case.is_accepted() {
            let words = case.words.join(" ");
            differing.push(format!("{words}\n{}\ncp: {expected:#?}\nours: {found:#?}", case.setup));
        }
    }
    assert!(
        differing.is_empty(),
        "{} of {cases} differ:\n{}",
        differing.len(),
        differing.join("\n\n")
    );
}
