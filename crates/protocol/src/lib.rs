//! The wire and record formats of RocketMQ, and nothing that does I/O.

pub mod body;
pub mod json;
pub mod message;
