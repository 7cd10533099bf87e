//! Bits of a message's `sysFlag` (`docs/spec/02-store.md` §4.3).

/// The body is compressed.
pub const COMPRESSED: i32 = 0x1;
/// The topic uses several tags per message.
pub const MULTI_TAGS: i32 = 0x2;
/// Mask of the transaction type.
pub const TRANSACTION_MASK: i32 = 0xC;
/// Transaction type: not a transaction.
pub const TRANSACTION_NONE: i32 = 0x0;
/// Transaction type: prepared (half) message.
pub const TRANSACTION_PREPARED: i32 = 0x4;
/// Transaction type: committed.
pub const TRANSACTION_COMMIT: i32 = 0x8;
/// Transaction type: rolled back.
pub const TRANSACTION_ROLLBACK: i32 = 0xC;
/// The born host is an IPv6 address.
pub const BORN_HOST_V6: i32 = 0x10;
/// The store host is an IPv6 address.
pub const STORE_HOST_V6: i32 = 0x20;
/// The body must be unwrapped (inner batch).
pub const NEED_UNWRAP: i32 = 0x40;
/// The record is an inner batch.
pub const INNER_BATCH: i32 = 0x80;
/// Mask of the compression type: 0 none given (ZLIB by older clients), `0x100` LZ4, `0x200` ZSTD, `0x300` ZLIB.
pub const COMPRESSION_MASK: i32 = 0x700;
/// Compression type LZ4.
pub const COMPRESSION_LZ4: i32 = 0x100;
/// Compression type ZSTD.
pub const COMPRESSION_ZSTD: i32 = 0x200;
/// Compression type ZLIB.
pub const COMPRESSION_ZLIB: i32 = 0x300;

/// The transaction type of a `sysFlag`.
pub const fn transaction_type(sys_flag: i32) -> i32 {
    sys_flag & TRANSACTION_MASK
}

/// The `sysFlag` with another transaction type.
pub const fn with_transaction_type(sys_flag: i32, transaction_type: i32) -> i32 {
    (sys_flag & !TRANSACTION_MASK) | (transaction_type & TRANSACTION_MASK)
}

/// Whether a message of this `sysFlag` enters its consume queue and takes a queue offset: prepared and rolled back
/// ones do not (`docs/spec/02-store.md` §7.3).
pub const fn takes_queue_offset(sys_flag: i32) -> bool {
    matches!(transaction_type(sys_flag), TRANSACTION_NONE | TRANSACTION_COMMIT)
}
