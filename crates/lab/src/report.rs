//! The report: saved results as one short self-contained HTML page, their drawings as a page for each
//! study, or all as Markdown for an issue.
//!
//! It shows what [`StudyResult`](crate::study::result::StudyResult) says and judges nothing anew, but
//! for one thing: what wins a place is worked out here from the samples, by the same statistics.
//! No network, no script; drawings come from our own builders, pages from templates that escape.

mod answers;
mod articles;
mod claims;
mod drift;
mod figure;
mod figures;
mod forest;
mod group;
mod history;
mod load;
mod machines;
mod markdown;
mod overview;
mod page;
mod palette;
mod scale;
mod source;
mod speed;
mod svg;
mod table;
mod winners;
mod words;

pub use articles::articles;
pub use load::{Found, Input, ReportError, read, read_all, usual_folders};
pub use machines::counts;
pub use markdown::markdown;
pub use page::{Drawings, drawings, html};
