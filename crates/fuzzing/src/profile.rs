//! Profiles: no input may crash the parser, or make a planned transfer lose a byte.

use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    fs::File,
    io::{Read, Seek, Write},
    os::fd::AsFd,
};
use thalweg_core::{
    Driver, End, Facts, Guarantees, Plan, Prefer, Profile, Request, Sink, Source, Transfer,
};

const BYTES: &[u8] = b"some bytes to move";

/// Runs one input.
pub fn run(text: &[u8]) {
    let Ok(profile) = Profile::parse(text) else { return };
    let again = std::env::temp_dir().join(format!("thalweg-fuzz-{}.json", std::process::id()));
    profile.save(&again).expect("a profile that was read can be written");
    let loaded = Profile::load(&again).expect("and read again");
    assert_eq!(loaded.map(|p| p.cells.len()), Some(profile.cells.len()));
    std::fs::remove_file(&again).expect("it is ours");
    profile.stale();
    for prefer in [Prefer::Wall, Prefer::Cpu, Prefer::Memory] {
        follow(&profile, &Request { prefer, ..Request::default() });
    }
}

/// Executes the transfer that the profile recommends.
fn follow(profile: &Profile, request: &Request) {
    let memory = || File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memfd"));
    let (mut source, mut sink) = (memory(), memory());
    source.write_all(BYTES).expect("room");
    source.rewind().expect("a file");
    let mut transfer = Transfer {
        source: Source::Fd(End::of(source.as_fd()).expect("an end")),
        sink: Sink::Fd(End::of(sink.as_fd()).expect("an end")),
        len: None,
        needs: Guarantees::COPIED,
    };
    let plan = Plan::make(&Facts::of(&transfer), request, Some(profile));
    let outcome = Driver::default().run(&mut transfer, &plan, &mut ());
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    let mut moved = Vec::new();
    sink.rewind().expect("a file");
    sink.read_to_end(&mut moved).expect("readable");
    assert_eq!(moved, BYTES);
}
