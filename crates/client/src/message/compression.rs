//! Bodies that are compressed (`docs/spec/07-client.md` 7.3).

use std::io::{self, Read, Write};

use bytes::Bytes;
use ferromq_protocol::message::sysflag;

/// Most bytes that a body may have when decompressed: far more than brokers accept, and little enough for a consumer
/// not to be brought down by one message.
const DECOMPRESSED_BYTES_MAX: u64 = 256 << 20;

/// How bodies are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// LZ4 frames: quickest.
    Lz4,
    /// Zstandard.
    Zstd,
    /// zlib: what every client of every version understands.
    #[default]
    Zlib,
}

impl Compression {
    /// The bits of a message's `sysFlag` that tell readers.
    pub(crate) fn sys_flag(self) -> i32 {
        sysflag::COMPRESSED
            | match self {
                Self::Lz4 => sysflag::COMPRESSION_LZ4,
                Self::Zstd => sysflag::COMPRESSION_ZSTD,
                Self::Zlib => sysflag::COMPRESSION_ZLIB,
            }
    }

    fn of_sys_flag(sys_flag: i32) -> io::Result<Self> {
        match sys_flag & sysflag::COMPRESSION_MASK {
            // Clients before 5.0 name no type.
            0 | sysflag::COMPRESSION_ZLIB => Ok(Self::Zlib),
            sysflag::COMPRESSION_LZ4 => Ok(Self::Lz4),
            sysflag::COMPRESSION_ZSTD => Ok(Self::Zstd),
            unknown => Err(io::Error::other(format!("unknown compression type 0x{unknown:x}"))),
        }
    }

    /// Compresses a body; `level` goes from 1 (quick) to 9 (small) and means nothing to LZ4.
    pub(crate) fn compress(self, body: &[u8], level: u32) -> io::Result<Vec<u8>> {
        match self {
            Self::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(body)?;
                encoder.finish().map_err(io::Error::other)
            }
            Self::Zstd => zstd::bulk::compress(body, level.min(22) as i32),
            Self::Zlib => {
                let level = flate2::Compression::new(level.min(9));
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(body)?;
                encoder.finish()
            }
        }
    }
}

/// The body of a message with this `sysFlag`, decompressed.
pub(crate) fn decompress(body: &[u8], sys_flag: i32) -> io::Result<Bytes> {
    let mut reader: Box<dyn Read + '_> = match Compression::of_sys_flag(sys_flag)? {
        Compression::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(body)),
        Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(body)?),
        Compression::Zlib => Box::new(flate2::read::ZlibDecoder::new(body)),
    };
    let mut plain = Vec::new();
    reader.by_ref().take(DECOMPRESSED_BYTES_MAX + 1).read_to_end(&mut plain)?;
    if plain.len() as u64 > DECOMPRESSED_BYTES_MAX {
        return Err(io::Error::other(format!(
            "the decompressed body is longer than {DECOMPRESSED_BYTES_MAX} bytes"
        )));
    }
    Ok(plain.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn bodies_of_the_spec_25_7_are_decompressed() {
        let plain = vec![b'a'; 64];
        for (sys_flag, hex) in [
            (0x301, "785e4b4ca40c0000148d1841"),
            (0x1, "785e4b4ca40c0000148d1841"),
            (0x101, "04224d186070730b0000001f6101002750616161616100000000"),
            (0x201, "28b52ffd00584400001061610100930016010000"),
        ] {
            assert_eq!(decompress(&bytes(hex), sys_flag).unwrap(), plain, "sysFlag 0x{sys_flag:x}");
        }
    }

    #[test]
    fn what_is_compressed_comes_back() {
        let plain: Vec<u8> = (0..10_000u32).map(|byte| (byte / 7) as u8).collect();
        for kind in [Compression::Lz4, Compression::Zstd, Compression::Zlib] {
            let packed = kind.compress(&plain, 5).unwrap();
            assert!(packed.len() < plain.len());
            assert_eq!(decompress(&packed, kind.sys_flag()).unwrap(), plain);
        }
    }

    #[test]
    fn damaged_bodies_and_unknown_types_are_errors() {
        assert!(decompress(b"not compressed", 0x301).is_err());
        assert!(decompress(b"x", 0x401).is_err());
    }
}
