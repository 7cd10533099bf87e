//! Turning what the broker appends into Raft entries: one for everything that came since the last.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use ferromq_store::ReplicaError;

use super::types::{GroupConfig, LogRange};
use crate::log::ReplicaLog;

/// An entry becomes about that long when more has been appended than that. A longer record makes a longer entry.
const ENTRY_LEN: u64 = 1 << 20;
/// Proposals under way. While they are, everything that is appended gathers for the next one.
const IN_FLIGHT_MAX: usize = 4;

/// Proposes what is appended from `begin` on, in order, until this node no longer leads.
pub(crate) async fn propose(
    raft: openraft::Raft<GroupConfig>,
    log: Arc<dyn ReplicaLog>,
    term: u64,
    begin: u64,
) {
    let mut begin = begin;
    let mut in_flight = VecDeque::with_capacity(IN_FLIGHT_MAX);
    loop {
        let end = AtEnd { log: &*log, target: begin + 1 }.await;
        let end = match entry_end(&*log, begin, end) {
            Ok(end) => end,
            // Truncated: somebody else leads.
            Err(error) => return tracing::debug!(%error, "nothing more to propose"),
        };
        let range = LogRange { offset: begin, len: (end - begin) as u32, term, bytes: Bytes::new() };
        match raft.client_write_ff(range).await {
            Ok(answer) => in_flight.push_back(answer),
            Err(_stopped) => return,
        }
        begin = end;
        if in_flight.len() == IN_FLIGHT_MAX
            && let Some(oldest) = in_flight.pop_front()
            && !matches!(oldest.await, Ok(Ok(_)))
        {
            return;
        }
    }
}

/// Where an entry that begins at `begin` ends: at the end of a record, in the same file, and not much further than [`ENTRY_LEN`].
pub(crate) fn entry_end(log: &dyn ReplicaLog, begin: u64, end: u64) -> Result<u64, ReplicaError> {
    let file_end = (begin / log.file_size() + 1) * log.file_size();
    let end = end.min(file_end);
    if end - begin <= ENTRY_LEN {
        return Ok(end);
    }
    // A record begins with its length.
    let bytes = log.read(begin, ENTRY_LEN as usize)?;
    let mut at = 0;
    while let Some(len) = bytes.get(at as usize..).and_then(|rest| rest.first_chunk::<4>()) {
        let next = at + u64::from(u32::from_be_bytes(*len));
        if next == at || begin + next > end || (next > ENTRY_LEN && at > 0) {
            break;
        }
        at = next;
    }
    Ok(if at == 0 { end } else { begin + at })
}

/// Waits until the log's end is at `target`; answers where it is.
struct AtEnd<'a> {
    log: &'a dyn ReplicaLog,
    target: u64,
}

impl Future for AtEnd<'_> {
    type Output = u64;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u64> {
        let end = self.log.bounds().end;
        if end >= self.target {
            return Poll::Ready(end);
        }
        self.log.wake_at_end(self.target, context.waker().clone());
        let end = self.log.bounds().end;
        if end >= self.target { Poll::Ready(end) } else { Poll::Pending }
    }
}
