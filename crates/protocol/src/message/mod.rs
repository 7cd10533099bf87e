//! Messages as they are stored and delivered (`docs/spec/02-store.md` 4).
