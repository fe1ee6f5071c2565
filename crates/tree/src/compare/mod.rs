//! Compares a copy with its source: names, file types, contents and, if requested, attributes.
//!
//! Both sides are read once and compared byte by byte, so that the offset of the first difference is known.
//! Differences are reported to [`Events::finding`](crate::Events::finding) immediately and are not stored.

pub(crate) mod attributes;
mod entry;
mod large;
mod links;
mod operands;
mod options;
mod pair;
mod report;
pub(crate) mod run;

pub use crate::event::{DifferenceKind, Finding};
pub use operands::compare;
pub use options::{CompareOptions, Into};
pub use report::Comparison;
