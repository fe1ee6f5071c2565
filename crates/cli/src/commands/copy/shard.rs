//! Determines this process's rank, from the option or from the environment variables of the scheduler.

use std::{env, fmt::Write, num::NonZero, thread};
use thalweg_sys::host::{ThreadStatus, cores_online};

use crate::exit::{CommandFailure, Exit};

/// The value of `--shard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shard {
    /// Print the environment variables and the rank they give.
    List,
    /// Use the rank from the environment.
    Auto,
    /// Use this rank.
    At(Rank),
}

/// The rank of a process, and the number of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    pub rank: u32,
    pub size: u32,
}

/// A scheduler, and the environment variables that it sets.
struct Scheduler {
    name: &'static str,
    rank: &'static str,
    size: &'static str,
    /// Variable with the number of processes on this machine, if the scheduler sets one. Slurm's variable lists the
    /// numbers of all machines.
    here: Option<&'static str>,
}

/// Schedulers that may have started this process, in order of precedence. MPI precedes Slurm, because Slurm may have
/// started mpirun.
const SCHEDULERS: [Scheduler; 4] = [
    Scheduler {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        here: Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
    },
    Scheduler {
        name: "PMI (MPICH, Intel MPI)",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        here: Some("MPI_LOCALNRANKS"),
    },
    Scheduler {
        name: "Slurm",
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        here: Some("SLURM_TASKS_PER_NODE"),
    },
    // Kubernetes does not set the size: the author of the job must pass it in the environment.
    Scheduler {
        name: "Kubernetes Indexed Job",
        rank: "JOB_COMPLETION_INDEX",
        size: "JOB_COMPLETIONS",
        here: None,
    },
];

/// Returns the number of threads for each rank if `ranks` ranks share `processors` CPUs.
fn share(ranks: u32, processors: u64) -> usize {
    usize::try_from(processors.div_ceil(u64::from(ranks.max(1)))).unwrap_or(usize::MAX)
}

/// Returns the number of ranks that the scheduler started on this machine. Returns `None` if it is unknown, for example
/// if Slurm started different numbers and does not identify this machine.
fn ranks_here(look: Variables<'_>) -> Option<u32> {
    let one = SCHEDULERS.iter().find(|one| look(one.rank).is_some())?;
    let machine = look(NODE).and_then(|index| index.trim().parse().ok());
    ranks_on(&look(one.here?)?, machine)
}

/// Returns the number of ranks on the machine with this index. `list`: a number, or a list of Slurm. "2(x3),1" means
/// three machines with two ranks each, and one machine with one.
fn ranks_on(list: &str, machine: Option<u32>) -> Option<u32> {
    let run = |run: &str| {
        let (ranks, machines) = match run.split_once("(x") {
            Some((ranks, machines)) => (ranks, machines.strip_suffix(')')?),
            None => (run, "1"),
        };
        Some((ranks.parse::<u32>().ok()?, machines.parse::<u32>().ok()?))
    };
    let runs = list.trim().split(',').map(run).collect::<Option<Vec<_>>>()?;
    let (first, _) = *runs.first()?;
    if runs.iter().all(|(ranks, _)| *ranks == first) {
        return Some(first);
    }
    let mut left = machine?;
    for (ranks, machines) in runs {
        match left.checked_sub(machines) {
            Some(rest) => left = rest,
            None => return Some(ranks),
        }
    }
    None
}

/// The index of this machine in a list of Slurm.
const NODE: &str = "SLURM_NODEID";

/// Variables of a Slurm job array. Each job of the array may have several ranks, for which Slurm sets the variables in
/// [`SCHEDULERS`].
const ARRAY: [&str; 4] = [
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_STEP",
];

/// Largest accepted number of ranks; a larger one is probably a mistake.
const MOST: u32 = 1 << 20;

type Variables<'l> = &'l dyn Fn(&str) -> Option<String>;

