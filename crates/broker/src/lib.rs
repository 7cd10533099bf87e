//! The broker: stores what producers send and hands it to consumers.
//!
//! What lives here, by folder:
//!
//! | module | what |
//! |---|---|
//! | `Broker` (`broker.rs`) | owns everything below; start, stop |
//! | `service` | which request goes to which handler, and on which thread |
//! | `send` | the send path: checks, properties, retries and dead letters, batches |
//! | `pull` | the pull path and long polling |
//! | `client` | who is connected: heartbeats, consumers, producers, what we ask of them |
//! | `offsets` | consumers' progress |
//! | `topics`, `groups` | topic and subscription group tables with their files |
//! | `locks` | queue locks of orderly consumers |
//! | `schedule` | messages with a delay level |
//! | `admin` | everything that `mqadmin` asks |
//! | `stats` | counters that the statistics requests show |
//! | `config` | `broker.conf`: every key, its default and its meaning |
//! | `replication` | master and slaves: what a send waits for, copies of what is not in the log |
//! | `registration` | the broker's entries at the name servers |
//!
//! Read first: `broker.rs`, then `service.rs`, then `send/mod.rs`.
//!
//! This crate must not know of sockets (that is `ferromq-remoting`) or of file formats (that is `ferromq-store`).

mod admin;
mod answer;
mod broker;
mod client;
mod clock;
pub mod config;
mod config_file;
mod groups;
mod locks;
mod offsets;
mod pull;
mod query;
mod registration;
mod replication;
mod schedule;
mod send;
mod service;
mod stats;
mod topics;

pub use broker::{RunningBroker, StartError};
pub use config_file::{Damage, LoadError};
pub use topics::batch_topics;
