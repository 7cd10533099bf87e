//! (to be written)

#[derive(Default)]
pub(crate) struct Registration;
