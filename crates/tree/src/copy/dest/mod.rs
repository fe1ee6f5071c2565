//! The destination: what is there, under which name something new is made, and how it gets its own.

pub(crate) mod backup;
pub(crate) mod conflict;
pub(crate) mod mkdir;
pub(crate) mod mode;
pub(crate) mod one_file;
pub(crate) mod publish;
pub(crate) mod same;
pub(crate) mod write_target;
