//! `copy --shard auto` under the schedulers that start ranks on a cluster. The tests with MPI are in `fleets`.

use serde_json::Value;
use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use crate::support::{
    Running, Scratch,
    fleet::{SHARD, expect_copied, of_fleet, plant},
    run,
    run::{quiet_environment, wrapped},
    skip,
    skip::has_tools,
    thalweg,
};

/// Returns the code blocks of a language on the page about several machines.
fn blocks(language: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/many-machines.md");
    let page = fs::read_to_string(page).unwrap();
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Parses YAML with Python, because the workspace has no YAML parser. Records a skip without PyYAML.
fn parsed(test: &str, text: &str) -> Option<Value> {
    let line = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)";
    let mut python = Command::new("python3");
    python.args(["-c", line]).stdin(Stdio::piped());
    let mut running = Running::start(&mut python);
    running.child().stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let ran = running.finish();
    if ran.stderr.contains("No module named 'yaml'") {
        skip(test, "python3 has no yaml (Debian: python3-yaml)");
        return None;
    }
    Some(ran.expect(0).all_json())
}

#[test]
fn the_indexed_job_of_the_page_is_one_and_its_pods_copy_the_tree() {
    let test = "the_indexed_job_of_the_page_is_one_and_its_pods_copy_the_tree";
    if !has_tools(test, &["python3"]) {
        return;
    }
    let all = blocks("yaml");
    let [text] = &all[..] else { panic!("one block: {all:?}") };
    let Some(job) = parsed(test, text) else { return };
    assert_eq!((&job["apiVersion"], &job["kind"]), (&"batch/v1".into(), &"Job".into()));
    let spec = &job["spec"];
    assert_eq!(spec["completionMode"], "Indexed");
    assert!(spec["backoffLimitPerIndex"].as_u64().is_some_and(|limit| limit > 0));
    let pod = &spec["template"]["spec"];
    // With another policy, Kubernetes refuses `backoffLimitPerIndex`.
    assert_eq!(pod["restartPolicy"], "Never");
    let [container] = &pod["containers"].as_array().unwrap()[..] else { panic!("{pod}") };
    let volumes: Vec<_> = pod["volumes"].as_array().unwrap().iter().map(|v| &v["name"]).collect();
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().all(|mount| volumes.contains(&&mount["name"])), "{pod}");
    let [variable] = &container["env"].as_array().unwrap()[..] else { panic!("{container}") };
    assert_eq!(variable["name"], "JOB_COMPLETIONS");
    let count = spec["completions"].as_u64().unwrap();
    assert_eq!(variable["value"], count.to_string());

    let scratch = Scratch::new();
    plant(scratch.path());
    let words: Vec<_> = container["command"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    let words: Vec<_> = (words[1..].iter())
        .map(|word| match *word {
            "/from/tree" => "tree",
            "/to/tree" => "copy",
            word => word,
        })
        .collect();
    let start = |index: u64| {
        let mut pod = thalweg();
        for other in ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "SLURM_ARRAY_TASK_ID"] {
            pod.env_remove(other);
        }
        pod.env("JOB_COMPLETION_INDEX", index.to_string());
        pod.env("JOB_COMPLETIONS", count.to_string());
        Running::start(pod.args(&words).args(["--json", SHARD]).current_dir(scratch.path()))
    };
    let all: Vec<_> = (0..count).map(start).collect();
    let said: Vec<_> = all.into_iter().map(|one| one.finish().expect(0).json()).collect();
    for (index, said) in (0..count).zip(&said) {
        assert_eq!((of_fleet(said, "rank"), of_fleet(said, "size")), (index.into(), count.into()));
    }
    expect_copied(scratch.path());
}

#[test]
fn under_slurm_the_tasks_of_a_job_and_the_jobs_of_an_array_are_ranks() {
    let test = "under_slurm_the_tasks_of_a_job_and_the_jobs_of_an_array_are_ranks";
    if std::env::var_os("THALWEG_SLURM").is_none() {
        return skip(test, "starts a Slurm of its own; set THALWEG_SLURM=1");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/setup/with-slurm");
    let job = "srun -n 3 -O \"$0\" copy -a --json --shard auto --shard-size=256K tree copy";
    let array = "sbatch --wait --array=0-2 -o said.%a --wrap \
        \"'$0' copy -a --json --shard auto --shard-size=256K tree copy\" && cat said.* && rm said.*";
    for line in [job, array] {
        let scratch = Scratch::new();
        plant(scratch.path());
        let mut slurm = wrapped(&[script.to_str().unwrap(), "bash", "-c", line]);
        quiet_environment(&mut slurm);
        let ran = run(slurm.current_dir(scratch.path()));
        if ran.code() == 77 {
            return skip(test, String::from_utf8_lossy(&ran.stdout).trim());
        }
        let ran = ran.expect(0);
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        let said = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut ranks: Vec<_> =
            said.map(|said| (of_fleet(&said, "rank"), of_fleet(&said, "size"))).collect();
        ranks.sort_by_key(|(rank, _)| rank.as_u64());
        assert_eq!(ranks, [0, 1, 2].map(|rank: u64| (rank.into(), 3.into())), "{}", ran.said());
        expect_copied(scratch.path());
    }
}
