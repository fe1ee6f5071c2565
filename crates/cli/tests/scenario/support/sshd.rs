//! Simulated other machines: a script that runs a shell locally as ssh does remotely, and a real sshd on the loopback
//! interface.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{run::GUARD, skip::skip};
use thalweg_testing::{ReservedPort, script};

/// A connection to another machine.
pub struct OtherMachine {
    /// The value of `-e`.
    pub rsh: PathBuf,
    /// The host, as it precedes the colon of a name.
    pub host: &'static str,
    server: Option<(Child, ReservedPort)>,
}

impl OtherMachine {
    /// Makes a script that drops the options and the host, and passes the other words to a shell, as sshd does. It
    /// writes its process ID to `pid` in `folder`, which is also the home directory.
    pub fn by_script(folder: &Path) -> Self {
        let rsh = folder.join("rsh");
        let (home, pid) = (folder.display(), folder.join("pid"));
        let text = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nshift\ncd '{home}' || exit 255\n\
             echo $$ >'{}'\nHOME='{home}' exec sh -c \"exec $*\"\n",
            pid.display()
        );
        script(&rsh, &text);
        Self { rsh, host: "elsewhere", server: None }
    }

    /// Returns the same machine with another command that connects.
    pub fn through(&self, rsh: PathBuf) -> Self {
        Self { rsh, host: self.host, server: None }
    }

    /// Starts an sshd with its own keys. Records a skip if it cannot run.
    pub fn by_sshd(test: &str, folder: &Path) -> Option<Self> {
        let (sshd, home) = (Path::new("/usr/sbin/sshd"), folder.display());
        let folder = folder.join("sshd");
        if !sshd.exists() {
            skip(test, "openssh-server is not installed");
            return None;
        }
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        // Privilege separation of sshd needs this directory.
        if rustix::process::geteuid().is_root() {
            drop(fs::create_dir_all("/run/sshd"));
        }
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(key));
            assert!(keygen.status().unwrap().success());
        }
        let at = |name: &str| folder.join(name).display().to_string();
        let held = ReservedPort::new();
        let port = held.number;
        // The default key exchange takes most of the time of a login. With this HOME, the shell of the user reads no
        // startup files, which may take long and print something.
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
             StrictModes no\nUsePAM no\nMaxStartups 100\nKexAlgorithms curve25519-sha256\n\
             SetEnv \"HOME={home}\"\nPermitUserRC no\n",
            at("host"),
            at("user.pub")
        );
        fs::write(folder.join("config"), config).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new(sshd);
        command.args(["-D", "-e", "-f"]).arg(folder.join("config"));
        let server = command.stdin(Stdio::null()).stderr(log).spawn().unwrap();
        let rsh = folder.join("ssh");
        let bin = Path::new(env!("CARGO_BIN_EXE_thalweg")).parent().unwrap().display();
        // The script passes on the options, except port and key, which are those of this test.
        let text = format!(
            "#!/bin/sh\noptions=\nwhile [ \"${{1#-}}\" != \"$1\" ]; do\n\
             case $1 in -p | -i) shift ;; *) options=\"$options $1\" ;; esac\nshift\ndone\nshift\n\
             exec /usr/bin/ssh -F /dev/null -p {port} -i '{}' -o BatchMode=yes -o LogLevel=ERROR \
             -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes $options \
             127.0.0.1 \"cd '{home}' && HOME='{home}' PATH='{bin}':\\$PATH $*\"\n",
            at("user")
        );
        script(&rsh, &text);
        let mut machine = Self { rsh, host: "127.0.0.1", server: Some((server, held)) };
        match machine.answers(&folder.join("log")) {
            Ok(()) => Some(machine),
            Err(why) => {
                skip(test, &format!("sshd cannot run: {why}"));
                None
            }
        }
    }

    /// Waits until a login works.
    fn answers(&mut self, log: &Path) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let login = Command::new(&self.rsh).args([self.host, "true"]).output().unwrap();
            if login.status.success() {
                return Ok(());
            }
            let (server, _) = self.server.as_mut().expect("a server was started");
            if server.try_wait().unwrap().is_some() || began.elapsed() > GUARD / 4 {
                let said = String::from_utf8_lossy(&login.stderr).into_owned();
                return Err(said + &fs::read_to_string(log).unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the name `HOST:PATH` of a path on this machine.
    pub fn at(&self, path: impl AsRef<Path>) -> std::ffi::OsString {
        let mut name = std::ffi::OsString::from(format!("{}:", self.host));
        name.push(path.as_ref());
        name
    }

    /// Returns `thalweg copy` with this connection.
    pub fn copy(&self, words: &[&str]) -> Command {
        self.run("copy", words)
    }

    /// Returns this command of thalweg with this connection.
    pub fn run(&self, name: &str, words: &[&str]) -> Command {
        let mut command = super::thalweg();
        command.arg(name).arg("-e").arg(&self.rsh).args(words);
        command.arg(concat!("--remote-program=", env!("CARGO_BIN_EXE_thalweg")));
        command
    }

    /// Returns this command with the second operand on the other machine, or with the first one.
    pub fn between(
        &self,
        (name, words): (&str, &[&str]),
        is_push: bool,
        [from, to]: [&Path; 2],
    ) -> Command {
        let mut command = self.run(name, words);
        if is_push {
            command.arg(from).arg(self.at(to));
        } else {
            command.arg(self.at(from)).arg(to);
        }
        command
    }
}

impl Drop for OtherMachine {
    fn drop(&mut self) {
        if let Some((server, _)) = &mut self.server {
            drop(server.kill());
            drop(server.wait());
        }
    }
}
