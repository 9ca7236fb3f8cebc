//! The live view: a screen that shows each second as it is measured, and seconds before it again.
//!
//! Its state changes by keys and seconds only ([`Model`]), and is drawn by a pure function ([`draw`]): the terminal and
//! the clock are in `run::live`.

mod draw;
#[cfg(test)]
pub(crate) mod example;
pub mod frame;
mod history;
pub mod key;
pub mod list;
mod model;

pub use self::draw::{Look, SMALLEST, draw};
pub use self::history::{Beside, Digest, History};
pub use self::model::{Action, Facts, Model, Pane, Shows};
