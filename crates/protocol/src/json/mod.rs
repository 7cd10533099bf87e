//! JSON as fastjson 1.2.83 reads and writes it (`docs/spec/01-remoting.md` 5.2).
//!
//! RocketMQ's JSON is not quite JSON: `{0:"10.0.0.1:10911"}` and `{{"topic":"T"}:5}` are ordinary bodies. So this
//! module brings a reader and a writer of its own, both under serde, and every shape of [`crate::body`] is a plain
//! struct with derives.
//!
//! Writing: [`to_vec`] is the form of nearly all bodies, [`to_vec_standard`] the strict one that code 105 answers to
//! new clients, [`to_string_pretty`] that of the files under `config/`. Members are written in the order of the
//! struct's fields, so structs declare them in the alphabetical order of their Java names; a member that is `None` is
//! left out. Maps are written in their own order, so bodies hold `BTreeMap`s.
//!
//! Reading: [`from_slice`] parses the text into a [`Value`], whose map keys may be any value, and deserializes from
//! that with fastjson's leniencies: names of members in any spelling, numbers as text and text as numbers, enums by
//! position, explicit `null` as if absent, `$ref`. Structs say `#[serde(default)]` to have the defaults of their Java
//! class; enum members say [`enum_or_none`] or [`enum_or_default`] because an unknown name reads as `null`.
//!
//! Read first: [`Value`], then `read` and `write`.

mod error;
mod lenient;
mod parse;
mod read;
mod reference;
mod text;
mod value;
mod write;

#[cfg(test)]
mod tests;

pub use error::JsonError;
pub use lenient::{InLine, enum_or_default, enum_or_none, in_line};
pub use parse::{DEPTH_MAX, parse};
pub use read::from_slice;
pub use value::Value;
pub use write::{to_string, to_string_pretty, to_vec, to_vec_standard};
