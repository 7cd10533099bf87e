//! What nodes of a group say to each other: frames over TCP.
//!
//! ```text
//! frame: length of what follows(4)  kind(1)  content
//! ```
//!
//! The first frame of a connection is [`Message::Hello`]; it is answered by [`Message::Welcome`], or by [`Message::Refused`] and the
//! end of the connection. After that, each request gets one answer, in order. Nothing of a frame is believed before its length and
//! kind were checked, and memory is taken as bytes arrive, not as they are announced.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use openraft::EntryPayload;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::codec::{self, Decoder};
use super::types::{Entry, GroupConfig, LogId, LogRange, Members, NodeId, Vote};

/// Begins every connection: says what protocol this is, and its version.
const MAGIC: &[u8; 8] = b"FMQRAFT1";
/// Longest frame that holds no bytes of the log.
const CONTROL_LEN_MAX: usize = 128 << 10;
/// Longest frame that does. An entry is about 1 MiB long, and never longer than the longest record if that is more.
pub(crate) const DATA_LEN_MAX: usize = 64 << 20;
/// Entries in one message; openraft is told to send at most as many.
pub(crate) const ENTRIES_MAX: u64 = 512;
/// Longest name of a group.
pub(crate) const GROUP_LEN_MAX: usize = 255;
/// How much memory a frame gets before any of its bytes has arrived.
const READ_AHEAD: usize = 64 << 10;

/// What is sent in a frame.
#[derive(Debug)]
pub(crate) enum Message {
    /// I am `from` and want to talk to node `to` of `group`.
    Hello {
        group: String,
        from: NodeId,
        to: NodeId,
    },
    /// You are right here. Whether anything was ever decided as far as I know, and where my log ends.
    Welcome {
        history: bool,
        end: u64,
    },
    /// I don't talk to you, or can't do what you ask for at present.
    Refused(String),
    Vote(VoteRequest<NodeId>),
    Voted(VoteResponse<NodeId>),
    Append(AppendEntriesRequest<GroupConfig>),
    Appended(AppendEntriesResponse<NodeId>),
    /// Stand for election now: I, who lead by this vote, want you to lead.
    Stand(Vote),
    /// Leave the next election to another node: I, who lead by this vote, hand over to it.
    StandBack(Vote),
    Agreed,
    /// Your entries are too old for mine: copy my log.
    Offer(Offer),
    /// What is the CRC-32 of your log from here on?
    Check {
        offset: u64,
        len: u32,
    },
    Checked {
        crc: u32,
    },
    /// Give me your log from here on.
    Fetch {
        offset: u64,
        len: u32,
    },
    Chunk {
        offset: u64,
        bytes: Bytes,
    },
    /// I have all of it, and my vote is this.
    Caught(Vote),
}

/// What a leader offers to a node that needs entries which the leader has forgotten.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) vote: Vote,
    /// The last entry within.
    pub(crate) last: LogId,
    pub(crate) members: Members,
    /// Where the leader's log begins.
    pub(crate) begin: u64,
    /// Where that entry ends.
    pub(crate) end: u64,
    pub(crate) file_size: u64,
}

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REFUSED: u8 = 3;
const VOTE: u8 = 4;
const VOTED: u8 = 5;
const APPEND: u8 = 6;
const APPENDED: u8 = 7;
const STAND: u8 = 8;
const AGREED: u8 = 9;
const OFFER: u8 = 10;
const CHECK: u8 = 11;
const CHECKED: u8 = 12;
const FETCH: u8 = 13;
const CHUNK: u8 = 14;
const CAUGHT: u8 = 15;
const STAND_BACK: u8 = 16;

const BLANK: u8 = 0;
const RANGE: u8 = 1;
const MEMBERS: u8 = 2;

/// Writes one message. The log's bytes go to the connection from where they are.
pub(crate) async fn write(to: &mut (impl AsyncWrite + Unpin), message: &Message) -> io::Result<()> {
    let mut head = vec![0; 4];
    let data = encode(&mut head, message);
    let data_len: usize = data.iter().map(Bytes::len).sum();
    let len = head.len() - 4 + data_len;
    if len > DATA_LEN_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a frame of {len} bytes is too long"),
        ));
    }
    head[..4].copy_from_slice(&(len as u32).to_be_bytes());
    to.write_all(&head).await?;
    for bytes in data {
        to.write_all(&bytes).await?;
    }
    to.flush().await
}

