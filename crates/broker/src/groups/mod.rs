//! Consumer groups of this broker (`docs/spec/03-broker.md` 4.7).
//!
//! [`SubscriptionGroups`] is the table with its file, `requests` what administrators ask.

mod name;
mod requests;
mod table;

pub(crate) use name::check_group;
pub(crate) use requests::route;
pub(crate) use table::SubscriptionGroups;
