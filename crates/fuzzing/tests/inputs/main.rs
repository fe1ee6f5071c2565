//! Replays inputs that fuzzing found. Compares how thalweg and nginx read mutated requests.

mod nginx;
mod replay;
