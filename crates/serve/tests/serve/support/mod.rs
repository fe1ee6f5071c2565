//! Shared by the tests of the server and of the client.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod fetch;
pub mod liar;
pub mod serve;
