//! `copy --shard`: several processes copy one tree, and the tests kill, stop and restart them at random. `diff` and
//! `sha256sum` compare the copies, without code of thalweg. `THALWEG_KILLS=50` makes the campaign longer.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{fs, io::Write, process::Command, thread, time::Duration};

use crate::support::{
    Running, Scratch, bytes,
    fleet::{
        SHARD, expect_copied, fleet, has_plan, manifest, number, of_fleet, plant, plant_some, rank,
        start_slowly, status,
    },
    mounts,
    mounts::free,
    names, run,
    run::{Ran, wrapped},
    skip::has_tools,
    thalweg,
};
use thalweg_testing::{Dice, from_env};

#[test]
fn two_ranks_copy_a_tree_and_one_of_them_finishes_it() {
    let scratch = Scratch::new();
    plant(scratch.path());
    let said = fleet(scratch.path(), 2, &[]);
    expect_copied(scratch.path());
    let ends: Vec<Value> = said.iter().map(|said| of_fleet(said, "end")).collect();
    let finished = ends.iter().filter(|end| **end == "finished").count();
    assert_eq!(finished, 1, "{said:?}");
    assert!(ends.iter().all(|end| ["finished", "others", "there"].iter().any(|one| end == one)));
    let finisher = said.iter().find(|said| of_fleet(said, "end") == "finished").unwrap();
    let workers = of_fleet(finisher, "workers");
    let tasks: u64 = workers.as_array().unwrap().iter().map(|one| number(&one["tasks"])).sum();
    assert!(tasks >= number(&of_fleet(finisher, "tasks")), "{workers}");
    // A rank that starts after the end has nothing to do.
    let late = run(&mut rank(scratch.path(), 1, 2, &[])).expect(0).json();
    assert_eq!(of_fleet(&late, "end"), "there");
    expect_copied(scratch.path());
}

#[test]
fn ranks_that_are_killed_at_any_moment_are_followed_by_any_number_and_no_byte_is_wrong() {
    let mut dice = Dice::new("ranks_that_are_killed_at_any_moment");
    let kills = from_env("THALWEG_KILLS", 4);
    let (mut landed, mut missed, mut moved_less) = (0, 0, 0);
    while landed < kills {
        assert!(missed < 4 * kills + 20, "kills do not land: {landed} did");
        let scratch = Scratch::new();
        plant(scratch.path());
        let mut in_a_row = 0;
        loop {
            let mut all = start_slowly(scratch.path(), dice.within(2..5), &[]);
            thread::sleep(Duration::from_millis(dice.within(0..500)));
            // Kills one rank or all: a scheduler that loses one rank ends the others, too.
            let (which, end_all) = (dice.within(0..all.len() as u64), dice.within(0..2) == 0);
            for (n, one) in (0..).zip(&mut all) {
                if (n == which || end_all) && !one.has_ended() {
                    drop(one.child().kill());
                }
            }
            let mut dead = 0;
            for one in all {
                let ran = one.finish();
                match ran.status.code() {
                    None => dead += 1,
                    code => assert_eq!(code, Some(0), "{}", ran.said()),
                }
            }
            landed += dead;
            in_a_row += dead;
            missed += u64::from(dead == 0);
            if scratch.join("copy").exists() || dice.within(0..2) == 0 {
                break;
            }
        }
        if !scratch.join("copy").exists() {
            let before = status(scratch.path());
            let size = if dice.within(0..2) == 0 { 1 } else { dice.within(2..4) };
            let said = fleet(scratch.path(), size, &[]);
            let moved: u64 = said.iter().map(|said| number(&said["bytes"])).sum();
            if let Some(before) = before.filter(|before| size == 1 && before["tasks"] != 0) {
                let left = number(&before["bytes"]) - number(&before["done_bytes"]);
                // One file with two names (3500 bytes) is in no task. A task has less than 768 KiB.
                let most = left + 3500 + in_a_row * (768 << 10);
                assert!(moved <= most, "{moved} moved where {left} were left: {before}");
                moved_less += u64::from(moved < number(&before["bytes"]));
            }
        } else if scratch.join(".copy.thalweg-fleet").exists() {
            // The rank that published the copy was killed before it removed the directory of the fleet.
            fleet(scratch.path(), 1, &[]);
        }
        expect_copied(scratch.path());
    }
    println!("{landed} kills, {missed} missed; {moved_less} times one rank moved less than all");
}

