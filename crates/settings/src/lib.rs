//! Settings of servers under the keys of RocketMQ's configuration files: one table says key, type, default and meaning.
//!
//! - [`settings!`] declares such a table as a struct; [`Settings`] is what can be done with one.
//! - [`LiveSettings`]: the settings of a running server, which clients may change, but for those that lead to files or
//!   programs.
//! - [`replace`]: writes a small file so that a crash leaves the old or the new one.
//!
//! This crate must not know what any setting is for.

mod file;
mod live;
mod table;
mod value;

pub use file::replace;
pub use live::{ChangeError, LiveSettings, Rules};
pub use table::Settings;
pub use value::{SetError, Setting, at_least_one, parse};
