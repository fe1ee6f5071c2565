//! Compares what was copied with what it was copied from: names, kinds, contents and, if asked for, attributes.
//!
//! Both sides are read once and compared byte by byte, so that the first difference can be said. What is
//! found goes to [`Events::finding`](crate::Events::finding) at once and is not kept.

pub(crate) mod attributes;
mod entry;
mod large;
mod links;
mod operands;
mod options;
mod pair;
mod report;
pub(crate) mod run;

pub use crate::event::{Finding, How};
pub use operands::compare;
pub use options::{CompareOptions, Into};
pub use report::Comparison;
