//! What a slave does in every protocol of masters and slaves: follow the master whose address it is told, over one connection after
//! the other, and know how that goes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::classic::Pace;

/// The same trouble is told again after so long.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

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

/// What a slave knows of its master and of the connection to it.
#[derive(Debug)]
pub(crate) struct Following {
    master: watch::Sender<Option<String>>,
    status: Mutex<SlaveStatus>,
    pace: Pace,
    /// Held while the log is being changed, which goes on when the connection ends.
    pub(crate) changing: Arc<tokio::sync::Mutex<()>>,
}

impl Following {
    pub(crate) fn new() -> Self {
        Self {
            master: watch::Sender::new(None),
            status: Mutex::default(),
            pace: Pace::new(Instant::now()),
            changing: Arc::default(),
        }
    }

    /// Says where the master's HA port is, `host:port`. Another address ends the connection to the old one.
    pub(crate) fn set_master(&self, address: Option<String>) {
        self.master.send_if_modified(|known| {
            let is_new = *known != address;
            if is_new {
                *known = address;
            }
            is_new
        });
    }

    pub(crate) fn status(&self) -> SlaveStatus {
        let status = self.status.lock().clone();
        let master = self.master.borrow().clone();
        SlaveStatus { master, bytes_per_second: self.pace.per_second(Instant::now()), ..status }
    }

    /// Our log was found to be a part of the master's.
    pub(crate) fn transferring(&self) {
        let mut status = self.status.lock();
        (status.state, status.trouble) = (SlaveState::Transfer, None);
    }

    /// So many bytes came from the master.
    pub(crate) fn received(&self, at: Instant, bytes: usize) {
        self.pace.add(at, bytes as u64);
        self.status.lock().last_read_ms = now_ms();
    }

    /// The master was told something.
    pub(crate) fn sent(&self) {
        self.status.lock().last_write_ms = now_ms();
    }
}

/// A slave in one of the protocols.
pub(crate) trait Slave: Send + Sync + 'static {
    /// Why a connection ended.
    type Error: std::error::Error + Send;

    /// Follows the master over one connection, until that ends with an error.
    fn follow(
        &self,
        following: &Following,
        address: &str,
    ) -> impl Future<Output = Result<Infallible, Self::Error>> + Send;

    /// How long to wait after that before the next one.
    fn pause(&self, after: &Self::Error) -> Duration;
}

/// Follows the master whose address is set, again and again.
pub(crate) async fn keep_following(slave: impl Slave, following: Arc<Following>) {
    let mut master = following.master.subscribe();
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
            Err(error) = slave.follow(&following, &address) => Some(error),
            _ = master.changed() => None,
        };
        following.status.lock().state = SlaveState::Ready;
        let Some(error) = ended else { continue };
        let text = error.to_string();
        following.status.lock().trouble = Some(text.clone());
        if told.as_ref().is_none_or(|(last, at)| *last != text || at.elapsed() > TOLD_AGAIN) {
            tracing::error!(master = address, "not replicating: {text}");
            told = Some((text, Instant::now()));
        }
        tokio::select! {
            () = tokio::time::sleep(slave.pause(&error)) => {}
            _ = master.changed() => {}
        }
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
