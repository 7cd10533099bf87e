//! What has to be true of a message before its send is answered (`docs/spec/05-ha.md` 3).

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::code::response;
use ferromq_replication::classic::HaMaster;
use ferromq_store::{AppendError, FlushDiskType};
use tokio::time::timeout;

use crate::answer::Refusal;
use crate::broker::Broker;
use crate::config::{BrokerConfig, BrokerRole};

/// How long a send waits for a majority of a Raft group.
pub(crate) const GROUP_TIMEOUT: Duration = Duration::from_millis(2500);

/// What sends wait for, beside the append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acks {
    /// The log must be on the disk (SYNC_FLUSH).
    flush: bool,
    replicas: Replicas,
    /// The store's term when this was asked.
    term: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replicas {
    /// The master's own log is enough.
    None,
    /// So many replicas must have the message, the master included.
    AtLeast(usize),
    /// All must have it that a controller may make master, and so many in all.
    SyncStateSet { at_least: usize },
    /// A slave was wanted and none is there, or none that has kept up.
    Unavailable,
    /// The Raft group must have agreed on it, whatever the message says.
    Group,
}

impl Acks {
    /// What a send waits for that is appended after this.
    pub(crate) fn wanted(broker: &Broker, config: &BrokerConfig) -> Self {
        let term = broker.store.term();
        if broker.replication.is_raft() {
            return Self { flush: false, replicas: Replicas::Group, term };
        }
        let flush = broker.store.options().flush_disk_type == FlushDiskType::SyncFlush;
        let replicas = match config.broker_role {
            _ if config.enable_controller_mode => {
                Replicas::SyncStateSet { at_least: config.in_sync_replicas as usize }
            }
            BrokerRole::SyncMaster => match config.in_sync_replicas {
                // Nobody chooses this role to have no copy: what RocketMQ 4 does.
                0 | 1 if broker.replication.has_slave_in_sync() => Replicas::AtLeast(2),
                0 | 1 => Replicas::Unavailable,
                _ => match replicas_wanted(broker, config) {
                    Some(0 | 1) => Replicas::None,
                    Some(replicas) => Replicas::AtLeast(replicas),
                    // Refused before it was stored, unless a slave was lost since.
                    None => Replicas::AtLeast(config.in_sync_replicas as usize),
                },
            },
            BrokerRole::AsyncMaster | BrokerRole::Slave => Replicas::None,
        };
        Self { flush, replicas, term }
    }

    /// Whether there are as many replicas as a send needs: else it is refused. Only where slaves act for masters, and under
    /// controllers, that is asked first.
    pub(crate) fn are_possible(broker: &Broker, config: &BrokerConfig) -> bool {
        if let Some(controlled) = broker.replication.controlled() {
            return controlled.in_sync() >= config.min_in_sync_replicas as usize;
        }
        config.broker_role != BrokerRole::SyncMaster || replicas_wanted(broker, config).is_some()
    }

    /// The code of answers that need not be waited for, if there is one. `wait` is what the message says.
    pub(crate) fn at_once(self, wait: bool) -> Option<i32> {
        match self {
            Self { replicas: Replicas::Group, .. } => None,
            _ if !wait => Some(response::SUCCESS),
            Self { flush: false, replicas: Replicas::None, .. } => Some(response::SUCCESS),
            Self { flush: false, replicas: Replicas::Unavailable, .. } => Some(response::SLAVE_NOT_AVAILABLE),
            _ => None,
        }
    }

    /// Waits until everything below `end` is as wanted, as long as the settings allow.
    pub(crate) async fn wait(self, broker: &Arc<Broker>, config: &BrokerConfig, end: u64) -> Reached {
        let flushed = async {
            if !self.flush {
                return u64::MAX;
            }
            let limit = Duration::from_millis(config.sync_flush_timeout.into());
            match timeout(limit, broker.store.flushed().wait(end)).await {
                Ok(()) => u64::MAX,
                Err(_) => broker.store.flushed().get(),
            }
        };
        let replicated = async {
            if let Replicas::SyncStateSet { at_least } = self.replicas {
                return self.confirmed(broker, config, end, at_least).await;
            }
            let (Replicas::AtLeast(replicas), Some(master)) = (self.replicas, broker.replication.master())
            else {
                return Some(u64::MAX);
            };
            let limit = Duration::from_millis(config.slave_timeout.into());
            Some(match timeout(limit, master.replicated(end, replicas)).await {
                Ok(()) => u64::MAX,
                Err(_) => master.replicated_to(replicas),
            })
        };
        let agreed = async {
            if self.replicas != Replicas::Group {
                return Ok(u64::MAX);
            }
            match timeout(GROUP_TIMEOUT, broker.store.wait_confirmed(end, self.term)).await {
                Ok(confirmed) => confirmed.map(|()| u64::MAX),
                Err(_) => Ok(broker.store.confirmed().get()),
            }
        };
        let (flushed, replicated, agreed) = tokio::join!(flushed, replicated, agreed);
        let is_unavailable = self.replicas == Replicas::Unavailable;
        let agreed = agreed.ok().filter(|_| replicated.is_some());
        Reached { flushed, replicated: replicated.unwrap_or_default(), is_unavailable, agreed }
    }

