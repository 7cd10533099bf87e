//! A replica that a controller gives its role (`docs/spec/05-ha.md` 8).
//!
//! A broker starts without role: it takes no messages, and no name server knows of it. It gets its id, asks who is master, and
//! becomes that or a slave. From then on it does what notices and its own questions say, always by the newest epoch. As master
//! it has the controller change the SyncStateSet.
//!
//! A broker that was master and has started anew, before anybody noticed that it was gone, has a new master elected: its log may have
//! lost its end, so it must not go on in the old epoch, and another one should lead if it can. A controller of RocketMQ does not do that while
//! the broker is alive. There it keeps silent until the controller takes it for dead.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferromq_protocol::body::SyncStateSet;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_replication::SlaveState;
use ferromq_replication::autoswitch::{AutoSwitch, RoleError};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::controllers::{ControllerError, Controllers, SetState, now_ms};
use super::identity::{IdentityError, IdentityFiles};
use super::{Controlled, controllers};
use crate::broker::Broker;
use crate::config::{BrokerConfig, BrokerRole};

/// Pause after something went wrong.
const RETRY: Duration = Duration::from_secs(1);
/// How often a slave without connection to its master looks where that one is.
const LOOK_FOR_MASTER: Duration = Duration::from_secs(1);
/// Least time between two checks of the SyncStateSet.
const BETWEEN_CHECKS: Duration = Duration::from_millis(100);
/// The first check of the SyncStateSet.
const FIRST_CHECK: Duration = Duration::from_secs(3);

/// Why this replica has no role yet, or not the newest one.
#[derive(Debug, Error)]
enum Trouble {
    #[error(transparent)]
    Controller(#[from] ControllerError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Role(#[from] RoleError),
    #[error("the controller has no master for this set yet")]
    NoMaster,
    #[error("this replica was master in epoch {0} and has started anew: it waits for a newer one")]
    SameEpoch(i32),
}

/// Does what the controllers say, for as long as the broker runs.
pub(super) async fn run(broker: Arc<Broker>, controlled: Arc<Controlled>, notices: mpsc::Receiver<SetState>) {
    let controllers = Controllers::of(&broker.config(), controlled.client.clone());
    let mut replica = Replica { broker, controlled, controllers, id: 0, epoch: 0, is_registered: false };
    let mut told = String::new();
    while let Err(trouble) = replica.begin().await {
        let text = trouble.to_string();
        if text != told {
            tracing::warn!("no role yet: {text}");
            told = text;
        }
        sleep(RETRY).await;
    }
    replica.obey(notices).await;
}

struct Replica {
    broker: Arc<Broker>,
    controlled: Arc<Controlled>,
    controllers: Controllers,
    /// Its id in the set; 0 before it has one.
    id: i64,
    /// Of the role that it has.
    epoch: i32,
    is_registered: bool,
}

impl Replica {
    fn ha(&self) -> &AutoSwitch {
        &self.controlled.ha
    }

    fn config(&self) -> Arc<BrokerConfig> {
        self.broker.config()
    }

    /// Gets an id and the first role.
    async fn begin(&mut self) -> Result<(), Trouble> {
        if self.id == 0 {
            self.id = self.identify().await?;
            self.ha().set_id(self.id);
            for address in self.controllers.addresses() {
                let heartbeats =
                    send_heartbeats(self.broker.clone(), self.controlled.clone(), self.id, address.clone());
                self.controlled.tasks.lock().spawn(heartbeats);
            }
        }
        let config = self.config();
        let mut state = self.controllers.register(&config, self.id).await?;
        if let Some(epoch) = self.led_before(&state) {
            state = self.controllers.elect_anew(&config, self.id, epoch).await?;
        } else if state.master.is_none() {
            if self.controlled.is_silent.load(Ordering::Acquire) {
                // It may be that the controller has not buried the master that this replica was.
                let known = self.controllers.replica_info(&config).await?;
                self.led_before(&known).map_or(Ok(()), |epoch| Err(Trouble::SameEpoch(epoch)))?;
                self.controlled.is_silent.store(false, Ordering::Release);
            }
            state = self.controllers.elect(&config, self.id).await?;
        }
        let before = self.led_before(&state);
        self.controlled.is_silent.store(before.is_some(), Ordering::Release);
        match before {
            Some(epoch) => Err(Trouble::SameEpoch(epoch)),
            None if state.master.is_none() => Err(Trouble::NoMaster),
            None => self.take_role(state).await,
        }
    }

