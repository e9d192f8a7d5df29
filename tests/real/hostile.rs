//! Hostile or broken clients: nothing is destroyed, nothing leaks,
//! memory stays bounded, and all other clients are answered.

mod authority;
mod connection_limit;
mod frames;
mod ids;
mod links;
mod many_connections;
mod missing_messages;
mod mutated;
mod mutation;
mod oversized;
mod parallel_lists;
mod paths;
mod raw_http2;
mod requests;
mod secrets;
mod slow_readers;
mod unfinished;
