//! What replicas say to each other, in every protocol: HA, that of epochs, and Raft. What is understood must survive being written again.

#![no_main]

use std::sync::OnceLock;

use bytes::{Buf, BytesMut};
use ferromq_replication::autoswitch::Epochs;
use ferromq_replication::autoswitch::wire::{FRAME_HEADER_LEN, FrameHeader, MasterHandshake, OfSlave};
use ferromq_replication::classic::wire as classic;
use ferromq_replication::raft::read_frames;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

#[derive(Debug, Arbitrary)]
enum Protocol {
    Classic,
    OfSlave,
    OfMaster,
    EpochFile,
    Raft,
}

fuzz_target!(|input: (Protocol, &[u8])| {
    let (protocol, bytes) = input;
    let mut received = BytesMut::from(bytes);
    match protocol {
        Protocol::Classic => {
            if let Some(header) = classic::FrameHeader::peek(bytes) {
                assert_eq!(header.encode(), bytes[..12]);
            }
            while let Some(report) = classic::take_report(&mut received) {
                assert!(report < 0 || classic::encode_report(report as u64) == report.to_be_bytes());
            }
        }
        Protocol::OfSlave => {
            while let Ok(Some(said)) = OfSlave::take(&mut received) {
                let again = OfSlave::take(&mut BytesMut::from(&*said.encode()));
                assert_eq!(again, Ok(Some(said)));
            }
        }
        Protocol::OfMaster => {
            if let Ok(Some(handshake)) = MasterHandshake::take(&mut received) {
                let again = MasterHandshake::take(&mut BytesMut::from(&*handshake.encode()));
                assert_eq!(again, Ok(Some(handshake.clone())));
                check(&handshake.epochs, handshake.end);
            }
            while let Ok(Some(header)) = FrameHeader::peek(&received) {
                assert_eq!(FrameHeader::peek(&header.encode()), Ok(Some(header)));
                if received.len() < FRAME_HEADER_LEN + header.len {
                    break;
                }
                received.advance(FRAME_HEADER_LEN + header.len);
            }
        }
        Protocol::EpochFile => {
            if let Ok(epochs) =
                std::str::from_utf8(bytes).map_err(drop).and_then(|text| Epochs::parse(text).map_err(drop))
            {
                assert_eq!(Epochs::parse(&epochs.to_text()).as_ref(), Ok(&epochs));
                check(&epochs, u64::MAX / 2);
            }
        }
        Protocol::Raft => {
            static RUNTIME: OnceLock<Runtime> = OnceLock::new();
            let runtime = RUNTIME.get_or_init(|| Builder::new_current_thread().build().expect("a runtime"));
            runtime.block_on(read_frames(bytes));
        }
    }
});

/// Epochs rise, and a log is consistent with itself up to its end.
fn check(epochs: &Epochs, end: u64) {
    let entries = epochs.entries();
    assert!(entries.windows(2).all(|pair| pair[0].number < pair[1].number && pair[0].start < pair[1].start));
    if let Some(last) = epochs.last() {
        assert_eq!(epochs.consistent_point(end, epochs, end), Some(end));
        assert_eq!(epochs.find(last.start), Some((last, u64::MAX)));
    }
}