    /// The epoch in which the controller has this replica as master, if it was that before it started.
    fn led_before(&self, state: &SetState) -> Option<i32> {
        let is_me = state.master.as_ref().is_some_and(|master| master.id == self.id);
        let known = self.ha().epochs().last().map(|last| last.number);
        (is_me && known.is_some_and(|known| state.epoch <= known)).then_some(state.epoch)
    }

    /// The id in the set, from the file or from the controller.
    async fn identify(&mut self) -> Result<i64, Trouble> {
        let config = self.config();
        let files = IdentityFiles::of(&config);
        if let Some(identity) = files.confirmed()? {
            return Ok(identity.id);
        }
        let (id, check_code) =
            match files.unconfirmed()?.and_then(|asked| Some((asked.id, asked.check_code?))) {
                Some(asked) => asked,
                None => {
                    let id = self.controllers.next_id(&config).await?;
                    let check_code = format!("{};{}", config.broker_address(), now_ms());
                    files.ask(id, &check_code)?;
                    (id, check_code)
                }
            };
        match self.controllers.apply_id(&config, id, &check_code).await {
            Ok(()) => {
                files.confirm(id)?;
                tracing::info!(id, "the controller gave this replica its id");
                Ok(id)
            }
            Err(error) => {
                if error.code() == Some(response::CONTROLLER_BROKER_ID_INVALID) {
                    files.refuse()?;
                }
                Err(error.into())
            }
        }
    }

    /// Becomes what a newer epoch says.
    async fn take_role(&mut self, state: SetState) -> Result<(), Trouble> {
        let Some(master) = state.master else { return Ok(()) };
        if state.epoch <= self.epoch {
            if state.epoch == self.epoch && master.id == self.id {
                let SyncStateSet { sync_state_set, sync_state_set_epoch } = state.sync_state_set;
                self.ha().accept(sync_state_set, sync_state_set_epoch);
            }
            return Ok(());
        }
        if master.id == self.id {
            let SyncStateSet { sync_state_set, sync_state_set_epoch } = state.sync_state_set;
            self.controlled.synchronize(None, &self.broker);
            self.ha().become_master(state.epoch, sync_state_set, sync_state_set_epoch).await?;
            self.controlled.take_over(&self.broker).await;
            self.be(BrokerRole::SyncMaster, 0);
            tracing::info!(epoch = state.epoch, id = self.id, "this replica is master");
        } else {
            self.ha().become_slave(state.epoch).await?;
            self.be(BrokerRole::Slave, self.id);
            tracing::info!(
                epoch = state.epoch,
                id = self.id,
                master = master.address,
                "this replica is a slave"
            );
            self.controlled.synchronize(Some(&master.address), &self.broker);
        }
        self.epoch = state.epoch;
        self.broker.topics.enter_epoch(state.epoch.into());
        if std::mem::replace(&mut self.is_registered, true) {
            self.broker.registration.register_all_soon();
        } else {
            // Only now somebody may know of it.
            self.broker.registration.start(self.broker.clone()).await;
        }
        Ok(())
    }

    /// Puts role and id into the settings, where everything else looks for them.
    fn be(&self, broker_role: BrokerRole, broker_id: i64) {
        let config = BrokerConfig { broker_role, broker_id, ..BrokerConfig::clone(&self.config()) };
        self.broker.reconfigure(config);
    }

    /// Keeps the role that the controllers say.
    async fn obey(&mut self, mut notices: mpsc::Receiver<SetState>) {
        let mut ask_at = Instant::now() + LOOK_FOR_MASTER;
        let mut check_at = Instant::now() + FIRST_CHECK;
        // A controller that refuses is not asked with every message.
        let mut quiet_until = Instant::now();
        loop {
            let controlled = self.controlled.clone();
            tokio::select! {
                Some(state) = notices.recv() => self.take_role_or_tell(state).await,
                () = sleep_until(ask_at) => ask_at = Instant::now() + self.ask().await,
                () = sleep_until(check_at) => check_at = Instant::now() + self.check().await,
                () = controlled.ha.change_due(), if Instant::now() >= quiet_until => {
                    let pause = self.check().await;
                    check_at = check_at.min(Instant::now() + pause);
                    quiet_until = Instant::now() + if pause == RETRY { RETRY } else { BETWEEN_CHECKS };
                }
            }
        }
    }