/// Reads one message; `None` if the connection ended between two.
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Message>> {
    let mut len = [0; 4];
    if from.read(&mut len[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut len[1..]).await?;
    let len = u32::from_be_bytes(len) as usize;
    let kind = from.read_u8().await?;
    let len_max = if matches!(kind, APPEND | CHUNK) { DATA_LEN_MAX } else { CONTROL_LEN_MAX };
    if len == 0 || len > len_max {
        return Err(malformed(&format!("a frame of kind {kind} with {len} bytes")));
    }
    let mut content = BytesMut::new();
    let mut left = len - 1;
    while left > 0 {
        content.reserve(left.min(content.len().max(READ_AHEAD)));
        let read = (&mut *from).take(left as u64).read_buf(&mut content).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= read;
    }
    decode(kind, content.freeze()).map(Some).ok_or_else(|| malformed(&format!("a frame of kind {kind}")))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} makes no sense"))
}

/// Appends kind and content; bytes of the log that follow are returned.
fn encode(to: &mut Vec<u8>, message: &Message) -> Vec<Bytes> {
    match message {
        Message::Hello { group, from, to: target } => {
            to.put_u8(HELLO);
            to.put_slice(MAGIC);
            to.put_u64(*from);
            to.put_u64(*target);
            put_text(to, group, GROUP_LEN_MAX);
        }
        Message::Welcome { history, end } => {
            to.put_u8(WELCOME);
            to.put_u8((*history).into());
            to.put_u64(*end);
        }
        Message::Refused(reason) => {
            to.put_u8(REFUSED);
            put_text(to, reason, 1000);
        }
        Message::Vote(request) => {
            to.put_u8(VOTE);
            codec::put_vote(to, request.vote);
            codec::put_optional_log_id(to, request.last_log_id);
        }
        Message::Voted(response) => {
            to.put_u8(VOTED);
            codec::put_vote(to, response.vote);
            to.put_u8(response.vote_granted.into());
            codec::put_optional_log_id(to, response.last_log_id);
        }
        Message::Append(request) => {
            to.put_u8(APPEND);
            return encode_append(to, request);
        }
        Message::Appended(response) => {
            to.put_u8(APPENDED);
            match response {
                AppendEntriesResponse::Success => to.put_u8(0),
                AppendEntriesResponse::PartialSuccess(upto) => {
                    to.put_u8(1);
                    codec::put_optional_log_id(to, *upto);
                }
                AppendEntriesResponse::Conflict => to.put_u8(2),
                AppendEntriesResponse::HigherVote(vote) => {
                    to.put_u8(3);
                    codec::put_vote(to, *vote);
                }
            }
        }
        Message::Stand(vote) => {
            to.put_u8(STAND);
            codec::put_vote(to, *vote);
        }
        Message::StandBack(vote) => {
            to.put_u8(STAND_BACK);
            codec::put_vote(to, *vote);
        }
        Message::Agreed => to.put_u8(AGREED),
        Message::Offer(offer) => {
            to.put_u8(OFFER);
            codec::put_vote(to, offer.vote);
            codec::put_log_id(to, offer.last);
            codec::put_members(to, &offer.members);
            to.put_u64(offer.begin);
            to.put_u64(offer.end);
            to.put_u64(offer.file_size);
        }
        Message::Check { offset, len } => {
            to.put_u8(CHECK);
            to.put_u64(*offset);
            to.put_u32(*len);
        }
        Message::Checked { crc } => {
            to.put_u8(CHECKED);
            to.put_u32(*crc);
        }
        Message::Fetch { offset, len } => {
            to.put_u8(FETCH);
            to.put_u64(*offset);
            to.put_u32(*len);
        }
        Message::Chunk { offset, bytes } => {
            to.put_u8(CHUNK);
            to.put_u64(*offset);
            to.put_u32(crc32fast::hash(bytes));
            return vec![bytes.clone()];
        }
        Message::Caught(vote) => {
            to.put_u8(CAUGHT);
            codec::put_vote(to, *vote);
        }
    }
    Vec::new()
}

fn encode_append(to: &mut Vec<u8>, request: &AppendEntriesRequest<GroupConfig>) -> Vec<Bytes> {
    codec::put_vote(to, request.vote);
    codec::put_optional_log_id(to, request.prev_log_id);
    codec::put_optional_log_id(to, request.leader_commit);
    to.put_u32(request.entries.len() as u32);
    let mut data = Vec::new();
    for entry in &request.entries {
        codec::put_log_id(to, entry.log_id);
        match &entry.payload {
            EntryPayload::Blank => to.put_u8(BLANK),
            EntryPayload::Normal(range) => {
                to.put_u8(RANGE);
                to.put_u64(range.offset);
                to.put_u32(range.len);
                to.put_u32(crc32fast::hash(&range.bytes));
                data.push(range.bytes.clone());
            }
            EntryPayload::Membership(members) => {
                to.put_u8(MEMBERS);
                codec::put_membership(to, members);
            }
        }
    }
    data
}

