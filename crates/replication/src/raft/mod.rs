//! Raft mode: a broker set that elects its master itself and acknowledges what a majority has (`docs/spec/05-ha.md` §10).
//!
//! Consensus is openraft's. What is here is what it stands on:
//!
//! * **An entry is a range of the commit log.** Producers' records are appended to the leader's log at once; the proposer makes
//!   everything that came since its last proposal one entry. The bytes are in the log and nowhere else, so the log of a Raft group
//!   is the log of any other broker. Which entry is which range is in a small *side index* (`raft/index` in the store directory).
//! * **A committed entry confirms its range**, and does nothing else. So a snapshot is nothing but the name of a point in the log, and
//!   installing one is copying the log up to there.
//! * **An entry ends where a record ends**, so that whoever becomes leader has a log of whole records.
//!
//! Read first: [`RaftNode`], then `storage` (what happens to log, index and vote, in one order), then `catch_up`.
//!
//! | module | what |
//! |---|---|
//! | `node` | one node: consensus started and ended, the log's role kept in step, leadership handed over, members changed |
//! | `form` | the first start: does a group begin, or is there one already? |
//! | `election` | when a node stands for election |
//! | `storage`, `log_store`, `state_machine` | log, index and vote together; as openraft wants them |
//! | `index`, `slots`, `codec` | the files |
//! | `propose` | entries made of what the broker appended |
//! | `wire`, `peer`, `server`, `transport` | what nodes say to each other |
//! | `catch_up` | a node that was down for long, or lost its disk, copies the log |
//! | `settings` | names, addresses, times |
//!
//! # What an acknowledgement promises
//!
//! The message is on a majority of the nodes: with [`Durability::PageCache`] in their page cache, so that it survives the death of any
//! number of processes, and of less than half of the machines; with [`Durability::Device`] on their devices, so that it survives a
//! loss of power everywhere. Votes are on the device in either case. A node that lost its disk does not vote before it has caught up.
//!
//! Peers are told apart by what they say of themselves: the Raft port belongs into a network that only the group's machines reach.

mod catch_up;
mod codec;
mod election;
mod error;
mod form;
mod index;
mod log_store;
mod node;
mod peer;
mod propose;
mod server;
mod settings;
mod slots;
mod state_machine;
mod storage;
#[cfg(test)]
mod tests;
mod transport;
mod types;
mod wire;

pub use error::RaftError;
pub use node::{RaftNode, RoleState};
pub use settings::{Settings, parse_id, parse_peers};
pub use storage::Durability;
pub use transport::{BoxedConnection, Connection, Listener, Pending, Tcp, Transport};
pub use types::NodeId;
#[cfg(fuzzing)]
pub use wire::read_frames;