    async fn take_role_or_tell(&mut self, state: SetState) {
        let epoch = state.epoch;
        if let Err(trouble) = self.take_role(state).await {
            tracing::error!(epoch, "the role of this epoch is not taken up: {trouble}");
        }
    }

    /// Asks the controller for the set's state. Returns how long to wait for the next time.
    async fn ask(&mut self) -> Duration {
        let config = self.config();
        self.ha().forget_expired();
        let state = match self.controllers.replica_info(&config).await {
            Err(error) if error.code() == Some(response::CONTROLLER_BROKER_METADATA_NOT_EXIST) => {
                self.controllers.register(&config, self.id).await
            }
            Ok(state) if state.master.is_none() && state.epoch > self.epoch => {
                self.controllers.elect(&config, self.id).await
            }
            other => other,
        };
        match state {
            Ok(state) => self.take_role_or_tell(state).await,
            Err(error) => {
                tracing::debug!(%error, "the controller does not say the set's state");
                return RETRY;
            }
        }
        if !self.ha().is_master() && self.ha().slave_status().state != SlaveState::Transfer {
            self.broker.registration.register_all_soon();
            return LOOK_FOR_MASTER;
        }
        Duration::from_millis(config.sync_broker_metadata_period)
    }

    /// Has the SyncStateSet changed if it has to be. Returns how long to wait for the next time.
    async fn check(&mut self) -> Duration {
        let config = self.config();
        let period = Duration::from_millis(config.check_sync_state_set_period);
        let Some((sync_state_set, sync_state_set_epoch)) = self.ha().propose() else { return period };
        let proposed = SyncStateSet { sync_state_set, sync_state_set_epoch };
        match self.controllers.alter(&config, self.id, self.epoch, &proposed).await {
            Ok(new) => {
                self.ha().accept(new.sync_state_set, new.sync_state_set_epoch);
                period
            }
            Err(error) if error.is_definite() => {
                tracing::info!(?proposed, %error, "the SyncStateSet is not changed");
                self.ha().refuse();
                if let Ok(state) = self.controllers.replica_info(&config).await {
                    self.take_role_or_tell(state).await;
                }
                RETRY
            }
            Err(error) => {
                tracing::warn!(?proposed, %error, "it is not known whether the SyncStateSet was changed");
                self.ha().doubt();
                RETRY
            }
        }
    }
}

/// Tells one controller again and again that this replica is alive, unless it keeps silent.
async fn send_heartbeats(broker: Arc<Broker>, controlled: Arc<Controlled>, id: i64, address: String) {
    loop {
        let config = broker.config();
        let pause = Duration::from_millis(config.broker_heartbeat_interval.max(100));
        if controlled.is_silent.load(Ordering::Acquire) {
            sleep(pause).await;
            continue;
        }
        let end = broker.store.appended().get();
        // Not the newest epoch, if the log has lost its end.
        let epoch = controlled.ha.epochs().find(end).map_or(-1, |(epoch, _)| epoch.number);
        let heartbeat = RemotingCommand::request(request::BROKER_HEARTBEAT)
            .with("clusterName", &config.broker_cluster_name)
            .with("brokerAddr", config.broker_address())
            .with("brokerName", &config.broker_name)
            .with("brokerId", id)
            .with("epoch", epoch)
            .with("maxOffset", end)
            .with("confirmOffset", broker.store.confirmed().get())
            .with("heartbeatTimeoutMills", config.controller_heart_beat_timeout_mills)
            .with("electionPriority", config.broker_election_priority);
        match controlled.client.connection(&address).await {
            Ok(connection) => connection.oneway(heartbeat),
            Err(error) => tracing::debug!(%error, "no heartbeat to a controller"),
        }
        sleep(pause).await;
    }
}

/// A notice of the controller (code 1008).
pub(crate) fn notice(controlled: &Controlled, command: &RemotingCommand) {
    match controllers::notice(command) {
        Ok(Some(state)) => {
            if controlled.notices.try_send(state).is_err() {
                tracing::warn!("a notice of the controller is left out: this replica will ask");
            }
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "a notice of the controller can't be read"),
    }
}

pub(super) type Tasks = parking_lot::Mutex<JoinSet<()>>;
