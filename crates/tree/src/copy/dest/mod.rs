//! The destination: existing entries, temporary names of new ones, and their publication.

pub(crate) mod backup;
pub(crate) mod conflict;
pub(crate) mod existing;
pub(crate) mod mkdir;
pub(crate) mod mode;
pub(crate) mod one_file;
pub(crate) mod publish;
pub(crate) mod same;
pub(crate) mod whole;
pub(crate) mod write_target;
