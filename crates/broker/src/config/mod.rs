//! (to be written)

/// Settings.
#[derive(Clone, Debug, Default)]
pub struct BrokerConfig;
