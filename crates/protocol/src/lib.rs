//! The formats that RocketMQ peers exchange and store, and nothing that does I/O.
//!
//! What lives here: frames ([`frame`]), their headers in both encodings ([`header`]), owned commands for everything
//! that is not hot ([`command`]), the two hot request headers parsed without a map ([`send`], [`pull`]), JSON as
//! fastjson reads and writes it ([`json`]) with the bodies made of it ([`body`]), Java properties
//! ([`java_properties`]), stored messages ([`message`]), and
//! the names and numbers of the protocol ([`code`], [`names`], [`version`]).
//!
//! Read first: [`header::Request`], which is what a server sees of a frame; [`command::RemotingCommand`], which is
//! what the rest of the code passes around; [`message::RecordView`], a stored message.
//!
//! This crate must not know of sockets, files, clocks or threads.

pub mod body;
pub mod code;
pub mod command;
mod field_list;
pub mod frame;
pub mod header;
pub mod java_properties;
pub mod json;
pub mod message;
pub mod names;
pub mod pull;
pub mod send;
pub mod version;
