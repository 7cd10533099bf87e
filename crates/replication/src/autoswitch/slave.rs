//! The slave's side: finding where the two logs are the same, and copying the rest (`docs/spec/05-ha.md` 9.5).

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};
use ferromq_store::ReplicaError;
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::epochs::{Epoch, Epochs};
use super::role::Shared;
use super::wire::{FRAME_HEADER_LEN, FrameHeader, MasterHandshake, OfSlave, Unreadable};
use crate::classic::{BadBytes, Intake};
use crate::following::{Following, Slave};

/// How long a connection may take to be made, and the master to answer the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that one read can bring.
const READ_AT_ONCE: usize = 1 << 20;

/// Why a connection to the master ended.
#[derive(Debug, Error)]
pub enum SlaveError {
    /// It could not be made.
    #[error("can't connect: {0}")]
    Connect(io::Error),
    /// The master closed it.
    #[error("the master closed the connection")]
    Closed,
    /// Nothing came for too long.
    #[error("the master said nothing for {0:?}")]
    Silent(Duration),
    /// It does not speak the protocol.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The two logs have nothing in common.
    #[error(
        "this replica's log has no epoch in common with the master's: it is of another set, or what it lacks was deleted there. Nothing \
         was changed. Keep its store if its messages are needed, and start it with an empty storePathRootDir"
    )]
    NothingInCommon,
    /// The two logs differ in what this one promised.
    #[error(
        "this replica's log is the master's only up to {point}, but is confirmed up to {confirmed}: the master was elected without having \
         all acknowledged messages (enableElectUncleanMaster, or a RocketMQ master without allAckInSyncStateSet). Nothing was changed. \
         Keep this store if its messages are needed, and start it with an empty storePathRootDir"
    )]
    Confirmed {
        /// Up to where the logs are the same.
        point: u64,
        /// Up to where this one is confirmed.
        confirmed: u64,
    },
    /// The bytes were not appended.
    #[error(transparent)]
    BadBytes(#[from] BadBytes),
    /// The log could not be cut.
    #[error(transparent)]
    Log(#[from] ReplicaError),
    /// The epoch file could not be written.
    #[error("can't write the epoch file: {0}")]
    Epochs(io::Error),
    /// The socket failed.
    #[error(transparent)]
    Socket(io::Error),
}

impl Slave for Arc<Shared> {
    type Error = SlaveError;

    async fn follow(&self, following: &Following, address: &str) -> Result<Infallible, SlaveError> {
        Link::open(self, following, address).await?.run().await
    }

    fn pause(&self, after: &SlaveError) -> Duration {
        let pause = self.settings.load().ha.reconnect_pause;
        match after {
            // A new master may not know yet that it is one, and acknowledges nothing before its slaves are there.
            SlaveError::Closed | SlaveError::Connect(_) | SlaveError::Socket(_) => pause / 10,
            _ => pause,
        }
    }
}

/// A connection to the master, whose log ours is a part of.
struct Link<'a> {
    shared: &'a Arc<Shared>,
    following: &'a Following,
    stream: TcpStream,
    received: BytesMut,
    reported: u64,
    read_at: Instant,
    written_at: Instant,
    /// In a box, because it goes to a thread that may wait for the disk, and back.
    intake: Box<Intake>,
}

impl<'a> Link<'a> {
    async fn open(
        shared: &'a Arc<Shared>,
        following: &'a Following,
        address: &str,
    ) -> Result<Self, SlaveError> {
        let timed_out = || io::Error::new(io::ErrorKind::TimedOut, "no answer");
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        let mut stream = connecting.unwrap_or_else(|_| Err(timed_out())).map_err(SlaveError::Connect)?;
        stream.set_nodelay(true).map_err(SlaveError::Socket)?;
        let settings = shared.settings.load_full();
        let greeting = OfSlave::Handshake {
            from_last_file: settings.from_last_file,
            is_learner: settings.is_learner,
            id: shared.own_id(),
        };
        stream.write_all(&greeting.encode()).await.map_err(SlaveError::Socket)?;
        let mut received = BytesMut::with_capacity(READ_AT_ONCE);
        let handshake = tokio::time::timeout(CONNECT_TIMEOUT, handshake(&mut stream, &mut received)).await;
        let handshake = handshake.map_err(|_| SlaveError::Silent(CONNECT_TIMEOUT))??;

        let changing = Arc::clone(&following.changing).lock_owned().await;
        let to_cut = Arc::clone(shared);
        let cut = tokio::task::spawn_blocking(move || {
            let _changing = changing;
            cut(&to_cut, &handshake)
        });
        cut.await.map_err(|error| SlaveError::Socket(io::Error::other(error)))??;

        let intake = Box::new(Intake::new(&*shared.log, None)?);
        let now = Instant::now();
        let reported = intake.request();
        let mut link =
            Link { shared, following, stream, received, reported, read_at: now, written_at: now, intake };
        link.report(reported).await?;
        tracing::info!(
            master = address,
            from = reported,
            end = shared.log.bounds().end,
            "connected to the master"
        );
        following.transferring();
        Ok(link)
    }

