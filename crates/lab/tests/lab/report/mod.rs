//! The report: from results to a page that a validator accepts and that refers to nothing outside.

mod fixture;
mod markup;
mod pages;
mod reading;
mod today;
