//! Recorded exchanges: reading the lines ([`line`]), playing them ([`replay`]), judging what comes ([`answer`],
//! [`check`]), and the tables of what is left out ([`scope`]) or differs on purpose ([`deviations`]).

pub(crate) mod answer;
pub(crate) mod check;
pub(crate) mod deviations;
pub(crate) mod line;
pub(crate) mod replay;
pub(crate) mod scope;
