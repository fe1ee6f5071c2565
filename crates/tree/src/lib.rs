//! Copies files and trees: walk, publish, attributes, sparse, resume, verify.
#![forbid(unsafe_code)]
