//! Numbers, log ids and memberships as bytes, for the side index and for the wire. Big-endian, like everything else in the store.

use bytes::{BufMut, Bytes};
use openraft::StoredMembership;

use super::types::{LogId, Members, Membership, Vote, log_id};

/// Longest membership that is written or read, as JSON.
pub(crate) const MEMBERSHIP_LEN_MAX: usize = 60_000;

pub(crate) fn put_log_id(to: &mut Vec<u8>, id: LogId) {
    to.put_u64(id.leader_id.term);
    to.put_u64(id.leader_id.node_id);
    to.put_u64(id.index);
}

pub(crate) fn put_optional_log_id(to: &mut Vec<u8>, id: Option<LogId>) {
    to.put_u8(id.is_some().into());
    if let Some(id) = id {
        put_log_id(to, id);
    }
}

pub(crate) fn put_vote(to: &mut Vec<u8>, vote: Vote) {
    to.put_u64(vote.leader_id.term);
    to.put_u64(vote.leader_id.node_id);
    to.put_u8(vote.committed.into());
}

pub(crate) fn put_membership(to: &mut Vec<u8>, membership: &Membership) {
    // Writing such a value to memory can't fail: its keys are numbers and it holds nothing else that JSON has no form for.
    let json = serde_json::to_vec(membership).unwrap_or_default();
    to.put_u32(json.len() as u32);
    to.put_slice(&json);
}

pub(crate) fn put_members(to: &mut Vec<u8>, members: &Members) {
    put_optional_log_id(to, *members.log_id());
    put_membership(to, members.membership());
}

/// Reads what the functions above wrote. Every method answers `None` where the bytes end or mean nothing.
#[derive(Debug)]
pub(crate) struct Decoder(pub(crate) Bytes);

impl Decoder {
    pub(crate) fn take(&mut self, len: usize) -> Option<Bytes> {
        (self.0.len() >= len).then(|| self.0.split_to(len))
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(*self.take(2)?.first_chunk()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(*self.take(4)?.first_chunk()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(*self.take(8)?.first_chunk()?))
    }

    pub(crate) fn log_id(&mut self) -> Option<LogId> {
        Some(log_id(self.u64()?, self.u64()?, self.u64()?))
    }

    pub(crate) fn optional_log_id(&mut self) -> Option<Option<LogId>> {
        if self.bool()? { self.log_id().map(Some) } else { Some(None) }
    }

    pub(crate) fn vote(&mut self) -> Option<Vote> {
        let (term, node) = (self.u64()?, self.u64()?);
        Some(if self.bool()? { Vote::new_committed(term, node) } else { Vote::new(term, node) })
    }

    pub(crate) fn membership(&mut self) -> Option<Membership> {
        let len = self.u32()? as usize;
        if len > MEMBERSHIP_LEN_MAX {
            return None;
        }
        serde_json::from_slice(&self.take(len)?).ok()
    }

    pub(crate) fn members(&mut self) -> Option<Members> {
        let id = self.optional_log_id()?;
        Some(StoredMembership::new(id, self.membership()?))
    }

    /// `Some` when nothing is left.
    pub(crate) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
