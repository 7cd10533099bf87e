//! RocketMQ's name server: which broker has which topics (`docs/spec/06-namesrv.md`).
//!
//! Brokers register with every name server, repeat it, and send heartbeats; clients ask one of them for the route of a
//! topic. Name servers do not know each other and remember nothing but a small key/value file, so any of them can be
//! restarted or added at any time.
//!
//! What lives here, from the outside in:
//!
//! - [`NamesrvConfig`]: the settings, with the keys of `namesrv.conf`. `START_ONLY` names those that
//!   clients can't change at run time.
//! - [`Namesrv`]: a running name server. It starts the remoting server with the `service`, and the `tasks` that remove
//!   brokers, look for silent ones, and tell brokers of a new smallest id in their set.
//! - `service`: what happens on a connection. Requests go to the `handlers`, which are thin: parse, check, call one
//!   operation, answer; `refusal` is the one place that says with which code and remark a request is refused. Writes to
//!   the disk are done aside and answered afterwards.
//! - `routes`: the tables and everything that is done with them, free of requests and I/O. They stand behind one
//!   read/write lock; a lookup (code 105) copies the few entries of its topic under the read lock and is encoded
//!   outside of it.
//! - `kv`: the key/value configuration, of which one namespace matters: the order topics.
//!
//! Read first: [`Namesrv`], then `routes/mod.rs`, then `routes/register.rs`, where the rules are.
//!
//! A broker's life is tied to the connection that it registered over: it is removed when the connection ends, when it
//! is silent for too long, or when it says so. All three go through one queue and are carried out in batches; a removal
//! because of a connection does not touch a broker that has meanwhile registered over another one.
//!
//! This crate must not know what brokers do with messages.

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
mod handlers;
mod kv;
mod namesrv;
mod refusal;
mod routes;
mod service;
mod state;
mod tasks;

pub use config::NamesrvConfig;
pub use namesrv::{Namesrv, StartError};
