//! The master's side of one slave's connection (`docs/spec/05-ha.md` §2.3).

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use ferromq_store::ReplicaError;
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::HaSettings;
use super::master::Shared;
use super::pace::Pace;
use super::wire::{FRAME_LEN_MAX, FrameHeader, HEADER_LEN, take_report};
use crate::log::ReplicaLog;

/// Bytes behind the log's end that are likely in memory. What lies before is read by a thread that may wait for the disk.
const LIKELY_IN_MEMORY: u64 = 8 << 20;
/// How much such a thread reads at once.
const READ_AT_ONCE: usize = 1 << 20;
/// No report came yet.
const NONE: i64 = -1;

/// Why the master closed a slave's connection.
#[derive(Debug, Error)]
pub enum Refused {
    /// The slave has more than the master.
    #[error(
        "the slave's log ends at {slave}, behind the master's end {end}: it has messages that this master has not, or it is not a slave \
         of this master. Start it with an empty storePathRootDir, or make it the master"
    )]
    Ahead {
        /// What the slave reported.
        slave: i64,
        /// Where the master's log ends.
        end: u64,
    },
    /// The slave was away for too long.
    #[error(
        "the slave asks for offset {slave}, and the master's log begins at {begin}: what the slave lacks was deleted. Start it with an \
         empty storePathRootDir"
    )]
    Expired {
        /// What the slave reported.
        slave: i64,
        /// Where the master's log begins.
        begin: u64,
    },
    /// No slave reports that.
    #[error("a report of {report} after one of {before}, when {sent} was sent: this is no slave")]
    Report {
        /// What was reported.
        report: i64,
        /// What had been reported.
        before: i64,
        /// Up to where the slave was sent the log.
        sent: u64,
    },
    /// Nothing came for too long.
    #[error("the slave said nothing for {0:?} (haHousekeepingInterval)")]
    Silent(Duration),
    /// The slave closed the connection.
    #[error("the slave went away")]
    Closed,
    /// A younger connection from the same address took its place.
    #[error(
        "another connection came from the same address (haSlavesPerHost says how many slaves there may be)"
    )]
    Replaced,
    /// The socket failed.
    #[error(transparent)]
    Socket(#[from] std::io::Error),
    /// The log can't be read.
    #[error(transparent)]
    Log(#[from] ReplicaError),
}

/// What is known of a slave.
#[derive(Debug)]
pub(super) struct Slave {
    pub(super) peer: SocketAddr,
    /// Up to where it has the log, as far as it said; [`NONE`] before.
    acked: AtomicI64,
    /// Up to where it was sent the log.
    sent: AtomicU64,
    pub(super) pace: Pace,
    /// Ends the connection.
    pub(super) replaced: watch::Sender<bool>,
}

impl Slave {
    pub(super) fn new(peer: SocketAddr) -> Self {
        Slave {
            peer,
            acked: AtomicI64::new(NONE),
            sent: AtomicU64::new(0),
            pace: Pace::new(Instant::now()),
            replaced: watch::Sender::new(false),
        }
    }

    /// Up to where it has the log.
    pub(super) fn acked(&self) -> Option<u64> {
        u64::try_from(self.acked.load(Ordering::Acquire)).ok()
    }

    /// Up to where it was sent the log.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// Takes a report. The first one says where to begin: returned.
    fn report(&self, log: &dyn ReplicaLog, report: i64) -> Result<Option<u64>, Refused> {
        let before = self.acked.load(Ordering::Acquire);
        let Ok(offset) = u64::try_from(report) else {
            // Java slaves may begin with -1.
            let is_none_yet = report == NONE && before == NONE;
            return if is_none_yet {
                Ok(None)
            } else {
                Err(Refused::Report { report, before, sent: self.sent() })
            };
        };
        if before != NONE {
            if report < before || offset > self.sent() {
                return Err(Refused::Report { report, before, sent: self.sent() });
            }
            self.acked.store(report, Ordering::Release);
            return Ok(None);
        }
        let bounds = log.bounds();
        if offset > bounds.end {
            return Err(Refused::Ahead { slave: report, end: bounds.end });
        }
        // An empty slave begins with the last file.
        let from =
            if offset == 0 { bounds.begin.max(bounds.end - bounds.end % log.file_size()) } else { offset };
        if from < bounds.begin {
            return Err(Refused::Expired { slave: report, begin: bounds.begin });
        }
        self.sent.store(from, Ordering::Release);
        self.acked.store(report, Ordering::Release);
        Ok(Some(from))
    }
}

/// Serves a slave until the connection ends, and says why it did.
pub(super) async fn feed(shared: &Arc<Shared>, slave: &Arc<Slave>, stream: TcpStream) -> Refused {
    let (reader, writer) = stream.into_split();
    let (begin, begins) = watch::channel(None);
    let mut replaced = slave.replaced.subscribe();
    let result = tokio::select! {
        result = read(shared, slave, reader, begin) => result,
        result = write(shared, slave, writer, begins) => result,
        _ = replaced.wait_for(|replaced| *replaced) => Err(Refused::Replaced),
    };
    match result {
        Ok(never) => match never {},
        Err(refused) => refused,
    }
}

enum Never {}

/// Takes the slave's reports.
async fn read(
    shared: &Shared,
    slave: &Slave,
    mut reader: OwnedReadHalf,
    begin: watch::Sender<Option<u64>>,
) -> Result<Never, Refused> {
    let mut received = BytesMut::with_capacity(4096);
    loop {
        let silence_max = shared.settings().housekeeping_interval;
        let read = tokio::time::timeout(silence_max, reader.read_buf(&mut received)).await;
        if read.map_err(|_| Refused::Silent(silence_max))?? == 0 {
            return Err(Refused::Closed);
        }
        while let Some(report) = take_report(&mut received) {
            if let Some(from) = slave.report(&*shared.log, report)? {
                begin.send_replace(Some(from));
            }
        }
        shared.acknowledged();
    }
}

/// Sends the log from where the slave's first report says, and heartbeats when there is nothing.
async fn write(
    shared: &Shared,
    slave: &Slave,
    mut writer: OwnedWriteHalf,
    mut begins: watch::Receiver<Option<u64>>,
) -> Result<Never, Refused> {
    let begin = begins.wait_for(Option::is_some).await.ok().and_then(|begin| *begin);
    let Some(mut next) = begin else { return std::future::pending().await };
    // Read, and not yet sent.
    let mut ready = Bytes::new();
    let mut written = Instant::now();
    loop {
        let settings = shared.settings();
        if ready.is_empty() {
            let is_there = AtEnd::new(&*shared.log, next + 1);
            let heartbeat_due = settings.heartbeat_interval.saturating_sub(written.elapsed());
            if tokio::time::timeout(heartbeat_due, is_there).await.is_err() {
                writer.write_all(&FrameHeader { offset: next as i64, len: 0 }.encode()).await?;
                written = Instant::now();
                continue;
            }
            ready = read_log(shared, next, settings.batch_size).await?;
        }
        let len = ready.len().min(allowed(slave, &settings).await);
        let body = ready.split_to(len);
        let header = FrameHeader { offset: next as i64, len: len as i32 };
        next += len as u64;
        // First, so that no report can come before.
        slave.sent.store(next, Ordering::Release);
        writer.write_all_buf(&mut Buf::chain(&header.encode()[..], body)).await?;
        written = Instant::now();
        slave.pace.add(written, (HEADER_LEN + len) as u64);
    }
}

/// The bytes at `next`, of which there is at least one.
async fn read_log(shared: &Shared, next: u64, batch_size: usize) -> Result<Bytes, Refused> {
    if shared.log.bounds().end.saturating_sub(next) <= LIKELY_IN_MEMORY {
        return Ok(shared.log.read(next, batch_size)?);
    }
    let log = Arc::clone(&shared.log);
    let read = tokio::task::spawn_blocking(move || log.read(next, READ_AT_ONCE.max(batch_size))).await;
    Ok(read.map_err(std::io::Error::other)??)
}

/// Most bytes of the log that the next frame may have; waits until it may have any.
async fn allowed(slave: &Slave, settings: &HaSettings) -> usize {
    let most = settings.batch_size.clamp(1, FRAME_LEN_MAX - HEADER_LEN);
    let Some(limit) = settings.bytes_per_second_max else { return most };
    loop {
        match slave.pace.allowance(Instant::now(), limit.max(1)) {
            Ok(rest) => return most.min(usize::try_from(rest).unwrap_or(most)),
            Err(pause) => tokio::time::sleep(pause).await,
        }
    }
}

/// Waits until the log reaches `target`.
pub(crate) struct AtEnd<'a> {
    log: &'a dyn ReplicaLog,
    target: u64,
    registered: Option<Waker>,
}

impl<'a> AtEnd<'a> {
    pub(crate) fn new(log: &'a dyn ReplicaLog, target: u64) -> Self {
        AtEnd { log, target, registered: None }
    }
}

impl Future for AtEnd<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.log.bounds().end >= self.target {
            return Poll::Ready(());
        }
        if !self.registered.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            self.registered = Some(context.waker().clone());
            self.log.wake_at_end(self.target, context.waker().clone());
            if self.log.bounds().end >= self.target {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}
