//! (to be written)

#[derive(Default)]
pub(crate) struct ConsumerTable;

#[derive(Default)]
pub(crate) struct ProducerTable;