impl Shard {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "list" => return Ok(Self::List),
            "auto" => return Ok(Self::Auto),
            _ => {}
        }
        let numbers = text.split_once('/').and_then(|(rank, size)| {
            Some(Rank { rank: rank.parse().ok()?, size: size.parse().ok()? })
        });
        let bad = || format!("invalid rank '{text}' (examples: auto, list, 0/8, 7/8)");
        numbers.ok_or_else(bad)?.checked().map(Self::At)
    }

    /// Returns the rank of this process.
    pub fn rank(self) -> Result<Rank, CommandFailure> {
        match self {
            Self::At(rank) => Ok(rank),
            Self::List | Self::Auto => {
                let found = detect(&|name| env::var(name).ok());
                found.map(|(rank, _)| rank).map_err(|why| CommandFailure::new(Exit::Usage, why))
            }
        }
    }

    /// Returns an equal share of the CPUs of this machine for each of its ranks, as a number of threads. Returns 0, the
    /// default of the copier, in three cases: the user gave the rank, the number of ranks on this machine is unknown,
    /// or the scheduler has bound this process to some of the CPUs.
    pub fn threads(self) -> usize {
        let ranks = ranks_here(&|name| env::var(name).ok());
        match (self, ranks, cores_online(), ThreadStatus::now().allowed()) {
            (Self::Auto, Some(ranks), Some(all), Some(allowed)) if allowed >= all => {
                // The cgroup may allow fewer CPUs than this share.
                let most = thread::available_parallelism().map_or(1, NonZero::get);
                share(ranks, all).min(most)
            }
            _ => 0,
        }
    }
}

impl Rank {
    fn checked(self) -> Result<Self, String> {
        let Self { rank, size } = self;
        if size == 0 || size > MOST {
            return Err(format!("{rank}/{size}: expected 1 to {MOST} ranks"));
        }
        if rank >= size {
            return Err(format!("{rank}/{size}: ranks are numbered from 0 to {}", size - 1));
        }
        Ok(self)
    }
}

/// Returns the rank from the environment, and the scheduler that set it.
fn detect(look: Variables<'_>) -> Result<(Rank, String), String> {
    let one = SCHEDULERS.iter().find(|one| look(one.rank).is_some());
    let array = look(ARRAY[0]).is_some();
    let inner = match one {
        Some(one) => {
            let rank = number(look, one.rank)?.unwrap_or_default();
            let size = number(look, one.size)?;
            // If a job of an array has a single process, Slurm may not set the size.
            let size = size.or((array && rank == 0).then_some(1));
            let size = size.ok_or_else(|| {
                format!("{} is {rank}, but {} is not set; use --shard {rank}/N", one.rank, one.size)
            })?;
            Rank { rank, size }.checked()?
        }
        None if array => Rank { rank: 0, size: 1 },
        None => {
            let names: Vec<&str> = SCHEDULERS.iter().map(|one| one.rank).collect();
            return Err(format!(
                "no rank in the environment ({}, {}); use --shard R/N",
                names.join(", "),
                ARRAY[0]
            ));
        }
    };
    let name = one.map_or("Slurm", |one| one.name).to_owned();
    if !array {
        return Ok((inner, name));
    }
    let outer = array_rank(look)?;
    let size = inner.size.saturating_mul(outer.size);
    let rank = outer.rank.saturating_mul(inner.size).saturating_add(inner.rank);
    let rank = Rank { rank, size }.checked()?;
    Ok((rank, format!("{name}, in a job array of Slurm")))
}

/// Returns the position of this job in its array.
fn array_rank(look: Variables<'_>) -> Result<Rank, String> {
    let known =
        |name| number(look, name)?.ok_or_else(|| format!("{name} is not set; use --shard R/N"));
    let (id, size, least) = (known(ARRAY[0])?, known(ARRAY[1])?, known(ARRAY[2])?);
    let step = number(look, ARRAY[3])?.unwrap_or(1).max(1);
    let place = id.checked_sub(least).filter(|place| place.is_multiple_of(step));
    place.and_then(|place| Rank { rank: place / step, size }.checked().ok()).ok_or_else(|| {
        format!(
            "{} is {id}, but the task IDs of the array are not evenly spaced; use --shard R/N",
            ARRAY[0]
        )
    })
}

fn number(look: Variables<'_>, name: &str) -> Result<Option<u32>, String> {
    let Some(text) = look(name) else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| format!("{name}: invalid number '{text}'"))
}

/// Returns the examined variables, their values, and the resulting rank.
pub fn listed() -> String {
    table(&|name| env::var(name).ok())
}

