//! The controllers, as a broker asks them (`docs/spec/05-ha.md` 7.3).

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ferromq_protocol::body::SyncStateSet;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::{FieldError, RemotingCommand};
use ferromq_protocol::json::{self, JsonError};
use ferromq_remoting::{Client, InvokeError};
use thiserror::Error;

use crate::config::BrokerConfig;

/// How long a controller may take for anything.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Why a controller did not do what it was asked.
#[derive(Debug, Error)]
pub(super) enum ControllerError {
    #[error("no controller of {0} says who leads")]
    NoLeader(String),
    #[error(transparent)]
    Invoke(#[from] InvokeError),
    /// It has refused, and said so.
    #[error("the controller answers {code}: {remark}")]
    Refused { code: i32, remark: String },
    #[error("the controller's answer can't be read: {0}")]
    Field(#[from] FieldError),
    #[error("the controller's answer can't be read: {0}")]
    Body(#[from] JsonError),
}

impl ControllerError {
    /// The code of a refusal.
    pub(super) fn code(&self) -> Option<i32> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The leading controller was asked and has refused: nothing was or will be done.
    pub(super) fn is_definite(&self) -> bool {
        let by_leader = |code| {
            (response::CONTROLLER_FENCED_MASTER_EPOCH..=response::CONTROLLER_BROKER_ID_INVALID)
                .contains(&code)
                && code != response::CONTROLLER_NOT_LEADER
        };
        self.code().is_some_and(by_leader)
    }
}

/// The master of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Master {
    pub(super) id: i64,
    pub(super) address: String,
}

/// What a controller says of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SetState {
    pub(super) master: Option<Master>,
    pub(super) epoch: i32,
    pub(super) sync_state_set: SyncStateSet,
}

/// The group of controllers.
#[derive(Debug)]
pub(super) struct Controllers {
    client: Arc<Client>,
    addresses: Vec<String>,
    leader: Option<String>,
}

impl Controllers {
    pub(super) fn of(config: &BrokerConfig, client: Arc<Client>) -> Self {
        let addresses =
            config.controller_addr.split(';').map(str::trim).filter(|address| !address.is_empty());
        Self { client, addresses: addresses.map(str::to_owned).collect(), leader: None }
    }

    /// All of them.
    pub(super) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Looks for the leading one, if none is known.
    async fn leader(&mut self) -> Result<String, ControllerError> {
        if let Some(leader) = &self.leader {
            return Ok(leader.clone());
        }
        for address in &self.addresses {
            let question = RemotingCommand::request(request::CONTROLLER_GET_METADATA_INFO);
            let Ok(answer) = self.client.invoke(address, question, TIMEOUT).await else { continue };
            if let Some(leader) = answer.field("controllerLeaderAddress").filter(|leader| !leader.is_empty())
            {
                tracing::debug!(leader, "leading controller");
                self.leader = Some(leader.to_owned());
                return Ok(leader.to_owned());
            }
        }
        Err(ControllerError::NoLeader(self.addresses.join(";")))
    }

    /// Asks the leading controller. `accepted` are the codes that are no refusal.
    async fn ask(
        &mut self,
        command: RemotingCommand,
        accepted: &[i32],
    ) -> Result<RemotingCommand, ControllerError> {
        let leader = self.leader().await?;
        let answer = self.client.invoke(&leader, command, TIMEOUT).await;
        match answer {
            Ok(answer) if accepted.contains(&answer.code) => Ok(answer),
            Ok(answer) => {
                let error =
                    ControllerError::Refused { code: answer.code, remark: answer.remark.unwrap_or_default() };
                if !error.is_definite() {
                    self.leader = None;
                }
                Err(error)
            }
            Err(error) => {
                // It may be gone: the others know who leads now.
                self.leader = None;
                Err(error.into())
            }
        }
    }

    /// The id that the set's next replica gets.
    pub(super) async fn next_id(&mut self, config: &BrokerConfig) -> Result<i64, ControllerError> {
        let command = of_set(request::CONTROLLER_GET_NEXT_BROKER_ID, config);
        Ok(self.ask(command, &[response::SUCCESS]).await?.number("nextBrokerId")?)
    }

    /// Takes an id.
    pub(super) async fn apply_id(
        &mut self,
        config: &BrokerConfig,
        id: i64,
        check_code: &str,
    ) -> Result<(), ControllerError> {
        let command = of_set(request::CONTROLLER_APPLY_BROKER_ID, config)
            .with("appliedBrokerId", id)
            .with("registerCheckCode", check_code);
        self.ask(command, &[response::SUCCESS]).await.map(drop)
    }