    async fn run(&mut self) -> Result<Infallible, SlaveError> {
        loop {
            self.take_frames().await?;
            let settings = self.shared.settings.load_full();
            let silent_at = self.read_at + settings.ha.housekeeping_interval;
            let report_at = self.written_at + settings.ha.heartbeat_interval;
            self.received.reserve(READ_AT_ONCE);
            tokio::select! {
                read = self.stream.read_buf(&mut self.received) => {
                    let read = read.map_err(SlaveError::Socket)?;
                    if read == 0 {
                        return Err(SlaveError::Closed);
                    }
                    self.read_at = Instant::now();
                    self.following.received(self.read_at, read);
                }
                () = tokio::time::sleep_until(silent_at.into()) => {
                    return Err(SlaveError::Silent(settings.ha.housekeeping_interval));
                }
                () = tokio::time::sleep_until(report_at.into()) => self.report(self.reported).await?,
            }
        }
    }

    /// Takes in every frame that is all there, and reports what was appended.
    async fn take_frames(&mut self) -> Result<(), SlaveError> {
        let mut frames = Vec::new();
        while let Some(header) = FrameHeader::peek(&self.received)? {
            if self.received.len() < FRAME_HEADER_LEN + header.len {
                break;
            }
            self.received.advance(FRAME_HEADER_LEN);
            frames.push((header, self.received.split_to(header.len)));
        }
        if frames.is_empty() {
            return Ok(());
        }
        let shared = Arc::clone(self.shared);
        let mut intake = std::mem::take(&mut self.intake);
        let changing = Arc::clone(&self.following.changing).lock_owned().await;
        let work = tokio::task::spawn_blocking(move || {
            let _changing = changing;
            let result =
                frames.into_iter().try_for_each(|(header, body)| take(&shared, &mut intake, header, &body));
            (intake, result)
        });
        let (intake, result) = work.await.map_err(|error| SlaveError::Socket(io::Error::other(error)))?;
        self.intake = intake;
        let end = self.shared.log.bounds().end;
        if self.intake.is_compared() && end > self.reported {
            self.report(end).await?;
        }
        result
    }

    async fn report(&mut self, offset: u64) -> Result<(), SlaveError> {
        self.stream.write_all(&OfSlave::Report(offset).encode()).await.map_err(SlaveError::Socket)?;
        self.reported = offset;
        self.written_at = Instant::now();
        self.following.sent();
        Ok(())
    }
}

async fn handshake(stream: &mut TcpStream, received: &mut BytesMut) -> Result<MasterHandshake, SlaveError> {
    loop {
        if let Some(handshake) = MasterHandshake::take(received)? {
            return Ok(handshake);
        }
        if stream.read_buf(received).await.map_err(SlaveError::Socket)? == 0 {
            return Err(SlaveError::Closed);
        }
    }
}

/// Cuts our log to where it is the same as the master's. May wait for the disk.
fn cut(shared: &Shared, master: &MasterHandshake) -> Result<(), SlaveError> {
    let epochs = shared.epochs.get();
    let bounds = shared.log.bounds();
    if epochs.entries().is_empty() || bounds.begin == bounds.end {
        return Ok(());
    }
    let point = epochs.consistent_point(bounds.end, &master.epochs, master.end);
    let point = point.filter(|point| *point >= bounds.begin).ok_or(SlaveError::NothingInCommon)?;
    if point < bounds.confirmed {
        return Err(SlaveError::Confirmed { point, confirmed: bounds.confirmed });
    }
    if point < bounds.end {
        let (end, bytes) = (bounds.end, bounds.end - point);
        tracing::warn!(point, end, bytes, "cutting what was never acknowledged and the master does not have");
        shared.log.truncate(point)?;
    }
    shared.epochs.change(|epochs| epochs.truncate(point)).map_err(SlaveError::Epochs)
}

/// Takes in one frame. May wait for the disk.
fn take(shared: &Shared, intake: &mut Intake, header: FrameHeader, body: &[u8]) -> Result<(), SlaveError> {
    let Some(offset) = header.offset else { return Ok(()) };
    let Epoch { number, start } = header.epoch;
    if start <= offset && shared.epochs.last().is_none_or(|last| number > last.number) {
        let begin = |epochs: &mut Epochs| {
            epochs.begin(header.epoch);
        };
        shared.epochs.change(begin).map_err(SlaveError::Epochs)?;
    }
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    match body {
        [] => intake.heartbeat(offset)?,
        body => intake.take(&*shared.log, offset, body)?,
    }
    if intake.is_compared() {
        shared.log.confirm(header.confirmed.min(shared.log.bounds().end));
    }
    Ok(())
}
