//! Inputs that were found by fuzzing, and mutated requests beside another server.

mod nginx;
mod replay;
