//! The tables of all keys, by theme.
//!
//! An entry is the key's meaning, its field, type and default, who may change it ([`Change`](super::Change)), the key,
//! `[important]` if `-m` shows it, and its range if that is narrower than its type:
//!
//! ```text
//! /// Topics of one portion.
//! split_registration_size: u32 = 800; live "splitRegistrationSize" in 1..=2_147_483_647;
//! ```
//!
//! Each file is a macro that puts its entries behind those that it is given and hands them on to the next one, because
//! together they make up one struct.

#[macro_use]
mod identity;
#[macro_use]
mod messaging;
#[macro_use]
mod threads;
#[macro_use]
mod store;
#[macro_use]
mod delay;
#[macro_use]
mod replication;
#[macro_use]
mod operations;
