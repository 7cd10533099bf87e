//! A slave whose master is not to be trusted, in both protocols: it appends whole records only, and loses nothing that was confirmed.

#![no_main]

use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use ferromq_protocol::message::{BLANK_MAGIC, RecordFields, RecordView, encode_blank, set_log_fields};
use ferromq_replication::autoswitch::wire::{FrameHeader, MasterHandshake};
use ferromq_replication::autoswitch::{AutoSwitch, AutoSwitchSettings, Epoch, EpochFile, Epochs};
use ferromq_replication::classic::{HaSettings, HaSlave, wire as classic};
use ferromq_replication::{LogBounds, ReplicaLog};
use ferromq_store::ReplicaError;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

const FILE: usize = 4096;
/// Records of the master's log, and how many of them the slave has.
const RECORDS: usize = 24;
const KNOWN: usize = 8;
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Arbitrary)]
struct Input {
    with_epochs: bool,
    said: Vec<Said>,
}

#[derive(Debug, Arbitrary)]
enum Said {
    Raw(Vec<u8>),
    /// Bytes of the log from where the slave's ends, so many further or back.
    Log {
        skip: i16,
        len: u16,
        flip: Option<(u16, u8)>,
        epoch: u8,
    },
    /// Any bytes in their place.
    Bytes {
        skip: i16,
        bytes: Vec<u8>,
    },
    Handshake {
        end: u16,
        epochs: Vec<(u8, u16)>,
    },
    Heartbeat {
        skip: i16,
        confirmed: u16,
    },
}

/// A log in memory.
struct Memory(std::sync::Mutex<State>);

struct State {
    bytes: Vec<u8>,
    confirmed: u64,
}

impl Memory {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("nobody has panicked")
    }
}

impl ReplicaLog for Memory {
    fn bounds(&self) -> LogBounds {
        let state = self.state();
        let end = state.bytes.len() as u64;
        LogBounds { begin: 0, confirmed: state.confirmed, flushed: end, end }
    }

    fn file_size(&self) -> u64 {
        FILE as u64
    }

    fn wake_at_end(&self, _: u64, _: Waker) {}

    fn read(&self, offset: u64, len_max: usize) -> Result<Bytes, ReplicaError> {
        let state = self.state();
        let end = state.bytes.len() as u64;
        if offset > end {
            return Err(ReplicaError::Outside { offset, begin: 0, end });
        }
        let from = offset as usize;
        let to = state.bytes.len().min(from.saturating_add(len_max)).min((from / FILE + 1) * FILE);
        Ok(Bytes::copy_from_slice(&state.bytes[from..to]))
    }

    fn append(&self, offset: u64, bytes: &[u8]) -> Result<(), ReplicaError> {
        let mut state = self.state();
        assert_eq!(offset, state.bytes.len() as u64);
        assert!(offset as usize % FILE + bytes.len() <= FILE, "over the end of a file");
        state.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush_to(&self, _: u64) -> Result<(), ReplicaError> {
        Ok(())
    }

    fn truncate(&self, offset: u64) -> Result<(), ReplicaError> {
        let mut state = self.state();
        assert!(state.confirmed <= offset && offset <= state.bytes.len() as u64);
        state.bytes.truncate(offset as usize);
        Ok(())
    }

    fn confirm(&self, offset: u64) {
        let mut state = self.state();
        let end = state.bytes.len() as u64;
        state.confirmed = state.confirmed.max(offset.min(end));
    }

    fn lead(&self) -> Result<(), ReplicaError> {
        Ok(())
    }

    fn follow(&self) {}
}

/// The master's log, and where the slave's ends.
fn log() -> &'static (Vec<u8>, usize) {
    static LOG: OnceLock<(Vec<u8>, usize)> = OnceLock::new();
    LOG.get_or_init(|| {
        let (mut log, mut known) = (Vec::new(), 0);
        for number in 0..RECORDS {
            let body = vec![b'a' + number as u8; number * 61 % 700];
            let host = "127.0.0.1:10911".parse().expect("an address");
            let mut record = Vec::new();
            RecordFields::new("T", 0, host, &body).encode_into(&mut record).expect("it fits");
            let rest = FILE - log.len() % FILE;
            if record.len() + 8 > rest {
                log.extend_from_slice(&encode_blank(rest as u32));
                log.resize(log.len() / FILE * FILE + FILE, 0);
            }
            set_log_fields(&mut record, number as i64, log.len() as u64, 1_700_000_000_000 + number as i64);
            log.extend_from_slice(&record);
            if number + 1 == KNOWN {
                known = log.len();
            }
        }
        (log, known)
    })
}

