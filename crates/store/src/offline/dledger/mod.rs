//! Taking over what a Java broker stored in DLedger mode (`docs/spec/05-ha.md` §10).
//!
//! There each message is an entry of a Raft log, with a header of 48 bytes in front of it, in files of its own; in front of them
//! may be the log of the time before DLedger. [`DledgerSource`] reads both, in order, and changes nothing. [`import`] writes the
//! messages into a new store whose log is one like any other, and compares the two at the end.
//!
//! **Physical offsets change.** Without the headers every message lies elsewhere. So that an offset from before (an offset
//! message id, the offset with which a consumer sends a message back, or a producer ends a transaction) never leads to a
//! *different* message, the new log begins behind the end of the old one: offsets from before lie in front of its begin, like
//! those of messages that have expired, and are refused as theirs are.
//!
//! **Queue offsets stay**, so what consumers have committed stays true. One exception: a broker of 5.3 that was killed can have
//! given some of them twice (`numbering`).

mod entries;
mod error;
mod import;
mod numbering;
mod source;
mod writer;

pub use error::{Damage, ImportError};
pub use import::{ImportOptions, ImportStep, Imported, Uncommitted, import};
pub use numbering::RepeatedOffsets;
pub use source::{DledgerSource, Survey};
