//! Files that are here in the size of the list: whether they are the files of the list is found out by their hashes, whatever
//! their times say.

use std::{collections::VecDeque, os::fd::AsFd};

use rustix::fs::{Mode, OFlags, openat};

use super::{
    asking::Asking,
    files::Wanted,
    job::{Job, check},
};
use crate::client::{Error, Expected, connect::Connection, patience::Patience, resume};

/// Those of one thread, and the connection on which it asks for their hashes.
pub struct Doubts {
    all: VecDeque<Wanted>,
    connection: Option<Connection>,
    asking: Asking,
    /// This server tells hashes.
    tells: bool,
}

impl Doubts {
    pub fn new(job: &Job<'_>) -> Self {
        let (all, asking) = (VecDeque::new(), Asking::for_hashes(job));
        Self { all, connection: None, asking, tells: false }
    }

    /// One more.
    pub fn push(&mut self, doubted: Wanted) {
        self.all.push_back(doubted);
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The first one is done with.
    pub fn pop(&mut self) -> Option<Wanted> {
        self.all.pop_front()
    }

    /// What was asked and not answered is asked again.
    pub fn forget_connection(&mut self) {
        self.connection = None;
        self.asking.forget();
    }

    /// Asks for what is not asked for yet, and takes the first answer: whether the first file is the one of the list.
    pub fn is_first_the_same(&mut self, job: &Job<'_>) -> Result<bool, Error> {
        let account = job.account;
        let look = || account.go_on();
        let patience = Patience { most: job.options.patience, look: &look };
        let mut connection = job.connect(self.connection.take(), &patience)?;
        connection.send(&self.asking.next(self.all.iter()), &patience)?;
        let head = connection.head(&patience)?;
        if head.status != 200 {
            return Err(resume::status(&head));
        }
        self.asking.answered();
        if head.keeps_alive() {
            self.connection = Some(connection);
        } else {
            self.forget_connection();
        }
        let Some(first) = self.all.front() else { return Ok(false) };
        check(&head, first)?;
        let Some(expected) = Expected::of_head(&head) else {
            // Of one that cannot be read, or changes, there is none; it is fetched, which says more.
            return if self.tells { Ok(false) } else { Err(untold(job)) };
        };
        self.tells = true;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = openat(&first.folder.fd, &first.name, flags, Mode::empty()) else {
            return Ok(false);
        };
        match expected.check(file.as_fd(), false, &look) {
            Ok(_) => Ok(true),
            Err(Error::Differs { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn untold(job: &Job<'_>) -> Error {
    let server = job.base;
    Error::Unsupported(format!("'{server}' tells no hashes: it has to be served with --hash"))
}
