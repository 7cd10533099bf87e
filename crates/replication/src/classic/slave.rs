//! The slave: finds its master, connects, takes in what comes, and begins again when the connection ends
//! (`docs/spec/05-ha.md` §2.4).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::{Buf as _, BytesMut};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::HaSettings;
use super::intake::{BadBytes, Intake};
use super::pace::Pace;
use super::wire::{FRAME_LEN_MAX, FrameHeader, HEADER_LEN, encode_report};
use crate::log::ReplicaLog;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The same trouble is told again after so long.
const TOLD_AGAIN: Duration = Duration::from_secs(60);
/// Bytes that are read at once.
const READ_AT_ONCE: usize = 256 << 10;

/// Finds out where an empty slave should begin: the first offset of the master's log. `None` if that can't be known now, or the
/// master's log is empty: then the slave begins as the Java broker's do, with the master's last file.
pub type FirstOffset = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Option<u64>> + Send>> + Send + Sync>;

/// Copies a master's log.
#[derive(Debug)]
pub struct HaSlave {
    shared: Arc<Shared>,
    task: tokio::sync::Mutex<JoinHandle<()>>,
}

/// Whether a slave is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlaveState {
    /// It is not.
    #[default]
    Ready,
    /// It is, and its log was found to be a part of the master's.
    Transfer,
}

/// A slave, as administrators see it.
#[derive(Debug, Clone, Default)]
pub struct SlaveStatus {
    /// `haServerAddr` of the master, if it is known.
    pub master: Option<String>,
    /// Whether it is connected.
    pub state: SlaveState,
    /// When something came from the master, ms since 1970; 0 before.
    pub last_read_ms: i64,
    /// When something was sent to the master, ms since 1970; 0 before.
    pub last_write_ms: i64,
    /// Bytes that came in the last second.
    pub bytes_per_second: u64,
    /// Why the last connection ended or could not be made.
    pub trouble: Option<String>,
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
    master: watch::Sender<Option<String>>,
    first: FirstOffset,
    status: Mutex<SlaveStatus>,
    pace: Pace,
    /// Held while bytes are being appended, which goes on when the connection ends.
    appending: Arc<tokio::sync::Mutex<()>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("status", &self.status).finish_non_exhaustive()
    }
}

impl HaSlave {
    /// Follows the master whose address is [set](Self::set_master). Needs a Tokio runtime.
    pub fn start(log: Arc<dyn ReplicaLog>, settings: HaSettings, first: FirstOffset) -> HaSlave {
        let shared = Arc::new(Shared {
            log,
            settings: ArcSwap::from_pointee(settings),
            master: watch::Sender::new(None),
            first,
            status: Mutex::default(),
            pace: Pace::new(Instant::now()),
            appending: Arc::default(),
        });
        let task = tokio::spawn(run(Arc::clone(&shared)));
        HaSlave { shared, task: tokio::sync::Mutex::new(task) }
    }

    /// Says where the master's HA port is, `host:port`. Another address ends the connection to the old one.
    pub fn set_master(&self, address: Option<String>) {
        self.shared.master.send_if_modified(|current| {
            let is_new = *current != address;
            if is_new {
                *current = address;
            }
            is_new
        });
    }

    /// Puts other settings in force.
    pub fn reconfigure(&self, settings: HaSettings) {
        self.shared.settings.store(Arc::new(settings));
    }

    /// How it is now.
    pub fn status(&self) -> SlaveStatus {
        let status = self.shared.status.lock().clone();
        let master = self.shared.master.borrow().clone();
        SlaveStatus { master, bytes_per_second: self.shared.pace.per_second(Instant::now()), ..status }
    }

    /// Ends the connection, and makes no other. Nothing is appended any more when this returns.
    pub async fn stop(&self) {
        let mut task = self.task.lock().await;
        task.abort();
        if !task.is_finished() {
            // It was aborted; a panic was reported when it happened.
            let _ = (&mut *task).await;
        }
        let _appended = self.shared.appending.lock().await;
    }
}

impl Drop for HaSlave {
    fn drop(&mut self) {
        self.task.get_mut().abort();
    }
}

async fn run(shared: Arc<Shared>) {
    let mut master = shared.master.subscribe();
    let mut told: Option<(String, Instant)> = None;
    loop {
        let address = master.borrow_and_update().clone();
        let Some(address) = address else {
            if master.changed().await.is_err() {
                return;
            }
            continue;
        };
        let ended = tokio::select! {
            error = follow(&shared, &address) => Some(error),
            _ = master.changed() => None,
        };
        shared.status.lock().state = SlaveState::Ready;
        let Some(error) = ended else { continue };
        let text = error.to_string();
        shared.status.lock().trouble = Some(text.clone());
        if told.as_ref().is_none_or(|(last, at)| *last != text || at.elapsed() > TOLD_AGAIN) {
            tracing::error!(master = address, "not replicating: {text}");
            told = Some((text, Instant::now()));
        }
        let pause = shared.settings.load().reconnect_pause;
        let pause = match error {
            SlaveError::Silent(_) => continue,
            // Nothing but somebody can change that.
            SlaveError::BadBytes(_) | SlaveError::FrameLen { .. } => pause,
            SlaveError::Connect(_) | SlaveError::Closed | SlaveError::Socket(_) => pause / 5,
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = master.changed() => {}
        }
    }
}

/// Follows the master over one connection.
async fn follow(shared: &Shared, address: &str) -> SlaveError {
    match Link::open(shared, address).await {
        Ok(mut link) => match link.run().await {
            Ok(never) => match never {},
            Err(error) => error,
        },
        Err(error) => error,
    }
}

enum Never {}

/// A connection to the master.
struct Link<'a> {
    shared: &'a Shared,
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
    async fn open(shared: &'a Shared, address: &str) -> Result<Self, SlaveError> {
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
        let mut link = Link { shared, stream, received, reported, read_at: now, written_at: now, intake };
        link.report(reported).await?;
        let end = bounds.end;
        tracing::info!(master = address, from = reported, end, "connected to the master");
        link.note_compared();
        Ok(link)
    }

    fn note_compared(&self) {
        if self.intake.is_compared() {
            let mut status = self.shared.status.lock();
            (status.state, status.trouble) = (SlaveState::Transfer, None);
        }
    }

    async fn run(&mut self) -> Result<Never, SlaveError> {
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
                    self.shared.pace.add(self.read_at, read as u64);
                    self.shared.status.lock().last_read_ms = now_ms();
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
        let appending = Arc::clone(&self.shared.appending).lock_owned().await;
        let work = tokio::task::spawn_blocking(move || {
            let _appending = appending;
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
        self.shared.status.lock().last_write_ms = now_ms();
        Ok(())
    }
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
