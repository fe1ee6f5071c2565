//! Facts about the machine that decide which mechanisms are fast or allowed.

use rustix::process::{Resource, getrlimit};
use serde_json::{Map, Value};
use thalweg_core::{cpu, error::errno_name, profile::Machine, quantity::Size};
use thalweg_sys::{host, uring::Uring};

/// A fact, and its meaning if that is not obvious.
#[derive(Debug)]
pub struct Fact {
    pub name: String,
    pub value: String,
    /// Consequence of the fact.
    pub meaning: String,
}

impl Fact {
    fn new(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), meaning: String::new() }
    }

    fn meaning(mut self, meaning: impl Into<String>) -> Self {
        self.meaning = meaning.into();
        self
    }

    /// Returns the value, with its meaning in parentheses.
    pub fn shown(&self) -> String {
        if self.meaning.is_empty() {
            self.value.clone()
        } else {
            format!("{} ({})", self.value, self.meaning)
        }
    }
}

/// Returns the facts by which a profile identifies its machine, then limits and permissions.
pub fn facts() -> Vec<Fact> {
    let machine = Machine::this();
    let keys = machine.iter().map(|(key, value)| match (key, value.parse::<u64>()) {
        ("pipe-max-size", Ok(bytes)) => Fact::new(key, value)
            .meaning(format!("at most {} per pipe for unprivileged users", Size(bytes))),
        ("cpu", _) if cpu::hidden().is_ok_and(|hidden| !hidden.is_empty()) => {
            Fact::new(key, value).meaning(format!("hidden by {}", cpu::VARIABLE))
        }
        ("capabilities", _) => Fact::new(key, value).meaning(capabilities(value)),
        _ => Fact::new(key, value),
    });
    let mut facts: Vec<Fact> = keys.collect();
    if let Some(pages) = host::pipe_user_pages_soft() {
        let bytes = pages.saturating_mul(rustix::param::page_size() as u64);
        let meaning = if pages == 0 {
            "unlimited".to_owned()
        } else {
            format!(
                "if all pipes of this user exceed {} together, new pipes are small",
                Size(bytes)
            )
        };
        facts.push(Fact::new("pipe-user-pages-soft", pages.to_string()).meaning(meaning));
    }
    let limit = |bytes: Option<u64>| bytes.map_or("unlimited".to_owned(), |b| b.to_string());
    facts.push(Fact::new("memlock", limit(host::memlock_limit())));
    facts.push(Fact::new("open-files", limit(getrlimit(Resource::Nofile).current)));
    facts.push(io_uring());
    if let Some(mode) = host::ThreadStatus::now().seccomp_mode() {
        let meaning = match mode {
            0 => "no filter",
            1 => "strict: few system calls are allowed",
            _ => "filter: system calls may fail with EPERM or ENOSYS, as in containers",
        };
        facts.push(Fact::new("seccomp", mode.to_string()).meaning(meaning));
    }
    facts
}

/// Tries to create an io_uring instance.
fn io_uring() -> Fact {
    let setting = match host::io_uring_disabled() {
        Some(1) => "kernel.io_uring_disabled = 1: permitted only for kernel.io_uring_group",
        Some(2) => "kernel.io_uring_disabled = 2: not permitted",
        _ => "",
    };
    match Uring::new(1, rustix::param::page_size(), rustix::param::page_size()) {
        Ok(_) => Fact::new("io_uring", "works").meaning(setting),
        Err(errno) => Fact::new("io_uring", errno_name(errno)).meaning(setting),
    }
}

/// Returns `none`, `all`, or the number of capabilities, and whether CAP_SYS_RESOURCE is missing. With
/// CAP_SYS_RESOURCE, pipes may exceed the limit of unprivileged users.
fn capabilities(hex: &str) -> String {
    // linux/capability.h
    const SYS_RESOURCE: u32 = 24;
    let Ok(bits) = u64::from_str_radix(hex, 16) else { return String::new() };
    let last = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap");
    let known = last.ok().and_then(|text| text.trim().parse::<u32>().ok()).map(|last| last + 1);
    let held = bits.count_ones();
    match known {
        _ if held == 0 => "none".to_owned(),
        Some(known) if held == known => "all".to_owned(),
        _ if bits >> SYS_RESOURCE & 1 == 0 => format!("{held}, without CAP_SYS_RESOURCE"),
        _ => format!("{held}, with CAP_SYS_RESOURCE"),
    }
}

pub fn as_json(facts: &[Fact]) -> Value {
    let pairs = facts.iter().map(|fact| (fact.name.clone(), Value::from(fact.value.as_str())));
    Value::Object(pairs.collect::<Map<_, _>>())
}
