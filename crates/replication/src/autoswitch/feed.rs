//! The master's side of one slave's connection (`docs/spec/05-ha.md` 9.6).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use ferromq_store::ReplicaError;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::epochs::Epochs;
use super::master::{Mastership, Slave};
use super::role::Shared;
use super::wire::{FRAME_HEADER_LEN, FRAME_LEN_MAX, FrameHeader, MasterHandshake, OfSlave, Unreadable};
use crate::classic::{AtEnd, HaSettings, Pace};

/// Bytes behind the log's end that are likely in memory. What lies before is read by a thread that may wait for the disk.
const LIKELY_IN_MEMORY: u64 = 8 << 20;
/// How much such a thread reads at once.
const READ_AT_ONCE: usize = 1 << 20;
/// How often a slave hears of a master without any log.
const NOTHING_YET: Duration = Duration::from_millis(500);

/// Why the master closed a slave's connection.
#[derive(Debug, Error)]
pub enum Refused {
    /// It does not speak the protocol.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// It spoke of its log before it said who it is.
    #[error("it does not say who it is: is it a broker without enableControllerMode?")]
    NoHandshake,
    /// It says that it is another one now, or that it is the master.
    #[error("a slave says that its id is {id}")]
    Id {
        /// The id.
        id: i64,
    },
    /// Its log is no part of the master's, or was deleted here.
    #[error("the slave asks for offset {slave}, the master's log lies from {begin} to {end}")]
    Outside {
        /// What the slave reported.
        slave: u64,
        /// Where the master's log begins.
        begin: u64,
        /// Where the master's log ends.
        end: u64,
    },
    /// No epoch is known of that part of the log.
    #[error("no epoch is known for offset {offset}: the slave is older than this master's epoch file")]
    NoEpoch {
        /// The offset.
        offset: u64,
    },
    /// No slave reports that.
    #[error("a report of {report} after one of {before}, when {sent} was sent: this is no slave")]
    Report {
        /// What was reported.
        report: u64,
        /// What had been reported.
        before: u64,
        /// Up to where the slave was sent the log.
        sent: u64,
    },
    /// Nothing came for too long.
    #[error("the slave said nothing for {0:?} (haHousekeepingInterval)")]
    Silent(Duration),
    /// The slave closed the connection.
    #[error("the slave went away")]
    Closed,
    /// Another connection of the same slave came.
    #[error("the slave connected again")]
    Replaced,
    /// This replica is not master any more.
    #[error("this broker is no longer master")]
    Ceded,
    /// The socket failed.
    #[error(transparent)]
    Socket(#[from] std::io::Error),
    /// The log can't be read.
    #[error(transparent)]
    Log(#[from] ReplicaError),
}

enum Never {}

/// A connection of a slave that has said who it is.
struct Feed {
    shared: Arc<Shared>,
    mastership: Arc<Mastership>,
    slave: Arc<Slave>,
    from_last_file: bool,
    /// End of the log and time, before the last frame was sent.
    before_frame: Mutex<(u64, Instant)>,
    reported: AtomicU64,
}

/// Serves a slave until the connection ends, and says why it did.
pub(super) async fn feed(shared: Arc<Shared>, mastership: Arc<Mastership>, stream: TcpStream) -> Refused {
    let mut over = mastership.over.subscribe();
    let result = tokio::select! {
        result = serve(shared, mastership.clone(), stream) => result,
        _ = over.wait_for(|over| *over) => Err(Refused::Ceded),
    };
    match result {
        Ok(never) => match never {},
        Err(refused) => refused,
    }
}

async fn serve(
    shared: Arc<Shared>,
    mastership: Arc<Mastership>,
    stream: TcpStream,
) -> Result<Never, Refused> {
    let peer = stream.peer_addr()?;
    stream.set_nodelay(true)?;
    let (mut reader, mut writer) = stream.into_split();
    let mut received = BytesMut::with_capacity(4096);
    let (id, is_learner, from_last_file) = match next(&shared, &mut reader, &mut received).await? {
        OfSlave::Handshake { from_last_file, is_learner, id } => (id, is_learner, from_last_file),
        OfSlave::Report(_) => return Err(Refused::NoHandshake),
    };
    if id < 1 || id == shared.own_id() {
        return Err(Refused::Id { id });
    }
    let slave = Arc::new(Slave {
        id,
        peer,
        acked: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        pace: Pace::new(Instant::now()),
        replaced: watch::Sender::new(false),
    });
    let handshake = MasterHandshake { end: shared.log.bounds().end, epochs: shared.epochs.get() };
    writer.write_all(&handshake.encode()).await?;
    mastership.connected(&slave, is_learner);
    tracing::info!(slave = id, %peer, "slave connected");

    let mut replaced = slave.replaced.subscribe();
    let (begin, begins) = watch::channel(None);
    let before_frame = Mutex::new((shared.log.bounds().end, Instant::now()));
    let reported = AtomicU64::new(0);
    let feed = Feed {
        shared,
        mastership: mastership.clone(),
        slave: slave.clone(),
        from_last_file,
        before_frame,
        reported,
    };
    let result = tokio::select! {
        result = feed.read(reader, received, begin) => result,
        result = feed.write(writer, begins) => result,
        _ = replaced.wait_for(|replaced| *replaced) => Err(Refused::Replaced),
    };
    mastership.disconnected(&slave);
    result
}

/// The next thing that the slave says.
async fn next(
    shared: &Shared,
    reader: &mut OwnedReadHalf,
    received: &mut BytesMut,
) -> Result<OfSlave, Refused> {
    loop {
        if let Some(said) = OfSlave::take(received)? {
            return Ok(said);
        }
        let silence_max = shared.settings.load().ha.housekeeping_interval;
        let read = tokio::time::timeout(silence_max, reader.read_buf(received)).await;
        if read.map_err(|_| Refused::Silent(silence_max))?? == 0 {
            return Err(Refused::Closed);
        }
    }
}

impl Feed {
    /// Takes the slave's reports.
    async fn read(
        &self,
        mut reader: OwnedReadHalf,
        mut received: BytesMut,
        begin: watch::Sender<Option<u64>>,
    ) -> Result<Never, Refused> {
        loop {
            match next(&self.shared, &mut reader, &mut received).await? {
                OfSlave::Report(offset) if begin.borrow().is_none() => {
                    let from = self.begin(offset)?;
                    self.slave.sent.store(from, Ordering::Release);
                    self.acked(offset);
                    begin.send_replace(Some(from));
                }
                OfSlave::Report(offset) => {
                    let before = self.reported.load(Ordering::Acquire);
                    let sent = self.slave.sent.load(Ordering::Acquire);
                    if offset < before || offset > sent {
                        return Err(Refused::Report { report: offset, before, sent });
                    }
                    self.acked(offset);
                }
                // Java slaves repeat it while they wait for the answer, and take a second answer for an error.
                OfSlave::Handshake { id, .. } if id == self.slave.id && begin.borrow().is_none() => {}
                OfSlave::Handshake { id, .. } => return Err(Refused::Id { id }),
            }
        }
    }

    /// Where to begin, after a first report of `offset`.
    fn begin(&self, offset: u64) -> Result<u64, Refused> {
        let log = &*self.shared.log;
        let bounds = log.bounds();
        let from = match offset {
            0 if self.from_last_file => bounds.begin.max(bounds.end - bounds.end % log.file_size()),
            0 => bounds.begin,
            offset => offset,
        };
        if from < bounds.begin || from > bounds.end {
            return Err(Refused::Outside { slave: offset, begin: bounds.begin, end: bounds.end });
        }
        Ok(from)
    }

    fn acked(&self, offset: u64) {
        self.reported.store(offset, Ordering::Release);
        let (end_then, at) = *self.before_frame.lock();
        let caught_up = match offset {
            offset if offset >= self.shared.log.bounds().end => Some(Instant::now()),
            offset if offset >= end_then => Some(at),
            _ => None,
        };
        self.mastership.acked(&self.shared, &self.slave, offset, caught_up);
    }

    /// Sends the log from where the slave's first report says, and heartbeats when there is nothing.
    async fn write(
        &self,
        mut writer: OwnedWriteHalf,
        mut begins: watch::Receiver<Option<u64>>,
    ) -> Result<Never, Refused> {
        let log = &*self.shared.log;
        let begin = begins.wait_for(Option::is_some).await.ok().and_then(|begin| *begin);
        let Some(mut next) = begin else { return std::future::pending().await };
        while log.bounds().begin == log.bounds().end {
            let header = FrameHeader { len: 0, offset: None, epoch: self.mastership.epoch, confirmed: 0 };
            writer.write_all(&header.encode()).await?;
            let _ = tokio::time::timeout(NOTHING_YET, AtEnd::new(log, log.bounds().end + 1)).await;
        }
        let mut ready = Bytes::new();
        let mut written = Instant::now();
        let mut epochs = self.shared.epochs.get();
        loop {
            let settings = self.shared.settings.load_full();
            let (epoch, epoch_end) = match epochs.find(next) {
                Some(found) => found,
                None => return Err(Refused::NoEpoch { offset: next }),
            };
            if ready.is_empty() {
                let heartbeat_due = settings.ha.heartbeat_interval.saturating_sub(written.elapsed());
                if tokio::time::timeout(heartbeat_due, AtEnd::new(log, next + 1)).await.is_err() {
                    let confirmed = log.bounds().confirmed;
                    let header = FrameHeader { len: 0, offset: Some(next), epoch, confirmed };
                    writer.write_all(&header.encode()).await?;
                    written = Instant::now();
                    self.caught_up();
                    continue;
                }
                epochs = self.epochs();
                ready = self.read_log(next, settings.ha.batch_size).await?;
                continue;
            }
            let of_epoch = usize::try_from(epoch_end - next).unwrap_or(usize::MAX);
            let len = ready.len().min(of_epoch).min(allowed(&self.slave, &settings.ha).await);
            let body = ready.split_to(len);
            *self.before_frame.lock() = (log.bounds().end, Instant::now());
            let confirmed = log.bounds().confirmed;
            let header = FrameHeader { len, offset: Some(next), epoch, confirmed };
            next += len as u64;
            // First, so that no report can come before.
            self.slave.sent.store(next, Ordering::Release);
            writer.write_all_buf(&mut Buf::chain(&header.encode()[..], body)).await?;
            written = Instant::now();
            self.slave.pace.add(written, (FRAME_HEADER_LEN + len) as u64);
        }
    }

    /// There was nothing to send: who has it all keeps up.
    fn caught_up(&self) {
        let reported = self.reported.load(Ordering::Acquire);
        if reported >= self.shared.log.bounds().end {
            self.mastership.acked(&self.shared, &self.slave, reported, Some(Instant::now()));
        }
    }

    fn epochs(&self) -> Epochs {
        self.shared.epochs.get()
    }

    /// The bytes at `next`, of which there is at least one.
    async fn read_log(&self, next: u64, batch_size: usize) -> Result<Bytes, Refused> {
        if self.shared.log.bounds().end.saturating_sub(next) <= LIKELY_IN_MEMORY {
            return Ok(self.shared.log.read(next, batch_size)?);
        }
        let log = Arc::clone(&self.shared.log);
        let read = tokio::task::spawn_blocking(move || log.read(next, READ_AT_ONCE.max(batch_size))).await;
        Ok(read.map_err(std::io::Error::other)??)
    }
}

/// Most bytes of the log that the next frame may have; waits until it may have any.
async fn allowed(slave: &Slave, settings: &HaSettings) -> usize {
    let most = settings.batch_size.clamp(1, FRAME_LEN_MAX - FRAME_HEADER_LEN);
    let Some(limit) = settings.bytes_per_second_max else { return most };
    loop {
        match slave.pace.allowance(Instant::now(), limit.max(1)) {
            Ok(rest) => return most.min(usize::try_from(rest).unwrap_or(most)),
            Err(pause) => tokio::time::sleep(pause).await,
        }
    }
}
