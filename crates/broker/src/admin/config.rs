//! Reading and changing the settings (`docs/spec/10-admin.md` 5).

use std::sync::Arc;

use ferromq_protocol::body::DataVersion;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::json;
use ferromq_remoting::Connection;
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::answer::{Answer, Refusal};
use crate::broker::Broker;
use crate::config::{BrokerConfig, UpdateError};

/// Which state of the settings is in force, as clients are told. Whoever changes settings holds the lock, so that no
/// change is lost to another one.
#[derive(Debug)]
pub(crate) struct ConfigVersion(pub(crate) Mutex<DataVersion>);

impl Default for ConfigVersion {
    fn default() -> Self {
        Self(Mutex::new(DataVersion::new(Timestamp::now().as_millisecond())))
    }
}

/// GET_BROKER_CONFIG: all settings as lines `key=value`, sorted by key.
pub(super) fn get_broker_config(broker: &Arc<Broker>, _: &Arc<Connection>, _: &RemotingCommand) -> Answer {
    let version = json::to_string(&*broker.config_version.0.lock());
    Ok(RemotingCommand::success().with("version", version).with_body(lines(&broker.config())))
}

/// What the client's parser of properties gives back as it was: it takes a backslash for the begin of an escape.
fn lines(config: &BrokerConfig) -> String {
    config.entries().iter().map(|(key, value)| format!("{key}={}\n", value.replace('\\', "\\\\"))).collect()
}

/// UPDATE_BROKER_CONFIG. No body changes nothing and succeeds, as do unknown keys; what RocketMQ accepts without effect
/// besides (a value that can't be read, a setting that counts at the start only) is refused with its reason.
pub(super) fn update_broker_config(
    broker: &Arc<Broker>,
    _: &Arc<Connection>,
    request: &RemotingCommand,
) -> Answer {
    let mut version = broker.config_version.0.lock();
    let before = broker.config();
    let updated = before.update(&request.body)?;
    let changed = changed_keys(&before, &updated).join(", ");
    if !changed.is_empty() {
        updated.save(&before).map_err(|error| Refusal::system_error(error.to_string()))?;
        let permission_changed = updated.broker_permission != before.broker_permission;
        broker.reconfigure(updated);
        version.next_version(0, Timestamp::now().as_millisecond());
        broker.registration.reconfigured();
        tracing::info!(changed, "an administrator changed settings");
        if permission_changed {
            // It is part of what the name servers are told of each topic.
            broker.topics.bump_data_version();
        }
    }
    Ok(RemotingCommand::success())
}

/// Which settings differ; not their values, which may be secrets.
fn changed_keys<'c>(before: &BrokerConfig, after: &'c BrokerConfig) -> Vec<&'c str> {
    let before = before.entries();
    after.entries().into_iter().filter(|entry| !before.contains(entry)).map(|(key, _)| key).collect()
}

impl From<UpdateError> for Refusal {
    fn from(error: UpdateError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_lines_that_java_can_parse() {
        let mut config = BrokerConfig::default();
        config.set("brokerName", r"a\b").unwrap();
        let text = lines(&config);
        assert!(text.contains("\nbrokerName=a\\\\b\n"), "{text}");
        assert!(text.contains("\nlistenPort=10911\n"));
        let keys: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        assert!(keys.is_sorted());
    }
}
