//! Rings and bulk transfers between threads and processes, their layout, and Java at the other end.
#![allow(clippy::unwrap_used)]

mod bulk;
mod hostile;
mod java;
mod lives;
mod many;
mod vectors;
