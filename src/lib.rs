//! IOStackBreakdown: where the time of a Linux I/O operation goes.
//!
//! Data goes one way: command line ([`args`]) → ops wanted ([`catalog`]) → what the kernel offers ([`kernel`]) → plan and
//! attach ([`probe`]) → counters of a moment ([`source`]) → report ([`analyse`], pure) → text, JSON ([`view`]). [`model`] has
//! what goes along, as owned data. [`run`] leads it through. Only [`kernel`], [`source`] and [`probe::attach`] touch the machine.

// It panics where standard error cannot be written; `say!` does not.
#![deny(clippy::print_stderr)]

pub mod analyse;
pub mod args;
pub mod budget;
pub mod catalog;
pub mod cause;
pub mod command;
pub mod compare;
pub mod environment;
#[cfg(feature = "kernel-side")]
pub mod event;
pub mod exercise;
pub mod filter;
#[cfg(test)]
mod fuzz;
pub mod kernel;
pub mod leave;
pub mod limits;
pub mod model;
pub mod number;
pub mod printable;
pub mod probe;
#[cfg(feature = "kernel-side")]
pub mod process;
#[cfg(feature = "kernel-side")]
pub mod run;
pub mod say;
pub mod signals;
pub mod source;
pub mod sys;
pub mod turn;
pub mod user;
pub mod view;