#[test]
fn a_rank_that_stood_still_while_the_others_finished_changes_nothing_when_it_wakes() {
    let scratch = Scratch::new();
    plant(scratch.path());
    let mut all = start_slowly(scratch.path(), 2, &[]);
    thread::sleep(Duration::from_millis(60));
    let zombie = all.remove(0);
    zombie.signal(Signal::STOP);
    let other = all.remove(0).finish().expect(0).json();
    let before = scratch.join("copy").exists().then(|| manifest(&scratch.join("copy")));
    zombie.signal(Signal::CONT);
    let woken = zombie.finish().expect(0).json();
    let ends = [of_fleet(&other, "end"), of_fleet(&woken, "end")];
    assert!(ends.iter().any(|end| end == "finished"), "{ends:?}");
    let copy = manifest(&scratch.join("copy"));
    assert_eq!(before.unwrap_or_else(|| copy.clone()), copy);
    assert_eq!(copy, manifest(&scratch.join("tree")));
    assert_eq!(names(scratch.path()), ["copy", "tree"]);
}

/// Starts a fleet with one worker, and interrupts it as soon as the plan exists.
fn interrupted(scratch: &Scratch) {
    let mut all = start_slowly(scratch.path(), 1, &[]);
    let one = all.remove(0);
    one.signal(Signal::INT);
    let ran = one.finish().expect(130);
    for words in ["'.copy.thalweg-fleet'", "run the same command again to continue", "`rm -r`"] {
        ran.expect_said(words);
    }
}

#[test]
fn a_source_that_changed_since_the_survey_is_named_with_status_3_and_the_rest_is_there() {
    let scratch = Scratch::new();
    plant(scratch.path());
    interrupted(&scratch);
    let small = scratch.join("tree/folder-2/deeper/7");
    fs::write(&small, "other").unwrap();
    bytes::write_at(&scratch.join("tree/folder-3/deeper/large"), 1000, 50, 100);
    let ran = run(&mut rank(scratch.path(), 0, 1, &[])).expect(3);
    for name in ["tree/folder-2/deeper/7", "tree/folder-3/deeper/large"] {
        ran.expect_said(&format!("'{name}' changed while it was copied"));
    }
    assert_eq!(ran.stderr.matches("' changed while").count(), 2, "{}", ran.stderr);
    expect_copied(scratch.path());
}

#[test]
fn a_full_disk_stops_a_fleet_and_with_room_the_same_command_goes_on() {
    let test = "a_full_disk_stops_a_fleet_and_with_room_the_same_command_goes_on";
    let Some((_alone, disk)) = mounts().small(test) else { return };
    let scratch = Scratch::new();
    plant_some(scratch.path(), 2, 1 << 20);
    let ballast = disk.join("ballast");
    bytes::write(&ballast, 1, free(disk) - (3 << 19));
    let copy = disk.join("copy");
    let ranks = |size: u64| -> Vec<Ran> {
        let start = |n| {
            let mut command = thalweg();
            command.args(["copy", "-a", "--json", SHARD, "--shard", &format!("{n}/{size}")]);
            Running::start(command.arg(scratch.join("tree")).arg(&copy))
        };
        let all: Vec<_> = (0..size).map(start).collect();
        all.into_iter().map(Running::finish).collect()
    };
    let expect_full = |ran: Ran| {
        let ran = ran.expect(3);
        ran.expect_said("full");
        assert_eq!(of_fleet(&ran.json(), "end"), "unfinished");
    };
    ranks(2).into_iter().for_each(expect_full);
    assert!(!copy.exists());
    let found = run(thalweg().args(["fleet", "--json"]).arg(&copy)).expect(0).all_json();
    assert_eq!(found["phase"], "full", "{found}");
    // Fills the disk, so that it has no space for the journal of a worker.
    let mut rest = fs::File::create(disk.join("rest")).unwrap();
    while rest.write_all(&[1; 512]).is_ok() {}
    ranks(1).into_iter().for_each(expect_full);
    fs::remove_file(disk.join("rest")).unwrap();
    fs::remove_file(ballast).unwrap();
    for ran in ranks(3) {
        ran.expect(0);
    }
    run(Command::new("diff").args(["-r", "--no-dereference"]).arg(scratch.join("tree")).arg(&copy))
        .expect(0);
    fs::remove_dir_all(&copy).unwrap();
    assert!(names(disk).iter().all(|name| !name.contains("thalweg")));
}

/// Returns the command that runs two ranks under mpirun.
fn mpirun(scratch: &Scratch, options: &[&str]) -> Command {
    let mut command = wrapped(&["mpirun", "-n", "2"]);
    command.args(["copy", "-a", "--shard", "auto", SHARD]).args(options).args(["tree", "copy"]);
    // By default, Open MPI refuses to run as root, and to start more processes than CPUs.
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
        command.env(name, "1");
    }
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    command.current_dir(scratch.path());
    command
}

/// Returns the process of some rank. The process ID is in the name of its journal.
fn process(scratch: &Scratch) -> Option<Pid> {
    let entries = fs::read_dir(scratch.join(".copy.thalweg-fleet")).ok()?;
    let mut names = entries.flatten().map(|entry| entry.file_name().into_string().unwrap());
    let name = names.find(|name| name.starts_with("journal."))?;
    Pid::from_raw(name.rsplit('-').nth(2)?.parse().ok()?)
}

