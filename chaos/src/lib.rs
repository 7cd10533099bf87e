//! Clusters of real processes that are broken in every way that we can think of while producers and consumers use them, and
//! a checker that proves that what was acknowledged is still there.
//!
//! Read [`run()`] first: it is one run from the start of the cluster to the verdict. What a cluster promises is a
//! [`Promise`], one for each [`Mode`]. What is done to it is a [`Plan`], drawn from a seed. What the load saw is a
//! [`History`](history::History). The [`checker`] compares that with the stores of the stopped brokers; it is pure and knows
//! nothing of processes.
//!
//! | module | what |
//! |---|---|
//! | `mode` | the modes of replication: settings of brokers, and promises |
//! | `plan` | which faults, when, for how long |
//! | `run` | one run |
//! | `cluster`, `node`, `process`, `disk`, `clock` | what can be broken, and how |
//! | [`links`] | the network between nodes: namespaces, or proxies where there are none |
//! | `load` | producers and consumers, with the client of this project |
//! | [`history`] | what they saw |
//! | [`checker`] | the verdict |
//! | `log` | what is in the store of a broker that does not run |
//! | `requests` | the few requests that nobody but an administrator makes |
//!
//! This crate must not know how a broker works inside. It is no part of what is delivered.

pub mod checker;
mod clock;
mod cluster;
mod disk;
pub mod history;
pub mod links;
mod load;
mod log;
mod mode;
mod nemesis;
mod node;
mod plan;
mod process;
mod requests;
mod run;

pub use links::LinkKind;
pub use mode::{Mode, Promise};
pub use plan::{Fault, Plan, Round, Strike, Victim};
pub use run::{Failure, Options, Report, run};
