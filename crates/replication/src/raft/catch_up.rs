//! Bringing a node up to date whose missing entries the leader no longer has records of: it was down for long, or lost its disk.
//!
//! The log itself is copied, in pieces, from where the follower's ends. Nothing is prepared for it on either side, and a copy that
//! was interrupted goes on where it stopped. Consensus pauses on the follower meanwhile; it is amnesiac (see
//! [`NodeStore::set_amnesiac`]) from before the first change until it has caught up with the leader.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ferromq_store::ReplicaError;
use openraft::Snapshot;
use tokio::time::timeout;

use super::error::RaftError;
use super::index::Base;
use super::peer::{ask, unexpected};
use super::storage::{NodeStore, blocking, read_whole};
use super::transport::BoxedConnection;
use super::types::{GroupConfig, Vote};
use super::wire::{self, Message, Offer};
use crate::log::ReplicaLog;

/// Bytes that are asked for at once.
const CHUNK_LEN: u64 = 1 << 20;
/// So much of what a follower has already is compared with the leader's log. Records hold their offsets and times, so two logs that
/// are equal there are equal up to there.
const CHECK_LEN: u64 = 1 << 20;
/// The follower may be busy with its disk in between.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the leader may take for one piece.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The leader's part: offers its log up to the snapshot, and answers what the follower asks for. Returns the follower's vote once
/// it has everything.
pub(crate) async fn serve(
    connection: &mut BoxedConnection,
    log: &Arc<dyn ReplicaLog>,
    vote: Vote,
    snapshot: &Snapshot<GroupConfig>,
) -> io::Result<Vote> {
    let last = snapshot.meta.last_log_id.ok_or_else(|| io::Error::other("an empty snapshot"))?;
    let end = snapshot.snapshot.end;
    let offer = Offer {
        vote,
        last,
        members: snapshot.meta.last_membership.clone(),
        begin: log.bounds().begin,
        end,
        file_size: log.file_size(),
    };
    wire::write(connection, &Message::Offer(offer)).await?;
    loop {
        let request = timeout(REQUEST_TIMEOUT, wire::read(connection)).await??;
        let answer = match request {
            Some(Message::Check { offset, len }) if u64::from(len) <= CHECK_LEN => {
                let bytes =
                    blocking(|| read_whole(&**log, offset, offset.saturating_add(len.into()).min(end)));
                bytes.map(|bytes| Message::Checked { crc: crc32fast::hash(&bytes) })
            }
            Some(Message::Fetch { offset, len }) => {
                let len = u64::from(len).min(CHUNK_LEN).min(end.saturating_sub(offset));
                blocking(|| log.read(offset, len as usize)).map(|bytes| Message::Chunk { offset, bytes })
            }
            Some(Message::Caught(vote)) => return Ok(vote),
            Some(Message::Refused(reason)) => return Err(io::Error::other(reason)),
            Some(other) => return Err(unexpected(&other)),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        // Retention may have deleted what the follower asks for.
        let answer = answer.unwrap_or_else(|error| Message::Refused(error.to_string()));
        wire::write(connection, &answer).await?;
    }
}

/// The follower's part: makes its log equal to the leader's up to what is offered. Consensus must not run meanwhile.
pub(crate) async fn receive(
    connection: &mut BoxedConnection,
    offer: &Offer,
    store: &NodeStore,
) -> Result<(), CatchUpError> {
    let log = &**store.log();
    if log.file_size() != offer.file_size {
        return Err(CatchUpError::FileSize { ours: log.file_size(), leaders: offer.file_size });
    }
    if offer.begin > offer.end || !offer.begin.is_multiple_of(offer.file_size) {
        return Err(CatchUpError::Leader(io::Error::from(io::ErrorKind::InvalidData)));
    }
    blocking(|| {
        store.set_amnesiac(true)?;
        forget_uncommitted(store)
    })?;
    let bounds = log.bounds();
    let empty = bounds.begin == bounds.end;
    let mut at = if empty { offer.begin } else { bounds.end };
    if at < offer.begin {
        return Err(CatchUpError::TooOld { end: bounds.end, begin: offer.begin });
    }
    if at > offer.end {
        blocking(|| log.truncate(offer.end))?;
        at = offer.end;
    }
    if !empty {
        compare(connection, log, at.saturating_sub(CHECK_LEN).max(bounds.begin).max(offer.begin), at).await?;
    }
    let mut next_report = at;
    while at < offer.end {
        if at >= next_report {
            tracing::info!(at, to = offer.end, "copying the leader's log");
            next_report = at.saturating_add(1 << 30);
        }
        let len = CHUNK_LEN.min(offer.end - at) as u32;
        match request(connection, &Message::Fetch { offset: at, len }).await? {
            Message::Chunk { offset, bytes }
                if offset == at && !bytes.is_empty() && bytes.len() <= len as usize =>
            {
                blocking(|| log.append(at, &bytes))?;
                at += bytes.len() as u64;
            }
            other => return Err(CatchUpError::Leader(unexpected(&other))),
        }
    }
    blocking(|| {
        log.flush_to(offer.end)?;
        store.rebegin(Some(Base { id: offer.last, end: offer.end, members: offer.members.clone() }))?;
        if store.vote().is_none_or(|vote| vote < offer.vote) {
            store.save_vote(offer.vote)?;
        }
        Ok(())
    })
}

/// Cuts the log at the last entry that is known to be committed, and forgets all entries. What is left is a beginning of the group's
/// log.
fn forget_uncommitted(store: &NodeStore) -> Result<(), CatchUpError> {
    let committed = store.committed().and_then(|id| store.end_of(id));
    if let Some(end) = committed.or(store.base().map(|base| base.end)) {
        let log = store.log();
        if log.bounds().end > end {
            log.truncate(end)?;
        }
        store.rebegin(None)?;
    }
    Ok(())
}

async fn compare(
    connection: &mut BoxedConnection,
    log: &dyn ReplicaLog,
    from: u64,
    to: u64,
) -> Result<(), CatchUpError> {
    if from >= to {
        return Ok(());
    }
    let ours = blocking(|| read_whole(log, from, to))?;
    match request(connection, &Message::Check { offset: from, len: (to - from) as u32 }).await? {
        Message::Checked { crc } if crc == crc32fast::hash(&ours) => Ok(()),
        Message::Checked { .. } => Err(CatchUpError::Diverged { from, to }),
        other => Err(CatchUpError::Leader(unexpected(&other))),
    }
}

async fn request(connection: &mut BoxedConnection, message: &Message) -> Result<Message, CatchUpError> {
    match timeout(ANSWER_TIMEOUT, ask(connection, message)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(CatchUpError::Leader(io::ErrorKind::TimedOut.into())),
    }
}

/// Why a follower could not copy the leader's log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CatchUpError {
    #[error(
        "the leader's log files have {leaders} bytes, ours {ours}: set mappedFileSizeCommitLog as it has it"
    )]
    FileSize { ours: u64, leaders: u64 },
    #[error(
        "our log ends at {end}, the leader's begins at {begin}: what is in between was deleted. Remove this node's store directory and start it again"
    )]
    TooOld { end: u64, begin: u64 },
    #[error(
        "our log differs from the leader's between {from} and {to}: it belongs to another history. Remove this node's store directory and start it again"
    )]
    Diverged { from: u64, to: u64 },
    #[error("the leader: {0}")]
    Leader(#[from] io::Error),
    #[error("{0}")]
    Ours(#[from] RaftError),
}

impl From<ReplicaError> for CatchUpError {
    fn from(error: ReplicaError) -> CatchUpError {
        CatchUpError::Ours(error.into())
    }
}
