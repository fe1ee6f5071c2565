//! `thalweg trial` on common programs: each run gives a table, and the kernel that copies single bytes is slower. Tests
//! of programs that are not installed are skipped.

use crate::support;

use serde_json::Value;
use std::{env, path::PathBuf, process::Command};
use thalweg_testing::ReservedPort;

use support::{
    Scratch, skip,
    trial::{reaches, row},
};

/// The directory into which tests/setup/nginx unpacks nginx.
const UNPACKED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/nginx/usr/sbin");

/// Returns the path of a program. Servers are often in directories outside of a user's PATH.
fn installed(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin", UNPACKED].map(PathBuf::from);
    let folders = env::split_paths(&path).chain(more);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns the paths of all programs. If any is missing, records a skip with its name and returns `None`.
fn all_installed(test: &str, names: &[&str]) -> Option<Vec<PathBuf>> {
    let missing: Vec<&str> = names.iter().copied().filter(|n| installed(n).is_none()).collect();
    if !missing.is_empty() {
        skip(test, &format!("not installed: {}", missing.join(", ")));
        return None;
    }
    names.iter().map(|name| installed(name)).collect()
}

/// Runs a short trial. Checks that it succeeds, that it reached calls, and that every arm has a number.
fn table(scratch: &Scratch, options: &[&str], command: &[&str]) -> Value {
    let few = ["trial", "-n", "2", "-k", "simple,vector-inline", "--json"];
    let json = scratch.run(&[&few[..], options, &["--"], command].concat()).ended(0).json();
    assert!(json["reached"]["calls"].as_u64().unwrap() > 0, "{command:?}: {json}");
    for name in ["libc", "object-alone", "simple", "vector-inline"] {
        assert!(row(&json, name)["value"]["median"].as_f64().unwrap() > 0.0, "{command:?}: {json}");
    }
    json
}

const NO_TUNABLES: &[&str] = &["--tunables", "none"];

#[test]
#[ignore = "measures real programs, for long: the audit suite `whole`"]
fn programs_that_run_and_end_give_a_table() {
    let test = "programs_that_run_and_end_give_a_table";
    let scratch = Scratch::new();
    if !reaches(&scratch, test) {
        return;
    }
    let numbers = "with recursive t(n) as (values(1) union all select n + 1 from t where n < 20000) \
                   select count(*), sum(length(zeroblob(500) || n)) from t";
    let copy = "b = bytearray(300000)\nfor i in range(300): c = bytes(b)";
    scratch.shell("git init -q r && cd r && seq 20000 > f && git add f").ended(0);
    let picture = "testsrc=duration=1:size=320x240";
    let video = ["ffmpeg", "-v", "error", "-nostdin", "-f", "lavfi", "-i", picture];
    let video = [&video[..], &["-f", "rawvideo", "-y", "video"]].concat();
    for (command, options) in [
        (&["sqlite3", ":memory:", numbers][..], &[][..]),
        (&["python3", "-c", copy], NO_TUNABLES),
        (&["git", "-C", "r", "diff", "--cached", "--stat"], NO_TUNABLES),
        (&video[..], NO_TUNABLES),
    ] {
        if all_installed(test, &command[..1]).is_some() {
            table(&scratch, options, command);
        }
    }
}

#[test]
#[ignore = "measures real programs, for long: the audit suite `whole`"]
fn a_real_program_that_copies_is_seen_to_be_hurt_by_the_byte_loop() {
    let test = "a_real_program_that_copies_is_seen_to_be_hurt_by_the_byte_loop";
    let scratch = Scratch::new();
    if all_installed(test, &["python3"]).is_none() || !reaches(&scratch, test) {
        return;
    }
    // The program does little except copy inside the caches. With a loop that copies single bytes, it takes several
    // times as long, also on a busy machine.
    let copy = "b = bytearray(1 << 18)\nfor i in range(4000): c = bytes(b)";
    let args = ["trial", "-n", "5", "-k", "simple", "--tunables", "none", "-m", "cpu", "--json"];
    let json = scratch.run(&[&args[..], &["--", "python3", "-c", copy]].concat()).ended(0).json();
    let simple = row(&json, "simple");
    assert_eq!(simple["effect"], "hurts", "{simple}");
    assert!(simple["ratio"]["lo"].as_f64().unwrap() > 1.0, "{simple}");
    assert!(json["reached"]["bytes"].as_u64().unwrap() >= 4000 << 18, "{json}");
}

/// The Java virtual machine compiles the copies of this program at run time, so the object does not reach them. It
/// reaches the copies of the virtual machine itself.
const COPIES: &str = "
public class Copies {
    public static void main(String[] arguments) {
        byte[] from = new byte[1 << 16];
        java.nio.ByteBuffer to = java.nio.ByteBuffer.allocateDirect(from.length);
        long sum = 0;
        for (int i = 0; i < 2000; i++) {
            from[i] = (byte) i;
            to.clear().put(from);
            sum += to.get(i);
        }
        System.out.println(sum);
    }
}
";

#[test]
#[ignore = "measures real programs, for long: the audit suite `whole`"]
fn a_virtual_machine_gives_a_table() {
    let test = "a_virtual_machine_gives_a_table";
    let scratch = Scratch::new();
    let home = env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin"));
    let beside = |name: &str| home.as_ref().map(|bin| bin.join(name)).filter(|file| file.is_file());
    let (Some(javac), Some(java)) = (
        beside("javac").or_else(|| installed("javac")),
        beside("java").or_else(|| installed("java")),
    ) else {
        return skip(test, "no javac and java in $JAVA_HOME or PATH");
    };
    if !reaches(&scratch, test) {
        return;
    }
    let source = scratch.file("Copies.java", COPIES);
    let built = Command::new(javac)
        .args(["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-d"])
        .arg(scratch.path("."))
        .arg(source)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let java = java.to_str().unwrap();
    let json = table(&scratch, NO_TUNABLES, &[java, "-cp", ".", "Copies"]);
    assert!(json["program"]["files"][0].as_str().unwrap().ends_with("java"), "{json}");
}

/// In Debian, redis-server and redis-check-rdb are one program under two names. The package redis-tools has the second
/// name, and starts no service.
fn redis_server(scratch: &Scratch) -> Option<PathBuf> {
    installed("redis-server").or_else(|| {
        let link = scratch.path("redis-server");
        std::os::unix::fs::symlink(installed("redis-check-rdb")?, &link).ok()?;
        Some(link)
    })
}

#[test]
#[ignore = "measures real programs, for long: the audit suite `whole`"]
fn a_server_is_tried_by_what_its_client_prints() {
    let test = "a_server_is_tried_by_what_its_client_prints";
    let scratch = Scratch::new();
    if !reaches(&scratch, test) {
        return;
    }
    let (Some(server), Some(_)) = (redis_server(&scratch), installed("redis-benchmark")) else {
        return skip(test, "redis-server and redis-benchmark are not installed");
    };
    let held = ReservedPort::new();
    let port = &held.number.to_string();
    let server = format!("{} --bind 127.0.0.1 --port {port} --save ''", server.display());
    let metric = "regex:([0-9.]+) requests per second";
    let options = ["--server", &server, "--port", port, "-m", metric, "--tunables", "none"];
    let client = ["redis-benchmark", "-h", "127.0.0.1", "-p", port, "-t", "set", "-n", "2000"];
    let json = table(&scratch, &options, &[&client[..], &["-d", "16384", "-q"]].concat());
    let bytes = json["reached"]["bytes"].as_u64().unwrap();
    assert!(bytes > 2000 * 16384, "the values were not copied by the server: {json}");
    assert!(json["metric"].as_str().unwrap().ends_with("higher is better"));
    assert!(json["program"]["files"][0].as_str().unwrap().ends_with("redis-server"));
}

/// Configures nginx as one process in the foreground that writes only into its directory.
const WEB: &str = "
daemon off;
master_process off;
pid pid;
error_log stderr;
events {}
http {
    access_log off;
    # The file goes through its own buffers.
    sendfile off;
    client_body_temp_path of-clients;
    proxy_temp_path of-proxies;
    fastcgi_temp_path of-fastcgi;
    uwsgi_temp_path of-uwsgi;
    scgi_temp_path of-scgi;
    server {
        listen 127.0.0.1:PORT;
        root .;
    }
}
";

#[test]
#[ignore = "measures real programs, for long: the audit suite `whole`"]
fn a_web_server_is_tried_by_the_requests_it_answers() {
    let test = "a_web_server_is_tried_by_the_requests_it_answers";
    let scratch = Scratch::new();
    let Some(programs) = all_installed(test, &["nginx", "wrk"]) else { return };
    if !reaches(&scratch, test) {
        return;
    }
    let held = ReservedPort::new();
    let (port, folder) = (&held.number.to_string(), scratch.path("."));
    scratch.file("web.conf", WEB.replace("PORT", port));
    scratch.file("page", support::bytes(1 << 16));
    let (nginx, folder) = (programs[0].display(), folder.display());
    let server = format!("{nginx} -e stderr -p {folder} -c web.conf");
    let metric = "regex:Requests/sec: +([0-9.]+)";
    let options = ["--server", &server, "--port", port, "-m", metric, "--tunables", "none"];
    let page = format!("http://127.0.0.1:{port}/page");
    let json = table(&scratch, &options, &["wrk", "-t", "1", "-c", "8", "-d", "1s", &page]);
    assert!(json["program"]["files"][0].as_str().unwrap().ends_with("nginx"), "{json}");
}