fn put_text(to: &mut Vec<u8>, text: &str, len_max: usize) {
    let text = &text.as_bytes()[..text.floor_char_boundary(len_max)];
    to.put_u16(text.len() as u16);
    to.put_slice(text);
}

fn decode(kind: u8, content: Bytes) -> Option<Message> {
    let mut from = Decoder(content);
    let message = match kind {
        HELLO => {
            if from.take(MAGIC.len())? != MAGIC[..] {
                return None;
            }
            let (sender, to) = (from.u64()?, from.u64()?);
            Message::Hello { group: text(&mut from)?, from: sender, to }
        }
        WELCOME => Message::Welcome { history: from.bool()?, end: from.u64()? },
        REFUSED => Message::Refused(text(&mut from)?),
        VOTE => Message::Vote(VoteRequest { vote: from.vote()?, last_log_id: from.optional_log_id()? }),
        VOTED => {
            let (vote, vote_granted) = (from.vote()?, from.bool()?);
            Message::Voted(VoteResponse { vote, vote_granted, last_log_id: from.optional_log_id()? })
        }
        APPEND => Message::Append(decode_append(&mut from)?),
        APPENDED => Message::Appended(match from.u8()? {
            0 => AppendEntriesResponse::Success,
            1 => AppendEntriesResponse::PartialSuccess(from.optional_log_id()?),
            2 => AppendEntriesResponse::Conflict,
            3 => AppendEntriesResponse::HigherVote(from.vote()?),
            _ => return None,
        }),
        STAND => Message::Stand(from.vote()?),
        STAND_BACK => Message::StandBack(from.vote()?),
        AGREED => Message::Agreed,
        OFFER => {
            let (vote, last, members) = (from.vote()?, from.log_id()?, from.members()?);
            let (begin, end, file_size) = (from.u64()?, from.u64()?, from.u64()?);
            Message::Offer(Offer { vote, last, members, begin, end, file_size })
        }
        CHECK => Message::Check { offset: from.u64()?, len: from.u32()? },
        CHECKED => Message::Checked { crc: from.u32()? },
        FETCH => Message::Fetch { offset: from.u64()?, len: from.u32()? },
        CHUNK => {
            let (offset, crc) = (from.u64()?, from.u32()?);
            let bytes = from.take(from.0.len())?;
            if crc32fast::hash(&bytes) != crc {
                return None;
            }
            Message::Chunk { offset, bytes }
        }
        CAUGHT => Message::Caught(from.vote()?),
        _ => return None,
    };
    from.end()?;
    Some(message)
}

