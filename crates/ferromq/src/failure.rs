//! Why a server does not run, and the status that the process ends with.

use std::io;
use std::path::PathBuf;

use ferromq_broker::config::ConfigError;
use thiserror::Error;

/// Exit statuses are those of RocketMQ (`docs/spec/03-broker.md` 17.1, `docs/spec/06-namesrv.md` 12).
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    BrokerSettings(#[from] ConfigError),
    #[error("can't read the configuration file {}: {source}", file.display())]
    ReadFile { file: PathBuf, source: io::Error },
    #[error("{}: {reason}", file.display())]
    File { file: PathBuf, reason: String },
    #[error("ROCKETMQ_SERIALIZE_TYPE must be JSON or ROCKETMQ, not `{0}`")]
    SerializeType(String),
    #[error("--log-level: {0}")]
    LogLevel(String),
    #[error("the name server can't start: {0}{hint}", hint = hint(.0.to_string()))]
    Namesrv(#[from] ferromq_namesrv::StartError),
    #[error("the broker can't start: {0}{hint}", hint = hint(.0.to_string()))]
    Broker(#[from] ferromq_broker::StartError),
    #[error("the controller can't start: {0}{hint}", hint = hint(.0.to_string()))]
    Controller(#[from] ferromq_controller::StartError),
    #[error("can't start: {0}")]
    System(#[from] io::Error),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::BrokerSettings(error) => error.exit_code(),
            Self::ReadFile { .. } | Self::File { .. } | Self::System(_) => 255,
            Self::SerializeType(_) | Self::LogLevel(_) => 1,
            Self::Namesrv(_) | Self::Broker(_) | Self::Controller(_) => 253,
        }
    }
}

fn hint(error: String) -> &'static str {
    match error {
        error if error.contains("in use") => {
            "\nIs another one running? Otherwise choose another port (listenPort, controllerDLegerPeers, --namesrv-port, --broker-port)."
        }
        _ => "",
    }
}