    /// Says where this replica is, and asks for the set's master.
    pub(super) async fn register(
        &mut self,
        config: &BrokerConfig,
        id: i64,
    ) -> Result<SetState, ControllerError> {
        let command = of_set(request::CONTROLLER_REGISTER_BROKER, config)
            .with("brokerId", id)
            .with("brokerAddress", config.broker_address())
            .with("invokeTime", now_ms());
        set_state(&self.ask(command, &[response::SUCCESS]).await?)
    }

    /// The set's state.
    pub(super) async fn replica_info(&mut self, config: &BrokerConfig) -> Result<SetState, ControllerError> {
        let command = RemotingCommand::request(request::CONTROLLER_GET_REPLICA_INFO)
            .with("brokerName", &config.broker_name);
        set_state(&self.ask(command, &[response::SUCCESS]).await?)
    }

    /// Asks for an election; a master that is alive stays.
    pub(super) async fn elect(
        &mut self,
        config: &BrokerConfig,
        id: i64,
    ) -> Result<SetState, ControllerError> {
        self.have_elected(election(config, id)).await
    }

    /// Asks for an election because this replica, which was master in `epoch`, has started anew since. A controller of RocketMQ
    /// understands that as [`elect`](Self::elect).
    pub(super) async fn elect_anew(
        &mut self,
        config: &BrokerConfig,
        id: i64,
        epoch: i32,
    ) -> Result<SetState, ControllerError> {
        self.have_elected(election(config, id).with("masterEpoch", epoch)).await
    }

    async fn have_elected(&mut self, command: RemotingCommand) -> Result<SetState, ControllerError> {
        let answer = self.ask(command, &[response::SUCCESS, response::CONTROLLER_MASTER_STILL_EXIST]).await?;
        let mut state = set_state(&answer)?;
        // The body has no epoch of its own.
        state.sync_state_set.sync_state_set_epoch = answer.number("syncStateSetEpoch")?;
        Ok(state)
    }

    /// Proposes another SyncStateSet; `proposed` has the epoch of the one that it replaces. Returns the new one.
    pub(super) async fn alter(
        &mut self,
        config: &BrokerConfig,
        id: i64,
        epoch: i32,
        proposed: &SyncStateSet,
    ) -> Result<SyncStateSet, ControllerError> {
        let command = RemotingCommand::request(request::CONTROLLER_ALTER_SYNC_STATE_SET)
            .with("brokerName", &config.broker_name)
            .with("masterBrokerId", id)
            .with("masterEpoch", epoch)
            .with("invokeTime", now_ms())
            .with_body(json::to_vec(proposed));
        Ok(json::from_slice(&self.ask(command, &[response::SUCCESS]).await?.body)?)
    }
}

fn election(config: &BrokerConfig, id: i64) -> RemotingCommand {
    of_set(request::CONTROLLER_ELECT_MASTER, config)
        .with("brokerId", id)
        .with("designateElect", false)
        .with("invokeTime", now_ms())
}

fn of_set(code: i32, config: &BrokerConfig) -> RemotingCommand {
    RemotingCommand::request(code)
        .with("clusterName", &config.broker_cluster_name)
        .with("brokerName", &config.broker_name)
}

fn set_state(answer: &RemotingCommand) -> Result<SetState, ControllerError> {
    let id: Option<i64> = answer.number_or_none("masterBrokerId")?;
    let address = answer.field("masterAddress").filter(|address| !address.is_empty());
    let master = id.zip(address).map(|(id, address)| Master { id, address: address.to_owned() });
    let epoch = answer.number_or_none("masterEpoch")?.unwrap_or(0);
    let sync_state_set =
        if answer.body.is_empty() { SyncStateSet::default() } else { json::from_slice(&answer.body)? };
    Ok(SetState { master, epoch, sync_state_set })
}

/// What a notice (code 1008) says; `None` if it names no master.
pub(super) fn notice(command: &RemotingCommand) -> Result<Option<SetState>, ControllerError> {
    let mut state = set_state(command)?;
    if let Some(epoch) = command.number_or_none("syncStateSetEpoch")? {
        state.sync_state_set.sync_state_set_epoch = epoch;
    }
    Ok(state.master.is_some().then_some(state))
}

/// ms since 1970.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
