//! Output formats: tables, JSON, numbers with units.

pub mod answer;
pub mod change_log;
pub mod itemized;
pub mod paint;
pub mod pairs;
pub mod ratio;
pub mod runs;
pub mod summary_words;
pub mod table;
pub mod text;
pub mod ticking;
#[cfg_attr(not(feature = "lab"), allow(dead_code))]
pub mod wrap;

pub use thalweg_core::quantity;
