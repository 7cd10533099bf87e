//! Copies of a commit log on other brokers: who may append, and up to where the log is confirmed (`docs/spec/05-ha.md`).
//!
//! The bytes of the log are the same in every mode of replication. A mode only decides who gives out offsets, how bytes travel, and
//! how far the log is *confirmed*, that is, acknowledged to producers and shown to consumers.
//!
//! Read first: [`ReplicaLog`], what replication needs of a commit log; [`classic`], master and slaves; [`raft`], groups that elect
//! their master; [`autoswitch`], brokers that a controller gives their roles.
//!
//! This crate must not know of request codes, topics or consumers.

pub mod autoswitch;
pub mod classic;
mod following;
pub mod log;
pub mod raft;
mod store;

pub use following::{SlaveState, SlaveStatus};
pub use log::{LogBounds, ReplicaLog};
