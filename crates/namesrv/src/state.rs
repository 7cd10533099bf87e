//! What all connections and tasks of a name server share.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ferromq_settings::LiveSettings;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::config::NamesrvConfig;
use crate::kv::KvConfig;
use crate::refusal::Refusal;
use crate::routes::{MinBrokerIdNotice, Routes, Unregistration};

/// The tables and settings, and the ways to the background tasks.
pub(crate) struct State {
    pub(crate) config: LiveSettings<NamesrvConfig>,
    pub(crate) kv: KvConfig,
    pub(crate) routes: Routes,
    /// To the task that removes brokers.
    pub(crate) removals: mpsc::Sender<Unregistration>,
    /// To the task that tells brokers of new smallest ids.
    pub(crate) notices: mpsc::Sender<MinBrokerIdNotice>,
    pub(crate) started: Instant,
    /// Set when clients are to go elsewhere, shortly before the end.
    pub(crate) going_away: AtomicBool,
}

impl State {
    /// The name server's own clock: ms since it was started.
    pub(crate) fn now_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Whether brokers had no time yet to register, so that routes would be incomplete.
    pub(crate) fn is_waiting_for_brokers(&self) -> bool {
        let config = self.config.load();
        let wait = Duration::from_secs(config.wait_seconds_for_service.into());
        config.need_wait_for_service && self.started.elapsed() < wait
    }

    /// Asks for the removal of a broker.
    pub(crate) fn remove(&self, unregistration: Unregistration) -> Result<(), Refusal> {
        self.removals.try_send(unregistration).map_err(|_| Refusal::RemovalsFull)
    }

    /// Has brokers told of a new smallest id.
    pub(crate) fn notify(&self, notice: MinBrokerIdNotice) {
        if let Err(error) = self.notices.try_send(notice) {
            tracing::warn!(%error, "a new smallest broker id is not told to anybody");
        }
    }
}

/// What has to be written to the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Saving {
    Kv,
    Config,
}

impl Saving {
    /// Writes it. Blocks.
    pub(crate) fn run(self, state: &State) -> Result<(), Refusal> {
        let (what, written) = match self {
            Self::Kv => ("the key/value configuration", state.kv.save()),
            Self::Config => ("the configuration", state.config.save()),
        };
        written.map_err(|source| Refusal::NotSaved { what, source })
    }
}