#[test]
fn under_mpirun_every_process_is_a_rank() {
    let test = "under_mpirun_every_process_is_a_rank";
    if !has_tools(test, &["mpirun"]) {
        return;
    }
    let scratch = Scratch::new();
    plant(scratch.path());
    run(&mut mpirun(&scratch, &[])).expect(0);
    expect_copied(scratch.path());
}

#[test]
fn a_rank_that_is_killed_ends_the_job_of_mpirun_and_the_same_line_again_finishes() {
    let test = "a_rank_that_is_killed_ends_the_job_of_mpirun_and_the_same_line_again_finishes";
    if !has_tools(test, &["mpirun"]) {
        return;
    }
    let scratch = Scratch::new();
    plant(scratch.path());
    let mut job = Running::start(&mut mpirun(&scratch, &["--limit=256K"]));
    let victim = loop {
        match process(&scratch) {
            Some(victim) => break victim,
            None => thread::sleep(Duration::from_millis(1)),
        }
        assert!(!job.has_ended(), "over before there was a rank");
    };
    kill_process(victim, Signal::KILL).unwrap();
    let ran = job.finish();
    assert!(!ran.status.success(), "{}", ran.said());
    assert!(!scratch.join("copy").exists());
    run(&mut mpirun(&scratch, &[])).expect(0);
    expect_copied(scratch.path());
}

#[test]
fn ranks_come_from_the_environment_and_a_missing_one_is_said() {
    let scratch = Scratch::new();
    plant(scratch.path());
    let auto = |variables: &[(&str, &str)]| {
        let mut command = thalweg();
        for name in ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "SLURM_ARRAY_TASK_ID"] {
            command.env_remove(name);
        }
        command.args(["copy", "-a", "--json", "--shard", "auto", "tree", "copy"]);
        run(command.envs(variables.iter().copied()).current_dir(scratch.path()))
    };
    auto(&[]).expect(2).expect_said("--shard R/N");
    auto(&[("JOB_COMPLETION_INDEX", "0")]).expect(2).expect_said("JOB_COMPLETIONS");
    assert_eq!(names(scratch.path()), ["tree"]);
    let said = auto(&[("JOB_COMPLETION_INDEX", "0"), ("JOB_COMPLETIONS", "3")]).expect(0).json();
    assert_eq!((of_fleet(&said, "rank"), of_fleet(&said, "size")), (0.into(), 3.into()));
    expect_copied(scratch.path());
    let list = run(thalweg().args(["copy", "--shard"]).env("SLURM_PROCID", "1")).expect(0);
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("SLURM_PROCID") && list.contains("auto: "), "{list}");
}

#[test]
fn what_a_fleet_cannot_do_is_refused_before_anything_is_made() {
    let scratch = Scratch::new();
    plant(scratch.path());
    scratch.folder("there");
    let refused = |words: &[&str], code: i32, said: &str| {
        let ran = run(thalweg().arg("copy").args(words).current_dir(scratch.path()));
        ran.expect(code).expect_said(said);
    };
    refused(&["-a", "--shard=0/2", "tree", "there"], 4, "exists");
    refused(&["-r", "--shard=0/2", "tree", "new"], 2, "-a");
    refused(&["-a", "--shard=2/2", "tree", "new"], 2, "from 0 to 1");
    refused(&["-a", "--shard=0/1", "--exclude=x", "tree", "new"], 2, "--exclude");
    refused(&["-a", "--shard=0/1", "-n", "tree", "new"], 2, "with -a");
    refused(&["-a", "--shard=0/1", "tree/folder-0/deeper/1", "new"], 2, "not a directory");
    refused(&["-a", "--shard=0/1", "tree", "tree/empty/new"], 1, "into itself");
    refused(&["-a", "--shard=1/2", "--wait=0s", "tree", "new"], 1, "rank 0");
    refused(&["-a", "s3://bucket/x", "new"], 4, "rclone");
    refused(&["-a", "tree", "s3://bucket/x"], 4, "s5cmd");
    run(Command::new("rm").arg("-r").arg(scratch.join(".new.thalweg-fleet"))).expect(0);
    assert_eq!(names(scratch.path()), ["there", "tree"]);
    let none = run(thalweg().args(["fleet", "new"]).current_dir(scratch.path())).expect(1);
    none.expect_said("no sharded copy");
}

#[test]
fn an_ordinary_copy_leaves_a_fleet_alone() {
    let scratch = Scratch::new();
    plant(scratch.path());
    interrupted(&scratch);
    for words in [&["-a"][..], &["-a", "--resume"]] {
        run(thalweg().arg("copy").args(words).args(["tree", "copy"]).current_dir(scratch.path()))
            .expect(0);
        run(Command::new("rm").arg("-r").arg(scratch.join("copy"))).expect(0);
        assert!(has_plan(scratch.path()));
    }
    fleet(scratch.path(), 2, &[]);
    expect_copied(scratch.path());
}
