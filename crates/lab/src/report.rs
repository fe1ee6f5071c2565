//! The report: saved results as a short self-contained HTML page, their drawings as one page per study, or all of it
//! as Markdown for an issue.
//!
//! It shows the verdicts of [`StudyResult`](crate::study::result::StudyResult) unchanged. Only the winner under a
//! condition (a cell at one size under one load) is computed here, from the samples and with the same statistics. Pages
//! use no network and no scripts. Code of this module builds the drawings; templates that escape their data build the
//! pages.

mod answers;
mod articles;
mod bars;
mod cards;
mod cell_charts;
mod cell_results;
mod chart;
mod claims;
mod forest;
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
mod today;
mod winners;
mod words;

pub use articles::{articles, counts};
pub use load::{FoundResults, ReportError, ReportInput, read, read_all, usual_folders};
pub use markdown::markdown;
pub use page::{Drawings, drawings, html};
pub use today::today;
