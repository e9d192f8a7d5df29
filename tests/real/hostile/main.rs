//! Callers who mean harm, or do not know what they do: nothing is destroyed, nothing is told,
//! memory stays bounded, and everyone else is answered.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod authority;
mod crowds;
mod frames;
mod ids;
mod links;
mod mutated;
mod mutation;
mod oversized;
mod paths;
mod raw;
mod requests;
mod secrets;
mod slow_readers;
mod storms;
mod unsent;