fn table(look: Variables<'_>) -> String {
    let mut text = String::new();
    let mut names: Vec<(&str, &str)> = Vec::new();
    for one in &SCHEDULERS {
        names.extend([(one.name, one.rank), (one.name, one.size)]);
        names.extend(one.here.map(|here| (one.name, here)));
    }
    names.push(("Slurm", NODE));
    names.extend(ARRAY.map(|name| ("Slurm job array", name)));
    for (scheduler, name) in names {
        let value = look(name).unwrap_or_else(|| "-".to_owned());
        let _ = writeln!(text, "{scheduler:<24}{name:<28}{value}");
    }
    let _ = match detect(look) {
        Ok((Rank { rank, size }, by)) => writeln!(text, "auto: rank {rank} of {size}, from {by}"),
        Err(why) => writeln!(text, "auto: {why}"),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<(u32, u32), String> {
        let look = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        detect(&look).map(|(Rank { rank, size }, _)| (rank, size))
    }

    #[test]
    fn ranks_by_hand_count_from_zero() {
        let at = |rank, size| Ok(Shard::At(Rank { rank, size }));
        assert_eq!(Shard::parse("3/8"), at(3, 8));
        assert_eq!(Shard::parse("0/1"), at(0, 1));
        assert_eq!(Shard::parse("auto"), Ok(Shard::Auto));
        for wrong in ["8/8", "1/0", "-1/2", "1", "a/b", "1/2/3", "", "0/99999999"] {
            assert!(Shard::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Shard::parse("2/2").unwrap_err().contains("from 0 to 1"));
    }

    #[test]
    fn every_scheduler_is_understood() {
        let mpi = [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "8")];
        assert_eq!(found(&mpi), Ok((3, 8)));
        assert_eq!(found(&[("PMI_RANK", "1"), ("PMI_SIZE", "2")]), Ok((1, 2)));
        assert_eq!(found(&[("SLURM_PROCID", "5"), ("SLURM_NTASKS", "6")]), Ok((5, 6)));
        let job = [("JOB_COMPLETION_INDEX", "0"), ("JOB_COMPLETIONS", "4")];
        assert_eq!(found(&job), Ok((0, 4)));
        let under_slurm = [mpi[0], mpi[1], ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")];
        assert_eq!(found(&under_slurm), Ok((3, 8)));
    }

    #[test]
    fn ranks_on_one_machine_share_its_processors() {
        let here = |variables: &[(&str, &str)]| {
            ranks_here(&|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let mpi = [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "4")];
        assert_eq!(here(&mpi), Some(4));
        assert_eq!(here(&[("PMI_RANK", "0"), ("MPI_LOCALNRANKS", "2")]), Some(2));
        let slurm = |tasks| here(&[("SLURM_PROCID", "0"), ("SLURM_TASKS_PER_NODE", tasks)]);
        assert_eq!([slurm("6"), slurm("2(x3),2"), slurm("")], [Some(6), Some(2), None]);
        assert_eq!(slurm("2(x3),1"), None);
        let on = |node| {
            let tasks = ("SLURM_TASKS_PER_NODE", "2(x3),1,8(x2)");
            here(&[("SLURM_PROCID", "0"), tasks, ("SLURM_NODEID", node)])
        };
        let expected = [Some(2), Some(2), Some(1), Some(8), Some(8), None, None];
        assert_eq!(["0", "2", "3", "4", "5", "6", "x"].map(on), expected);
        assert_eq!(here(&mpi[..1]), None);
        assert_eq!(here(&[("JOB_COMPLETION_INDEX", "0")]), None);
        assert_eq!([share(2, 2), share(2, 5), share(3, 2), share(0, 4)], [1, 3, 1, 4]);
        assert_eq!(Shard::At(Rank { rank: 0, size: 2 }).threads(), 0);
    }

    #[test]
    fn arrays_of_slurm_multiply() {
        let array = |id| {
            [
                ("SLURM_ARRAY_TASK_ID", id),
                ("SLURM_ARRAY_TASK_COUNT", "4"),
                ("SLURM_ARRAY_TASK_MIN", "10"),
            ]
        };
        assert_eq!(found(&array("12")), Ok((2, 4)));
        let [a, b, c] = array("16");
        assert_eq!(found(&[a, b, c, ("SLURM_ARRAY_TASK_STEP", "2")]), Ok((3, 4)));
        assert_eq!(
            found(&[a, b, c, ("SLURM_ARRAY_TASK_STEP", "2"), ("SLURM_PROCID", "0")]),
            Ok((3, 4))
        );
        let both =
            [a, b, c, ("SLURM_ARRAY_TASK_STEP", "2"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")];
        assert_eq!(found(&both), Ok((7, 8)));
        assert!(found(&array("15")).unwrap_err().contains("not evenly spaced"));
        assert!(found(&array("16")).unwrap_err().contains("not evenly spaced"));
    }

    #[test]
    fn a_missing_or_invalid_variable_is_reported() {
        assert!(found(&[]).unwrap_err().contains("--shard R/N"));
        let error = found(&[("JOB_COMPLETION_INDEX", "3")]).unwrap_err();
        assert!(error.contains("JOB_COMPLETIONS") && error.contains("--shard 3/N"), "{error}");
        assert!(found(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")]).is_err());
        assert!(found(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]).is_err());
        let text = table(&|name| (name == "SLURM_PROCID").then(|| "1".to_owned()));
        assert!(
            text.contains("SLURM_PROCID") && text.lines().last().unwrap().starts_with("auto: ")
        );
    }
}
