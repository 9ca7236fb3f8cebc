//! Makes the calls of a replay: prepares files, runs threads, and removes what was made. All paths are resolved below the
//! directories of the replay ([`confined`]); which calls are made, on what and when is decided in [`crate::replay`].

mod calls;
pub mod confined;
mod data;
pub mod manifest;
pub mod owners;
pub mod prepare;
pub mod run;
mod wait;

pub use self::data::Data;
pub use self::wait::INSIDE;
