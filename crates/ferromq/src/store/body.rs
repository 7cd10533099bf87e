//! The body of a message, for people and for other programs.

use std::borrow::Cow;
use std::io::{self, Read};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferromq_protocol::message::{RecordView, sysflag};

/// Longest body that is decompressed: far more than any client accepts, and little enough for any machine.
const DECOMPRESSED_MAX: u64 = 256 << 20;

/// A body as text, or as base64.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) encoding: &'static str,
    pub(super) text: String,
    /// How the bytes of `text` are compressed, if they are.
    pub(super) compression: Option<&'static str>,
    /// Why they could not be decompressed.
    pub(super) error: Option<String>,
}

impl Body {
    pub(super) fn of(record: &RecordView<'_>, decompress: bool) -> Body {
        let mut compression = compression(record.sys_flag());
        let mut bytes = Cow::Borrowed(record.body());
        let mut error = None;
        if let Some(name) = compression.filter(|_| decompress) {
            match decompressed(record.body(), name) {
                Ok(plain) => (bytes, compression) = (Cow::Owned(plain), None),
                Err(reason) => error = Some(reason.to_string()),
            }
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => Body { encoding: "text", text: text.to_owned(), compression, error },
            Err(_) => Body { encoding: "base64", text: STANDARD.encode(&bytes), compression, error },
        }
    }
}

/// How a body is compressed (`docs/spec/02-store.md` §4.3).
fn compression(sys_flag: i32) -> Option<&'static str> {
    if sys_flag & sysflag::COMPRESSED == 0 {
        return None;
    }
    Some(match sys_flag & sysflag::COMPRESSION_MASK {
        sysflag::COMPRESSION_LZ4 => "lz4",
        sysflag::COMPRESSION_ZSTD => "zstd",
        _ => "zlib",
    })
}

fn decompressed(body: &[u8], compression: &str) -> io::Result<Vec<u8>> {
    let mut reader: Box<dyn Read + '_> = match compression {
        "lz4" => Box::new(lz4_flex::frame::FrameDecoder::new(body)),
        "zstd" => Box::new(zstd::stream::read::Decoder::with_buffer(body)?),
        _ => Box::new(flate2::read::ZlibDecoder::new(body)),
    };
    let mut plain = Vec::new();
    reader.by_ref().take(DECOMPRESSED_MAX).read_to_end(&mut plain)?;
    if plain.len() as u64 == DECOMPRESSED_MAX {
        return Err(io::Error::other("the decompressed body is longer than 256 MiB"));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use ferromq_protocol::message::RecordFields;

    use super::*;

    fn body(bytes: &[u8], sys_flag: i32, decompress: bool) -> Body {
        let host = "10.0.0.1:1".parse().expect("an address");
        let fields = RecordFields {
            topic: "T",
            queue_id: 0,
            flag: 0,
            sys_flag,
            born_timestamp: 0,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: bytes,
            properties: b"",
        };
        let mut record = Vec::new();
        fields.encode_into(&mut record).expect("a small record");
        Body::of(&RecordView::parse(&record).expect("a record"), decompress)
    }

    fn plain(text: &str) -> Body {
        Body { encoding: "text", text: text.to_owned(), compression: None, error: None }
    }

    #[test]
    fn text_is_text_and_the_rest_is_base64() {
        assert_eq!(body("grüße".as_bytes(), 0, false), plain("grüße"));
        let binary = body(&[0xff, 0, 1], 0, true);
        assert_eq!((binary.encoding, binary.text.as_str()), ("base64", "/wAB"));
    }

    #[test]
    fn each_compression_is_undone_when_asked_for() {
        let text = "hello ".repeat(100);
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        zlib.write_all(text.as_bytes()).expect("in memory");
        let zlib = zlib.finish().expect("in memory");
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(text.as_bytes()).expect("in memory");
        let lz4 = lz4.finish().expect("in memory");
        let zstd = zstd::encode_all(text.as_bytes(), 3).expect("in memory");
        // Older clients give no type.
        for (bytes, kind, name) in [
            (&zlib, 0, "zlib"),
            (&zlib, sysflag::COMPRESSION_ZLIB, "zlib"),
            (&lz4, sysflag::COMPRESSION_LZ4, "lz4"),
            (&zstd, sysflag::COMPRESSION_ZSTD, "zstd"),
        ] {
            let sys_flag = sysflag::COMPRESSED | kind;
            assert_eq!(body(bytes, sys_flag, true), plain(&text), "{name}");
            assert_eq!(body(bytes, sys_flag, false).compression, Some(name));
            let cut = body(&bytes[..bytes.len() / 2], sys_flag, true);
            assert!(cut.error.is_some() && cut.compression == Some(name), "{name}");
        }
    }
}
