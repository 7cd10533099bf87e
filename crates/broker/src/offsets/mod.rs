//! Consumers' progress (`docs/spec/03-broker.md` 4.6).
//!
//! [`ConsumerOffsets`] is the table with its file. `commit` decides what becomes of a progress that a client reports,
//! `requests` answers the questions about offsets, `reset` moves groups to where an administrator wants them.

mod commit;
mod requests;
mod reset;
mod table;

use crate::service::Handler;

pub(crate) use commit::Commit;
pub(crate) use requests::OWN_PROGRESS;
pub(crate) use table::{ConsumerOffsets, FILES};

/// The handlers of this module.
pub(crate) fn route(code: i32) -> Option<Handler> {
    requests::route(code).or_else(|| reset::route(code))
}
