//! Endpoints, guarantees, the list of mechanisms, the planner and the driver.
#![forbid(unsafe_code)]
