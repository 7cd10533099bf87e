//! The slave: finds its master, connects, takes in what comes, and begins again when the connection ends
//! (`docs/spec/05-ha.md` §2.4).

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::{Buf as _, BytesMut};
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::HaSettings;
use super::intake::{BadBytes, Intake};
use super::wire::{FRAME_LEN_MAX, FrameHeader, HEADER_LEN, encode_report};
use crate::following::{Following, Slave, SlaveStatus, keep_following};
use crate::log::ReplicaLog;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that are read at once.
const READ_AT_ONCE: usize = 256 << 10;

/// Finds out where an empty slave should begin: the first offset of the master's log. `None` if that can't be known now, or the
/// master's log is empty: then the slave begins as the Java broker's do, with the master's last file.
pub type FirstOffset = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Option<u64>> + Send>> + Send + Sync>;

/// Copies a master's log.
pub struct HaSlave {
    shared: Arc<Shared>,
    following: Arc<Following>,
    task: tokio::sync::Mutex<JoinHandle<()>>,
}

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
    #[error("the master said nothing for {0:?} (haHousekeepingInterval)")]
    Silent(Duration),
    /// A frame that no master sends.
    #[error(
        "the master announced a frame of {len} bytes, the limit is {FRAME_LEN_MAX}; is it a RocketMQ broker's haListenPort?"
    )]
    FrameLen {
        /// The announced length of its body.
        len: i32,
    },
    /// The bytes were not appended.
    #[error(transparent)]
    BadBytes(#[from] BadBytes),
    /// The socket failed.
    #[error(transparent)]
    Socket(io::Error),
}

struct Shared {
    log: Arc<dyn ReplicaLog>,
    settings: ArcSwap<HaSettings>,
    first: FirstOffset,
}

impl HaSlave {
    /// Follows the master whose address is [set](Self::set_master). Needs a Tokio runtime.
    pub fn start(log: Arc<dyn ReplicaLog>, settings: HaSettings, first: FirstOffset) -> HaSlave {
        let shared = Arc::new(Shared { log, settings: ArcSwap::from_pointee(settings), first });
        let following = Arc::new(Following::new());
        let task = tokio::spawn(keep_following(Arc::clone(&shared), Arc::clone(&following)));
        HaSlave { shared, following, task: tokio::sync::Mutex::new(task) }
    }

    /// Says where the master's HA port is, `host:port`. Another address ends the connection to the old one.
    pub fn set_master(&self, address: Option<String>) {
        self.following.set_master(address);
    }

    /// Puts other settings in force.
    pub fn reconfigure(&self, settings: HaSettings) {
        self.shared.settings.store(Arc::new(settings));
    }

    /// How it is now.
    pub fn status(&self) -> SlaveStatus {
        self.following.status()
    }

    /// Ends the connection, and makes no other. Nothing is appended any more when this returns.
    pub async fn stop(&self) {
        let mut task = self.task.lock().await;
        task.abort();
        if !task.is_finished() {
            // It was aborted; a panic was reported when it happened.
            let _ = (&mut *task).await;
        }
        let _appended = self.following.changing.lock().await;
    }
}

impl Drop for HaSlave {
    fn drop(&mut self) {
        self.task.get_mut().abort();
    }
}

impl Slave for Arc<Shared> {
    type Error = SlaveError;

    async fn follow(&self, following: &Following, address: &str) -> Result<Infallible, SlaveError> {
        Link::open(self, following, address).await?.run().await
    }

    fn pause(&self, after: &SlaveError) -> Duration {
        let pause = self.settings.load().reconnect_pause;
        match after {
            SlaveError::Silent(_) => Duration::ZERO,
            // Nothing but somebody can change that.
            SlaveError::BadBytes(_) | SlaveError::FrameLen { .. } => pause,
            SlaveError::Connect(_) | SlaveError::Closed | SlaveError::Socket(_) => pause / 5,
        }
    }
}

