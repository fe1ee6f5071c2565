//! An answer that is being sent, and its data for the log and the counters.

use std::time::Instant;

use thalweg_core::Report;

use super::{sending::Sending, site::ServedSite};
use crate::http::{head::RequestHead, status::HttpStatus};

/// An answer that a connection is sending.
pub struct Answering {
    pub sending: Sending,
    pub status: HttpStatus,
    pub keep_alive: bool,
    pub request: String,
    pub began: Instant,
    pub mechanism: Option<(&'static str, u64)>,
    pub notes: Vec<String>,
    /// `None` if the answer cannot be created again.
    pub retry: Option<Box<RequestRetry>>,
}

impl Answering {
    /// Starts the record of an answer.
    pub fn new(sending: Sending, status: HttpStatus, keep_alive: bool, request: String) -> Self {
        Self {
            sending,
            status,
            keep_alive,
            request,
            began: Instant::now(),
            mechanism: None,
            notes: Vec::new(),
            retry: None,
        }
    }
}

/// A request that is answered again if the file changes before the first byte is sent.
pub struct RequestRetry {
    pub head: RequestHead,
    /// Number of attempts that are left.
    pub left: usize,
}

/// The state of a connection.
pub enum ConnectionPhase {
    /// Waiting for a request.
    Waiting,
    Answering(Box<Answering>),
    /// The last answer is sent, and further input is discarded. An immediate `close` would make the kernel send a
    /// reset, and the client could lose the answer.
    Parting,
}

/// The next action for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// Wait until the socket is ready.
    Wait,
    /// Continue after the other connections have had their turn.
    Go,
    /// Continue a moment later, because a rate limit is exceeded.
    Later,
    /// Close the connection.
    Close,
}

/// Adds the report of a transfer to the counters and to the log data of its answer.
pub fn account(
    site: &ServedSite,
    mechanism: &mut Option<(&'static str, u64)>,
    notes: &mut Vec<String>,
    report: &Report,
) {
    site.accounts.moved(report);
    if let Some(main) = report.main()
        && mechanism.is_none_or(|(_, bytes)| bytes < main.bytes)
    {
        *mechanism = Some((main.mechanism, main.bytes));
    }
    for step in &report.steps_down {
        notes
            .push(format!("{} -> {} after {} bytes: {}", step.from, step.to, step.at, step.reason));
    }
}