fn bytes_of(input: &Input) -> Vec<u8> {
    let (log, known) = log();
    let mut out = Vec::new();
    let place = |skip: i16| (*known as i64 + i64::from(skip)).clamp(0, log.len() as i64) as usize;
    let mut put = |offset: usize, body: &[u8], epoch: i32, confirmed: u64, out: &mut Vec<u8>| {
        match input.with_epochs {
            true => {
                let epoch = Epoch { number: epoch, start: if epoch > 1 { *known as u64 } else { 0 } };
                let header = FrameHeader { len: body.len(), offset: Some(offset as u64), epoch, confirmed };
                out.extend_from_slice(&header.encode());
            }
            false => {
                let header = classic::FrameHeader { offset: offset as i64, len: body.len() as i32 };
                out.extend_from_slice(&header.encode());
            }
        }
        out.extend_from_slice(body);
    };
    for said in input.said.iter().take(16) {
        match said {
            Said::Raw(bytes) => out.extend_from_slice(bytes),
            Said::Log { skip, len, flip, epoch } => {
                let from = place(*skip);
                let to = (from + *len as usize).min(log.len()).min((from / FILE + 1) * FILE);
                let mut body = log[from..to].to_vec();
                if let Some((at, bits)) = flip
                    && let Some(byte) = body.get_mut(*at as usize)
                {
                    *byte ^= bits;
                }
                put(from, &body, (*epoch).into(), to as u64, &mut out);
            }
            Said::Bytes { skip, bytes } => put(place(*skip), bytes, 1, u64::MAX >> 1, &mut out),
            Said::Handshake { end, epochs } => {
                let entry =
                    |(number, start): &(u8, u16)| Epoch { number: (*number).into(), start: (*start).into() };
                let epochs = Epochs::new(epochs.iter().map(entry));
                out.extend_from_slice(&MasterHandshake { end: (*end).into(), epochs }.encode());
            }
            Said::Heartbeat { skip, confirmed } => put(place(*skip), &[], 1, (*confirmed).into(), &mut out),
        }
    }
    out
}

fn settings() -> HaSettings {
    HaSettings { reconnect_pause: Duration::from_secs(60), ..HaSettings::default() }
}

/// Says all of it to the slave that connects, and waits until that has had enough.
async fn speak(listener: &TcpListener, bytes: &[u8]) {
    let (mut stream, _) =
        timeout(PATIENCE, listener.accept()).await.expect("the slave comes").expect("a connection");
    let mut greeting = [0; 8];
    timeout(PATIENCE, stream.read_exact(&mut greeting)).await.expect("it speaks first").expect("a report");
    // It may have had enough before.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let _ = timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await.expect("it hangs up");
}

fuzz_target!(|input: Input| {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime =
        RUNTIME.get_or_init(|| Builder::new_current_thread().enable_all().build().expect("a runtime"));
    let (master, known) = log();
    let confirmed = if input.with_epochs { known / 2 } else { *known } as u64;
    let memory =
        Arc::new(Memory(std::sync::Mutex::new(State { bytes: master[..*known].to_vec(), confirmed })));
    let bytes = bytes_of(&input);
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        if input.with_epochs {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("epochs");
            std::fs::write(&path, Epochs::new([Epoch { number: 1, start: 0 }]).to_text()).expect("a file");
            let epochs = EpochFile::open(path).expect("an epoch file");
            let port = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let settings = AutoSwitchSettings {
                ha: settings(),
                lag_max: Duration::from_secs(15),
                from_last_file: false,
                is_learner: false,
            };
            let slave = AutoSwitch::start(memory.clone(), epochs, port, settings).expect("it starts");
            slave.set_id(2);
            slave.become_slave(1).await.expect("a slave");
            slave.set_master(address);
            speak(&listener, &bytes).await;
            slave.stop().await;
        } else {
            let slave = HaSlave::start(memory.clone(), settings(), Box::new(|| Box::pin(async { None })));
            slave.set_master(Some(address));
            speak(&listener, &bytes).await;
            slave.stop().await;
        }
    });
    check(&memory.state().bytes, &master[..confirmed as usize], input.with_epochs);
});

/// The log begins with what was confirmed, and consists of whole records.
fn check(log: &[u8], confirmed: &[u8], may_be_cut: bool) {
    assert!(log.starts_with(confirmed));
    let mut at = 0;
    while at < log.len() {
        let file_end = (at / FILE + 1) * FILE;
        match RecordView::parse(&log[at..file_end.min(log.len())]) {
            Ok(record) => {
                record.check(at as u64).expect("a sound record");
                at += record.size();
            }
            Err(_) if log[at..].get(4..8) == Some(&BLANK_MAGIC.to_be_bytes()) => at = file_end,
            // What its master says can make a slave cut its log anywhere behind what is confirmed.
            Err(error) => {
                let (ours, _) = self::log();
                return assert!(
                    may_be_cut && ours[at..].starts_with(&log[at..]),
                    "no record at {at}: {error}"
                );
            }
        }
    }
}
