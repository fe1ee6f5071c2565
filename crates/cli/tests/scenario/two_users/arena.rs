//! The directories of a two-user test: one that every user may write, and root's files around it.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use crate::{
    few_threads::STUDY,
    support::{
        Ran, Running, Scratch, Served, run,
        run::{quiet_environment, thalweg},
    },
};

/// Content of root's files that the attacker must not read.
pub const SECRET: &str = "SECRET: for root's eyes only\n";
/// Content of files that the attacker makes.
pub const EVIL: &str = "EVIL!! from the other user\n";
/// Content of files that every user may read.
const HONEST: &str = "HONEST bytes of the source\n";

/// Seconds after which a command counts as hanging. Commands take less than one second, but the machine may be busy.
const HANG: &str = "120";

/// The directories `d`, `own` and `canary`: `d` has mode 1777, `own` has the sources, and no command may change
/// `canary`.
pub struct Arena {
    scratch: Scratch,
    server: Served,
}

impl Arena {
    pub fn new() -> Self {
        let scratch = Scratch::public();
        chmod(scratch.path(), 0o755);
        let own = scratch.folder("own");
        write(&own.join("secret"), &SECRET.repeat(40_000), 0o600);
        write(&own.join("public"), &HONEST.repeat(40_000), 0o644);
        plant_tree(&own.join("tree"), true);
        fs::create_dir(own.join("web")).unwrap();
        write(&own.join("web/install.sh"), &HONEST.repeat(40_000), 0o644);
        plant_tree(&own.join("web/tree"), false);
        fs::create_dir_all(own.join("home/.local/state/thalweg")).unwrap();
        fs::create_dir(own.join("studies")).unwrap();
        write(&own.join("studies/900-null.toml"), &[STUDY, CLAIM].concat(), 0o644);
        let server = Served::on(&own.join("web"));
        let arena = Self { scratch, server };
        arena.reset();
        arena
    }

    pub fn d(&self) -> PathBuf {
        self.scratch.join("d")
    }

    pub fn own(&self, name: &str) -> PathBuf {
        self.scratch.join("own").join(name)
    }

    pub fn canary(&self) -> PathBuf {
        self.scratch.join("canary")
    }

    /// Returns the URL of a file of `own/web`.
    pub fn url(&self, name: &str) -> String {
        self.server.at(name)
    }

    /// Makes an empty `d` and new canaries.
    pub fn reset(&self) {
        for folder in [self.d(), self.canary()] {
            if folder.exists() {
                fs::remove_dir_all(&folder).unwrap();
            }
            fs::create_dir(&folder).unwrap();
        }
        chmod(&self.d(), 0o1777);
        write(&self.canary().join("secret"), SECRET, 0o600);
        write(&self.canary().join("config"), "root's settings\n", 0o644);
        fs::create_dir(self.canary().join("folder")).unwrap();
        write(&self.canary().join("folder/inside"), "root's file\n", 0o644);
    }

    /// Returns a command that runs a line of bash. `$PROGRAM` is the program, and `$T` is the program with a timeout,
    /// which has exit status 124.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", line]).current_dir(self.scratch.path()).stdin(Stdio::null());
        quiet_environment(&mut command);
        let binary = env!("CARGO_BIN_EXE_thalweg");
        command.env("T", format!("timeout -k 1 {HANG} {binary}"));
        command.env("PROGRAM", binary);
        command.env("D", self.d()).env("OWN", self.own("")).env("HOME", self.own("home"));
        command.env("URL", self.server.url.trim_end_matches('/'));
        command.env("THALWEG_STUDIES", self.own("studies"));
        command
    }

    pub fn start(&self, line: &str) -> Running {
        Running::start(&mut self.command(line))
    }

    #[track_caller]
    pub fn run(&self, line: &str) -> Ran {
        self.start(line).finish()
    }

    /// Saves a result of a study, for reports.
    pub fn save_result(&self) {
        let mut study = thalweg();
        study.args(["study", "900", "--quick", "--sessions=3", "--rounds=3", "--sample=1ms"]);
        study.args(["--pause=0s", "--at", ".", "--save", "results"]).current_dir(self.own(""));
        run(study.env("THALWEG_STUDIES", self.own("studies"))).expect(0);
    }
}

/// Writes a file of this mode that was last modified an hour ago.
pub fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    chmod(path, mode);
    age(path);
}

pub fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Makes a file look old, because a server gives strong ETags only to files that were not modified recently.
fn age(path: &Path) {
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::File::open(path).unwrap().set_modified(hour_ago).unwrap();
}

/// Makes a tree with a set-user-ID program and, if `secrets` is `true`, with files that only root may read.
fn plant_tree(tree: &Path, secrets: bool) {
    for folder in ["", "bin", "deep", "deep/er"] {
        fs::create_dir(tree.join(folder)).unwrap();
    }
    write(&tree.join("bin/tool"), &HONEST.repeat(300), 0o4755);
    write(&tree.join("bin/other"), &HONEST.repeat(20), 0o644);
    write(&tree.join("deep/er/data"), &HONEST.repeat(40_000), 0o644);
    symlink("bin/tool", tree.join("link")).unwrap();
    if secrets {
        write(&tree.join("deep/key"), &SECRET.repeat(10), 0o600);
        fs::create_dir(tree.join("private")).unwrap();
        write(&tree.join("private/note"), &SECRET.repeat(10), 0o644);
        chmod(&tree.join("private"), 0o700);
    }
    for folder in ["deep/er", "deep", "bin", ""] {
        age(&tree.join(folder));
    }
}

/// The rest of the last arm of [`STUDY`], and a claim.
const CLAIM: &str = r#"origin = "fair"
[[claim]]
id = "900.1"
kind = "ratio"
text = "a takes nothing of the time of b"
published = 0.01
[[claim.check]]
test = "ratio"
arms = ["a", "b"]
at = { cell = "nothing", size = "64KiB" }
within = [0.0, 1e-80]
"#;
