//! The numbers of `bpf/abi.h`, which both sides read.

#![allow(clippy::pedantic, clippy::all, missing_docs)]

include!(concat!(env!("OUT_DIR"), "/abi.rs"));
