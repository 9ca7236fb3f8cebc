//! IOStackBreakdown: where the time of a Linux I/O operation goes.
//!
//! Data goes one way: command line ([`args`]) → operations to measure ([`catalog`]) → what the kernel offers
//! ([`kernel`]) → plan and attach ([`probe`]) → snapshots of counters ([`source`]) → report ([`analyse`], pure) → text,
//! JSON ([`view`]). [`model`] holds the data passed along, owned and without I/O. [`run`] drives all of it.
//! `tests/rooms.rs` lists the modules that never touch the machine.

// `eprintln!` panics if standard error cannot be written; `say!` does not.
#![deny(clippy::print_stderr)]

// Some test data is shared with the integration tests, which know the library by its name.
#[cfg(test)]
extern crate self as iostackbreakdown;

pub mod analyse;
pub mod args;
pub mod budget;
pub mod catalog;
pub mod cause;
pub mod command;
pub mod compare;
pub mod document;
pub mod environment;
#[cfg(feature = "kernel-side")]
pub mod event;
pub mod exercise;
pub mod export;
pub mod filter;
#[cfg(test)]
mod fuzz;
pub mod kernel;
pub mod leave;
pub mod limits;
pub mod model;
pub mod number;
pub mod playback;
pub mod printable;
pub mod probe;
#[cfg(feature = "kernel-side")]
pub mod process;
pub mod recording;
pub mod replay;
#[cfg(feature = "kernel-side")]
pub mod run;
pub mod say;
pub mod serve;
pub mod signals;
pub mod source;
pub mod sys;
pub mod turn;
pub mod user;
pub mod view;