fn decode_append(from: &mut Decoder) -> Option<AppendEntriesRequest<GroupConfig>> {
    let (vote, prev_log_id, leader_commit) = (from.vote()?, from.optional_log_id()?, from.optional_log_id()?);
    let count = from.u32()?;
    if u64::from(count) > ENTRIES_MAX {
        return None;
    }
    let mut entries = Vec::new();
    let mut crcs = Vec::new();
    for _ in 0..count {
        let log_id = from.log_id()?;
        let payload = match from.u8()? {
            BLANK => EntryPayload::Blank,
            RANGE => {
                let (offset, len) = (from.u64()?, from.u32()?);
                crcs.push(from.u32()?);
                EntryPayload::Normal(LogRange { offset, len, term: 0, bytes: Bytes::new() })
            }
            MEMBERS => EntryPayload::Membership(from.membership()?),
            _ => return None,
        };
        entries.push(Entry { log_id, payload });
    }
    let mut crcs = crcs.into_iter();
    for entry in &mut entries {
        if let EntryPayload::Normal(range) = &mut entry.payload {
            range.bytes = from.take(range.len as usize)?;
            if crc32fast::hash(&range.bytes) != crcs.next()? {
                return None;
            }
        }
    }
    follow_each_other(prev_log_id, &entries)?;
    Some(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
}

/// Entries have consecutive indexes and rising ids, and their ranges lie end to end.
fn follow_each_other(prev: Option<LogId>, entries: &[Entry]) -> Option<()> {
    let mut prev = prev;
    let mut end: Option<u64> = None;
    for entry in entries {
        let id = entry.log_id;
        if prev.is_some_and(|prev| prev >= id || prev.index.checked_add(1) != Some(id.index)) {
            return None;
        }
        prev = Some(id);
        if let EntryPayload::Normal(range) = &entry.payload {
            if end.is_some_and(|end| end != range.offset) {
                return None;
            }
            end = Some(range.offset.checked_add(u64::from(range.len))?);
        }
    }
    Some(())
}

fn text(from: &mut Decoder) -> Option<String> {
    let len = from.u16()?.into();
    String::from_utf8(from.take(len)?.to_vec()).ok()
}

/// Reads frames as they come from a stranger. What is understood is the same when it was written and read again.
#[cfg(fuzzing)]
pub async fn read_frames(mut bytes: &[u8]) {
    while let Ok(Some(message)) = read(&mut bytes).await {
        let (mut written, mut again) = (Vec::new(), Vec::new());
        // Texts are cut when they are written.
        write(&mut written, &message).await.expect("what was read can be written");
        let message = read(&mut &*written).await.expect("our own frame").expect("all of it");
        write(&mut again, &message).await.expect("it can be written again");
        assert_eq!(written, again);
    }
}

#[cfg(test)]
mod tests {
    use openraft::testing::blank_ent;
    use proptest::prelude::*;

    use super::super::types::log_id;
    use super::*;

    fn range(index: u64, offset: u64, bytes: &'static [u8]) -> Entry {
        let range = LogRange { offset, len: bytes.len() as u32, term: 0, bytes: Bytes::from_static(bytes) };
        Entry { log_id: log_id(2, 1, index), payload: EntryPayload::Normal(range) }
    }

    fn append(prev: u64, entries: Vec<Entry>) -> Message {
        Message::Append(AppendEntriesRequest {
            vote: Vote::new_committed(2, 1),
            prev_log_id: Some(log_id(2, 1, prev)),
            entries,
            leader_commit: None,
        })
    }

    async fn frame(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, message).await.unwrap();
        bytes
    }

    #[tokio::test]
    async fn a_message_is_read_as_it_was_written() {
        let messages = [
            Message::Hello { group: "broker-a".into(), from: 1, to: 2 },
            Message::Welcome { history: true, end: 7 },
            Message::Refused("no".into()),
            Message::Vote(VoteRequest { vote: Vote::new(3, 1), last_log_id: Some(log_id(2, 1, 9)) }),
            Message::Voted(VoteResponse { vote: Vote::new(3, 1), vote_granted: true, last_log_id: None }),
            append(4, vec![range(5, 100, b"abc"), blank_ent(2, 1, 6), range(7, 103, b"defg")]),
            Message::Appended(AppendEntriesResponse::HigherVote(Vote::new(3, 1))),
            Message::Check { offset: 1, len: 2 },
            Message::Chunk { offset: 1, bytes: Bytes::from_static(b"xyz") },
            Message::Agreed,
        ];
        for message in messages {
            let bytes = frame(&message).await;
            let again = read(&mut &bytes[..]).await.unwrap().unwrap();
            assert_eq!(format!("{again:?}"), format!("{message:?}"));
            assert_eq!(frame(&again).await, bytes);
        }
    }

    #[tokio::test]
    async fn entries_that_do_not_follow_each_other_are_refused() {
        for entries in [
            vec![range(6, 0, b"abc")],
            vec![range(5, 0, b"abc"), range(5, 3, b"def")],
            vec![range(5, 0, b"abc"), range(6, 4, b"def")],
            vec![range(5, u64::MAX - 1, b"abc")],
        ] {
            let bytes = frame(&append(4, entries)).await;
            assert_eq!(read(&mut &bytes[..]).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    #[tokio::test]
    async fn a_changed_byte_of_the_log_is_noticed() {
        let mut bytes = frame(&append(4, vec![range(5, 0, b"abcdefgh")])).await;
        *bytes.last_mut().unwrap() ^= 1;
        assert_eq!(read(&mut &bytes[..]).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn a_length_is_not_believed() {
        for (len, kind) in [(u32::MAX, APPEND), (DATA_LEN_MAX as u32 + 1, CHUNK), (1 << 20, HELLO), (0, VOTE)]
        {
            let mut bytes = len.to_be_bytes().to_vec();
            bytes.push(kind);
            assert_eq!(read(&mut &bytes[..]).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        // One that may be: its bytes don't come.
        let mut bytes = (DATA_LEN_MAX as u32).to_be_bytes().to_vec();
        bytes.push(APPEND);
        assert_eq!(read(&mut &bytes[..]).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    proptest! {
        #[test]
        fn no_content_makes_it_panic(kind in 0..20u8, content in proptest::collection::vec(any::<u8>(), 0..200)) {
            decode(kind, Bytes::from(content));
        }
    }
}
