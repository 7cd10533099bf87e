//! Controllers (`docs/spec/10-admin.md` 10).

use std::collections::BTreeMap;

use ferromq_protocol::body::{BrokerMemberGroup, BrokerReplicasInfo, ElectMasterResponseBody, ReplicasInfo};
use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::{java_properties, json};

use super::{Admin, NO_TOPIC, body, settings};
use crate::consumer::subscription::now_ms;
use crate::error::{Destination, Error};

/// Who errors say was asked.
const CONTROLLER: &str = "controller";

/// The members of a group of controllers, as one of them knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerMetadata {
    /// Name of the group.
    pub group: String,
    /// Who leads, if anybody does.
    pub leader_id: Option<String>,
    /// The leader's address.
    pub leader_address: Option<String>,
    /// Whether the one that was asked leads.
    pub is_leader: bool,
    /// Id and address of each member, `n0:10.0.0.7:9878;n1:…`.
    pub peers: String,
}

/// A new master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectedMaster {
    /// Its id.
    pub broker_id: Option<i64>,
    /// Its address.
    pub address: Option<String>,
    /// Number of its term.
    pub master_epoch: i32,
    /// Number of the set of replicas that have kept up.
    pub sync_state_set_epoch: i32,
    /// The replicas of the broker set.
    pub members: BrokerMemberGroup,
}

fn controller(address: &str) -> Destination<'_> {
    Destination { broker: CONTROLLER, address, topic: NO_TOPIC }
}

impl Admin {
    /// Who leads a group of controllers, of which any member is asked.
    ///
    /// # Errors
    /// If the controller does not answer.
    pub async fn controller_metadata(&self, address: &str) -> Result<ControllerMetadata, Error> {
        let query = RemotingCommand::request(request::CONTROLLER_GET_METADATA_INFO);
        let answer = self.done(controller(address), query).await?;
        let text = |name| answer.field(name).filter(|text| !text.is_empty()).map(str::to_owned);
        Ok(ControllerMetadata {
            group: text("group").unwrap_or_default(),
            leader_id: text("controllerLeaderId"),
            leader_address: text("controllerLeaderAddress"),
            is_leader: answer.boolean("isLeader"),
            peers: text("peers").unwrap_or_default(),
        })
    }

    /// Address of the leader of a group of controllers, of which any member is asked.
    async fn controller_leader(&self, address: &str) -> Result<String, Error> {
        let metadata = self.controller_metadata(address).await?;
        metadata.leader_address.ok_or_else(|| {
            Error::invalid(format!("controller {address}"), "its group has no leader now: try again soon")
        })
    }

    /// Masters and replicas of broker sets, as the leading controller knows them. Sets that it does not know are left out.
    ///
    /// # Errors
    /// If the controllers have no leader, or it does not answer.
    pub async fn sync_state_sets(
        &self,
        address: &str,
        broker_names: &[&str],
    ) -> Result<BTreeMap<String, ReplicasInfo>, Error> {
        let leader = self.controller_leader(address).await?;
        let query = RemotingCommand::request(request::CONTROLLER_GET_SYNC_STATE_DATA)
            .with_body(json::to_vec(&broker_names));
        let known: BrokerReplicasInfo = self.get(controller(&leader), query).await?;
        Ok(known.replicas_info_table)
    }

    /// Makes a replica the master of its broker set.
    ///
    /// # Errors
    /// [`Error::Refused`] if the old master is alive, or the replica can't become one.
    pub async fn elect_master(
        &self,
        address: &str,
        cluster: &str,
        broker_name: &str,
        broker_id: i64,
    ) -> Result<ElectedMaster, Error> {
        let leader = self.controller_leader(address).await?;
        let to = controller(&leader);
        let elect = RemotingCommand::request(request::CONTROLLER_ELECT_MASTER)
            .with("clusterName", cluster)
            .with("brokerName", broker_name)
            .with("brokerId", broker_id)
            .with("designateElect", true)
            .with("invokeTime", now_ms());
        let answer = self.done(to, elect).await?;
        let elected: ElectMasterResponseBody = body(to, request::CONTROLLER_ELECT_MASTER, &answer)?;
        let malformed = |error| to.malformed("CONTROLLER_ELECT_MASTER", error);
        Ok(ElectedMaster {
            broker_id: answer.number_or_none("masterBrokerId").map_err(malformed)?,
            address: answer.field("masterAddress").map(str::to_owned),
            master_epoch: answer.number("masterEpoch").map_err(malformed)?,
            sync_state_set_epoch: answer.number("syncStateSetEpoch").map_err(malformed)?,
            members: elected.broker_member_group.unwrap_or_default(),
        })
    }

    /// Makes the controllers forget replicas of a broker set: those with the given ids, or all. Replicas that are alive are
    /// forgotten only if `also_alive`.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no such broker, or it is alive.
    pub async fn clean_broker_metadata(
        &self,
        address: &str,
        cluster: &str,
        broker_name: &str,
        broker_ids: Option<&[i64]>,
        also_alive: bool,
    ) -> Result<(), Error> {
        let leader = self.controller_leader(address).await?;
        let ids = broker_ids.map(|ids| ids.iter().map(i64::to_string).collect::<Vec<_>>().join(";"));
        let clean = RemotingCommand::request(request::CLEAN_BROKER_DATA)
            .with("clusterName", cluster)
            .with("brokerName", broker_name)
            .with_some("brokerControllerIdsToClean", ids)
            .with("isCleanLivingBroker", also_alive)
            .with("invokeTime", now_ms());
        self.done(controller(&leader), clean).await.map(drop)
    }

    /// All settings of a controller.
    ///
    /// # Errors
    /// If the controller does not answer.
    pub async fn controller_config(&self, address: &str) -> Result<BTreeMap<String, String>, Error> {
        let to = controller(address);
        let answer = self.done(to, RemotingCommand::request(request::GET_CONTROLLER_CONFIG)).await?;
        settings(to, request::GET_CONTROLLER_CONFIG, &answer)
    }

    /// Changes settings of a running controller.
    ///
    /// # Errors
    /// It refuses values that it can't use.
    pub async fn update_controller_config(
        &self,
        address: &str,
        changes: &[(&str, &str)],
    ) -> Result<(), Error> {
        let update = RemotingCommand::request(request::UPDATE_CONTROLLER_CONFIG)
            .with_body(java_properties::write(changes.iter().copied()));
        self.done(controller(address), update).await.map(drop)
    }
}
