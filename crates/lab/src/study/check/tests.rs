//! Study files that are right, and each way of being wrong.