/// A connection to the master.
struct Link<'a> {
    shared: &'a Shared,
    following: &'a Following,
    stream: TcpStream,
    received: BytesMut,
    /// What was reported last.
    reported: u64,
    read_at: Instant,
    written_at: Instant,
    /// In a box, because it goes to a thread that may wait for the disk, and back.
    intake: Box<Intake>,
}

impl<'a> Link<'a> {
    async fn open(shared: &'a Shared, following: &'a Following, address: &str) -> Result<Self, SlaveError> {
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer");
        let stream =
            connecting.map_err(timed_out).and_then(|connected| connected).map_err(SlaveError::Connect)?;
        stream.set_nodelay(true).map_err(SlaveError::Socket)?;
        let bounds = shared.log.bounds();
        let first = if bounds.begin == bounds.end { (shared.first)().await } else { None };
        let intake = Box::new(Intake::new(&*shared.log, first)?);
        let now = Instant::now();
        let (reported, received) = (intake.request(), BytesMut::with_capacity(READ_AT_ONCE));
        let mut link =
            Link { shared, following, stream, received, reported, read_at: now, written_at: now, intake };
        link.report(reported).await?;
        let end = bounds.end;
        tracing::info!(master = address, from = reported, end, "connected to the master");
        link.note_compared();
        Ok(link)
    }

    fn note_compared(&self) {
        if self.intake.is_compared() {
            self.following.transferring();
        }
    }

    async fn run(&mut self) -> Result<Infallible, SlaveError> {
        loop {
            let settings = self.shared.settings.load_full();
            let silent_at = self.read_at + settings.housekeeping_interval;
            let report_at = self.written_at + settings.heartbeat_interval;
            self.received.reserve(READ_AT_ONCE);
            tokio::select! {
                read = self.stream.read_buf(&mut self.received) => {
                    let read = read.map_err(SlaveError::Socket)?;
                    if read == 0 {
                        return Err(SlaveError::Closed);
                    }
                    self.read_at = Instant::now();
                    self.following.received(self.read_at, read);
                    self.take_frames().await?;
                }
                () = tokio::time::sleep_until(silent_at.into()) => {
                    return Err(SlaveError::Silent(settings.housekeeping_interval));
                }
                () = tokio::time::sleep_until(report_at.into()) => self.report(self.reported).await?,
            }
        }
    }

    /// Takes in every frame that is all there, and reports what was appended.
    async fn take_frames(&mut self) -> Result<(), SlaveError> {
        let mut frames = Vec::new();
        while let Some(header) = FrameHeader::peek(&self.received) {
            let len = usize::try_from(header.len).unwrap_or(usize::MAX);
            if len > FRAME_LEN_MAX - HEADER_LEN {
                return Err(SlaveError::FrameLen { len: header.len });
            }
            if self.received.len() < HEADER_LEN + len {
                break;
            }
            self.received.advance(HEADER_LEN);
            frames.push((header.offset, self.received.split_to(len)));
        }
        if frames.iter().all(|(_, body)| body.is_empty()) {
            return Ok(frames.iter().try_for_each(|(offset, _)| self.intake.heartbeat(*offset))?);
        }
        let log = Arc::clone(&self.shared.log);
        let mut intake = std::mem::take(&mut self.intake);
        let changing = Arc::clone(&self.following.changing).lock_owned().await;
        let work = tokio::task::spawn_blocking(move || {
            let _changing = changing;
            let result = frames.into_iter().try_for_each(|(offset, body)| match body.len() {
                0 => intake.heartbeat(offset),
                _ => intake.take(&*log, offset, &body),
            });
            drop(log);
            (intake, result)
        });
        let (intake, result) = work.await.map_err(|error| SlaveError::Socket(io::Error::other(error)))?;
        self.intake = intake;
        self.note_compared();
        let end = self.shared.log.bounds().end;
        if self.intake.is_compared() && end > self.reported {
            self.report(end).await?;
        }
        Ok(result?)
    }

    async fn report(&mut self, offset: u64) -> Result<(), SlaveError> {
        self.stream.write_all(&encode_report(offset)).await.map_err(SlaveError::Socket)?;
        self.reported = offset;
        self.written_at = Instant::now();
        self.following.sent();
        Ok(())
    }
}