    /// Waits until the SyncStateSet has everything below `end`, and so many replicas in all. Up to where that is so; `None` if this
    /// broker ceased to be master before.
    async fn confirmed(
        self,
        broker: &Broker,
        config: &BrokerConfig,
        end: u64,
        at_least: usize,
    ) -> Option<u64> {
        let limit = Duration::from_millis(config.slave_timeout.into());
        let all = async {
            broker.store.wait_confirmed(end, self.term).await?;
            if let (Some(controlled), true) = (broker.replication.controlled(), at_least > 1) {
                controlled.replicated(end, at_least).await;
            }
            Ok::<(), AppendError>(())
        };
        match timeout(limit, all).await {
            Ok(Ok(())) => Some(u64::MAX),
            Ok(Err(_)) => None,
            // Less may have been confirmed, but whether by enough replicas is not known.
            Err(_) if at_least > 1 => Some(0),
            Err(_) => Some(broker.store.confirmed().get()),
        }
    }
}

/// How many replicas a send to a synchronous master needs; `None` if there are not enough.
fn replicas_wanted(broker: &Broker, config: &BrokerConfig) -> Option<usize> {
    if !config.enable_slave_acting_master {
        return Some(config.in_sync_replicas as usize);
    }
    let in_sync = 1 + broker.replication.master().map_or(0, HaMaster::in_sync);
    enough(config, in_sync.min(broker.replication.acting.alive()))
}

/// The same when so many replicas live and are in sync.
fn enough(config: &BrokerConfig, there: usize) -> Option<usize> {
    let (wanted, least) = (config.in_sync_replicas as usize, config.min_in_sync_replicas as usize);
    let wanted = match config.enable_auto_in_sync_replicas {
        true => wanted.min(there).max(least),
        false => wanted,
    };
    (wanted <= there).then_some(wanted)
}

/// What was reached in time.
#[derive(Debug)]
pub(crate) struct Reached {
    flushed: u64,
    replicated: u64,
    is_unavailable: bool,
    /// What the Raft group has agreed on; `None` if this broker ceased to be master, so that nobody knows what becomes of it.
    agreed: Option<u64>,
}

impl Reached {
    /// The code of the answer to a message that ends at `end`. The replicas' verdict counts more than the disk's.
    ///
    /// # Errors
    /// The message is in no majority of a Raft group, as far as this broker knows. It may be stored all the same.
    pub(crate) fn code(&self, end: u64) -> Result<i32, Refusal> {
        match self.agreed {
            None => {
                let remark = "service not available now: this broker is no longer master of its set";
                Err(Refusal::new(response::SERVICE_NOT_AVAILABLE, remark))
            }
            Some(agreed) if end > agreed => {
                let remark = format!("no majority of the Raft group has the message after {GROUP_TIMEOUT:?}");
                Err(Refusal::system_error(remark))
            }
            Some(_) => Ok(self.code_of_copies(end)),
        }
    }

    fn code_of_copies(&self, end: u64) -> i32 {
        if self.is_unavailable {
            response::SLAVE_NOT_AVAILABLE
        } else if end > self.replicated {
            response::FLUSH_SLAVE_TIMEOUT
        } else if end > self.flushed {
            response::FLUSH_DISK_TIMEOUT
        } else {
            response::SUCCESS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/spec/05-ha.md` 15.2.
    #[test]
    fn how_many_replicas_are_enough() {
        for (in_sync_replicas, min_in_sync_replicas, auto, alive, in_sync, wanted) in [
            (2, 1, true, 2, 2, Some(2)),
            (2, 1, true, 2, 1, Some(1)),
            (2, 1, true, 1, 2, Some(1)),
            (2, 2, true, 1, 1, None),
            (2, 1, false, 2, 1, None),
            (3, 2, true, 3, 2, Some(2)),
            (3, 1, false, 3, 3, Some(3)),
        ] {
            let config = BrokerConfig {
                in_sync_replicas,
                min_in_sync_replicas,
                enable_auto_in_sync_replicas: auto,
                ..BrokerConfig::default()
            };
            assert_eq!(enough(&config, usize::min(alive, in_sync)), wanted);
        }
    }

    #[test]
    fn the_replicas_verdict_comes_first() {
        let reached = |flushed, replicated, is_unavailable| {
            Reached { flushed, replicated, is_unavailable, agreed: Some(u64::MAX) }.code_of_copies(10)
        };
        assert_eq!(reached(10, 10, false), response::SUCCESS);
        assert_eq!(reached(9, 10, false), response::FLUSH_DISK_TIMEOUT);
        assert_eq!(reached(10, 9, false), response::FLUSH_SLAVE_TIMEOUT);
        assert_eq!(reached(9, 9, false), response::FLUSH_SLAVE_TIMEOUT);
        assert_eq!(reached(9, u64::MAX, true), response::SLAVE_NOT_AVAILABLE);
    }
}
