//! RocketMQ's controller: it decides which replica of a broker set is master (`docs/spec/05-ha.md` 7).
//!
//! Brokers with `enableControllerMode=true` get their ids here, send heartbeats, and ask who leads them. When a master is
//! gone, a replica that has all its acknowledged messages takes its place. Controllers are not needed for sending and
//! receiving messages, only for changes. One is enough to begin with; of three, one may fail, of five, two.
//!
//! What lives here, from the outside in:
//!
//! - [`ControllerConfig`]: the settings, with the keys of `controller.conf`; `group` is what they say of the controllers.
//! - [`Controller`]: a running controller. It starts the remoting server with the `service`, whose requests go to the
//!   `handlers`; `refusal` is the one place that says with which code and remark a request is refused.
//! - `live`: heartbeats. Each controller hears them all, so they are not replicated. `watch` notices that a master is gone,
//!   `election` has another one elected and tells the brokers.
//! - `state`: what the controllers agree on, a deterministic state machine free of I/O and clocks. What the leader knows of
//!   living replicas travels in the commands.
//! - `raft`: the agreement itself, by `openraft`, with its log and snapshots on the disk. `link` carries its messages.
//!
//! Read first: `state/mod.rs`, `state/election.rs`, then [`Controller`].
//!
//! This crate must not know of messages, topics or consumers.

/// Logs a warning that strangers can cause as often as they like, a few times in ten seconds.
macro_rules! warn_now_and_then {
    ($($event:tt)*) => {{
        static LIMIT: std::sync::LazyLock<ferromq_remoting::RateLimit> = std::sync::LazyLock::new(|| {
            ferromq_remoting::RateLimit::new(20, std::time::Duration::from_secs(10))
        });
        if let Some(suppressed) = LIMIT.allow() {
            tracing::warn!(suppressed, $($event)*);
        }
    }};
}

mod config;
mod controller;
mod election;
mod group;
mod handlers;
mod link;
mod live;
mod raft;
mod refusal;
mod service;
mod shared;
mod state;
mod watch;

pub use config::ControllerConfig;
pub use controller::{Controller, StartError};
pub use group::GroupError;
