//! Obtains the plan of a fleet.

use rustix::fs::{OFlags, stat};
use std::{os::fd::OwnedFd, time::Instant};
use thalweg_sys::io;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    assignment::{Assignment, Pauses},
    existing::expect_links,
    fleet_directory::PLAN,
    plan::{FleetPlan, PlanWriter, Surveyed},
    survey::{Trouble, survey},
};
use crate::{Error, Fsync, Refusal, error::at_path};

impl Assignment<'_> {
    /// Returns the plan, created by this worker or by another one. Returns `None` if the worker was cancelled or the
    /// tree is already published.
    pub fn plan(&self) -> Result<Option<FleetPlan>, Error> {
        let (began, mut pauses) = (Instant::now(), Pauses::new());
        loop {
            if let Some(plan) = self.place.open_file(PLAN)? {
                return FleetPlan::read(plan).map(Some).map_err(|why| self.place.no_plan(why));
            }
            if self.events.go_on().is_err() || self.place.is_published(self.source) {
                return Ok(None);
            }
            if self.member.rank == 0 && self.member.makes() {
                if !self.make_plan()? {
                    return Ok(None);
                }
            } else if began.elapsed() >= self.member.wait {
                let reason = Refusal::NoPlanYet;
                return Err(Error::Refused { path: self.place.path.clone(), reason });
            } else {
                pauses.next();
            }
        }
    }

    /// Creates the plan, unless another worker creates it first. Returns `false` if this worker was cancelled.
    fn make_plan(&self) -> Result<bool, Error> {
        let place = self.place;
        let temporary = self.name.file("survey");
        let file = place.create(&temporary, OFlags::RDWR)?;
        if place.is_there {
            expect_links(place, &temporary)?;
        }
        let id = xxh3_64(self.name.to_string().as_bytes());
        let top = stat(self.source).map_err(at_path(self.source, "stat"))?;
        let (device, writer) = (top.st_dev, PlanWriter::new(file, id, Surveyed::of(&top)));
        let task_bytes = self.member.task_size();
        let (options, events) = (self.options, self.events);
        let written = survey(self.source, device, options, task_bytes, events, writer)?;
        let sync = |file: OwnedFd| match self.options.fsync {
            Fsync::Never => Ok(()),
            // One sync costs little, and no later run can continue without the plan, so `Auto` syncs it too.
            Fsync::Auto | Fsync::Always => io::sync(&file),
        };
        let trouble = match written.and_then(|file| sync(file).map_err(Trouble::Write)) {
            Ok(()) => {
                if !place.claim(&temporary, PLAN)? {
                    place.take_away(&temporary)?;
                }
                return Ok(true);
            }
            Err(trouble) => trouble,
        };
        place.take_away(&temporary)?;
        match trouble {
            Trouble::Cancelled => Ok(false),
            Trouble::Write(errno) => Err(at_path(&place.path, "pwrite")(errno)),
            Trouble::TooMany => {
                let why = "too many tasks for one worker; use a larger --shard-size";
                Err(Error::Usage(why.to_owned()))
            }
        }
    }
}
