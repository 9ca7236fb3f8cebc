//! What tests of the tool on this machine share.

#![allow(dead_code, reason = "each of them needs a part of it")]

#[path = "../vm/guest/process.rs"]
pub mod process;
#[path = "../schema/mod.rs"]
pub mod schema;
#[path = "../schema/validator.rs"]
pub mod validator;

/// The executable that is tested.
pub const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");
