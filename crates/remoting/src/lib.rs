//! RocketMQ's remoting transport over TCP: requests and answers in both directions on one connection.
//!
//! A connection is a pipeline. What one read brought is split into frames and parsed in place, handed to the
//! [`Service`] in arrival order, and the answers leave in one write. Nothing is allocated per request. A peer that does
//! not read its answers is not read from either, and one that makes a server hold too much is cut off
//! ([`Limits`]).
//!
//! Read first: [`Service`], which a name server or broker implements; [`Connection`], the handle to a peer through
//! which answers that come later, and requests of our own, are sent; [`Server`] and [`Client`], which open them.
//!
//! Connections of a [`Client`] may be encrypted ([`Tls`]).
//!
//! This crate must not know what a request means.

mod client;
mod connection;
mod invoke;
mod proxy_protocol;
mod pump;
mod rate_limit;
mod server;
mod stream;
mod tls;

pub use client::{Client, ConnectError};
pub use connection::{Connection, PeerIdentity};
pub use invoke::InvokeError;
pub use pump::{Limits, NoRequests, Service};
pub use rate_limit::RateLimit;
pub use server::{BindError, RunningServer, Server, ServerOptions};
pub use tls::{Tls, TlsConnector, TlsError};
