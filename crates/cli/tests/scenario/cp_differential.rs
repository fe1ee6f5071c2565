//! `cp` as the oracle: the same random command on the same random tree, once by the system's `cp` and once by ours.
//! Results, exit codes and the lines of `-v` are compared. The cases are the same every day; `THALWEG_CASES=2000` tries
//! more, `THALWEG_SEED` others.
//!
//! Left out, with the reasons that docs/reference/cp.md gives: existing files with several names (they are replaced, not written
//! into), and `-n` together with `-i` (`-n` always wins).

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

/// Flags that may stand together in any number.
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

/// What is copied to what.
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

/// Things that a destination may hold.
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

/// What was made just now has a time of its own, but the same in both trees.
const SETTLE: &str = "find s d -newermt @100000 -exec touch -h -d @3000 {} +";

fn shell(folder: &Path, line: &str) -> Ran {
    let mut command = Command::new("sh");
    quiet_environment(&mut command);
    run(command.arg("-c").arg(line).current_dir(folder).stdin(Stdio::null()))
}

/// Everything in the folder: type, mode, link target, time if it is an old one and was to be kept, which names are one
/// file, contents.
fn listing(folder: &Path, times: bool) -> String {
    let find = "find s d -printf '%p %y %m %T@ %i %l\\n' | sort";
    let time = if times { "if ($4 > 100000 || $1 == \"d\") $4 = \"now\"" } else { "$4 = \"\"" };
    let one = "if (!($5 in seen)) seen[$5] = NR; $5 = seen[$5]";
    let contents = "find s d -type f | sort | xargs -r tail -v -n +1";
    let line = format!("{find} | awk '{{ {time}; {one}; print }}'; {contents}");
    String::from_utf8(shell(folder, &line).expect(0).stdout).unwrap()
}

fn sorted(out: &[u8]) -> Vec<String> {
    // cp quotes no folder that --parents makes.
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

    /// Whether it is one of the differences that docs/reference/cp.md tells of, or of cp 9.1's own mistakes.
    fn is_accepted(&self) -> bool {
        let has = |word: &str| self.words.iter().any(|said| said.starts_with(word));
        let backs_up = has("-b") || has("-S") || has("--backup");
        let into_folder = self.words.last().is_some_and(|last| *last == "d" || *last == "d/");
        // cp 9.1 makes no backup of what is inside a folder that was named.
        (has("-n") && has("-i"))
            || (backs_up && into_folder)
            // cp takes the file away, or sets it aside, before it finds that the link cannot be made.
            || (has("-s")
                && (backs_up
                    || has("--remove-destination")
                    || (has("s/l") && ["-P", "-d", "-r", "-R", "-a"].into_iter().any(has))))
            // cp makes the second name a link to the link that the first was written through.
            || ((has("s/twin") || has("s/l") && self.setup.contains("ln -s f d/l"))
                && (has("-d") || has("-a") || has("--preserve")))
            // cp forgets the folders of --parents where a source is missing, and the times of those that two have.
            || (has("--parents") && (has("s/nothing") || has("s/dir/g") || (has("s/f") && (has("s/l") || has("s/twin")))))
            // cp makes the folders of --parents before it finds that -r is missing; with -r it cannot make the last one again.
            || (has("--parents") && has("s/dir/."))
            // cp takes a link away, or moves it away as its own backup, and then has nothing left to copy or to make a hard
            // link to. With -u it finds out in time that nothing is to be done; we refuse that, too.
            || (self.words.ends_with(&["d/f", "d/f"])
                && (has("--remove-destination") || (backs_up && (has("-l") || has("-u")))))
    }

    /// The tree, the exit code and the lines after the command.
    fn run(&self, program: &str) -> (String, bool, Vec<String>) {
        let scratch = Scratch::new();
        shell(scratch.path(), &self.setup);
        let line = format!("umask 022; yes n | {program} {}", self.words.join(" "));
        let ran = shell(scratch.path(), &line).expect_no_panic();
        let keeps = ["-a", "-p", "--preserve=links,timestamps"];
        let times = keeps.iter().any(|word| self.words.contains(word));
        // coreutils 9.1 and earlier exit with 0 where `-i` is answered with no, later ones and ours with 1.
        let is_done = ran.code() == 0 && !self.words.contains(&"-i");
        // cp names a copy before it fails.
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
