//! What the tests of the running program share.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod client;
pub(crate) mod messages;
pub(crate) mod server;
