//! Stands in for the broker until it is complete.

use std::net::SocketAddr;
use std::sync::Arc;

use ferromq_broker::config::BrokerConfig;

use crate::failure::Failure;

pub(crate) struct RunningBroker {
    config: Arc<BrokerConfig>,
}

impl RunningBroker {
    pub(crate) async fn start(config: BrokerConfig) -> Result<Self, Failure> {
        tracing::error!("this build has no broker yet");
        Ok(Self { config: Arc::new(config) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        ([0, 0, 0, 0], self.config.listen_port as u16).into()
    }

    pub(crate) fn fast_address(&self) -> SocketAddr {
        ([0, 0, 0, 0], self.config.fast_listen_port() as u16).into()
    }

    pub(crate) fn config(&self) -> Arc<BrokerConfig> {
        self.config.clone()
    }

    pub(crate) async fn shutdown(self) {}
}
