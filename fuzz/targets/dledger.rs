//! A store of Java's DLedger mode with any damage: it is imported or refused, never panics, and nothing comes of it that was not in it.

#![no_main]

use std::collections::HashSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::OnceLock;

use ferromq_protocol::message::{RecordFields, set_log_fields};
use ferromq_store::offline::dledger::{DledgerSource, ImportOptions, Uncommitted, import};
use ferromq_store::offline::{OfflineStore, Selected, Selection};
use ferromq_store::{DiskUsageSource, StoreOptions};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const FILE: usize = 8 << 10;
const HEADER: usize = 48;
const MESSAGES: usize = 40;

#[derive(Debug, Arbitrary)]
struct Input {
    edits: Vec<Edit>,
    keeps: u8,
    skip_damaged: bool,
    checkpoint: Option<Vec<u8>>,
}

#[derive(Debug, Arbitrary)]
enum Edit {
    Flip {
        at: u16,
        bits: u8,
    },
    /// A number of an entry's header, by its place.
    Header {
        entry: u8,
        at: u8,
        value: [u8; 4],
    },
    Zero {
        at: u16,
        len: u16,
    },
    Move {
        from: u16,
        to: u16,
        len: u16,
    },
    Cut {
        at: u16,
    },
}

/// The entries, where each begins, and the bodies of the messages.
struct Original {
    bytes: Vec<u8>,
    positions: Vec<usize>,
    bodies: HashSet<Vec<u8>>,
}

fn original() -> &'static Original {
    static ORIGINAL: OnceLock<Original> = OnceLock::new();
    ORIGINAL.get_or_init(|| {
        let (mut bytes, mut positions, mut bodies) = (Vec::new(), Vec::new(), HashSet::new());
        for number in 0..MESSAGES {
            let body = format!("message {number} {}", "x".repeat(number * 37 % 600)).into_bytes();
            let host = "127.0.0.1:10911".parse().expect("an address");
            let mut record = Vec::new();
            RecordFields::new("T", (number % 4) as i32, host, &body)
                .encode_into(&mut record)
                .expect("it fits");
            let size = HEADER + record.len();
            let rest = FILE - bytes.len() % FILE;
            if size + 8 > rest {
                bytes.extend_from_slice(&(-1i32).to_be_bytes());
                bytes.extend_from_slice(&(rest as i32).to_be_bytes());
                bytes.resize(bytes.len() / FILE * FILE + FILE, 0);
            }
            let position = bytes.len();
            set_log_fields(&mut record, (number / 4) as i64, (position + HEADER) as u64, 1_700_000_000_000);
            bytes.extend_from_slice(&1i32.to_be_bytes());
            bytes.extend_from_slice(&(size as i32).to_be_bytes());
            bytes.extend_from_slice(&(number as i64).to_be_bytes());
            bytes.extend_from_slice(&1i64.to_be_bytes());
            bytes.extend_from_slice(&(position as i64).to_be_bytes());
            bytes.extend_from_slice(&[0; 12]);
            bytes.extend_from_slice(&(record.len() as i32).to_be_bytes());
            bytes.extend_from_slice(&record);
            positions.push(position);
            bodies.insert(body);
        }
        Original { bytes, positions, bodies }
    })
}

fn damage(bytes: &mut Vec<u8>, positions: &[usize], edits: &[Edit]) {
    for edit in edits.iter().take(8) {
        let len = bytes.len();
        let place = |at: u16| at as usize * len / 65536;
        match edit {
            Edit::Flip { at, bits } if len > 0 => bytes[place(*at)] ^= bits,
            Edit::Header { entry, at, value } => {
                let at = positions[*entry as usize % positions.len()] + *at as usize % (HEADER - 4);
                if let Some(field) = bytes.get_mut(at..at + 4) {
                    field.copy_from_slice(value);
                }
            }
            Edit::Zero { at, len } => {
                bytes[place(*at)..].iter_mut().take(*len as usize).for_each(|byte| *byte = 0)
            }
            Edit::Move { from, to, len: count } => {
                let (from, to) = (place(*from), place(*to));
                let count = (*count as usize).min(len - from.max(to));
                bytes.copy_within(from..from + count, to);
            }
            Edit::Cut { at } => bytes.truncate(place(*at)),
            Edit::Flip { .. } => {}
        }
    }
}

fn write(root: &Path, bytes: &[u8], checkpoint: Option<&[u8]>) {
    let data = root.join("dledger-n0/data");
    fs::create_dir_all(&data).expect("a directory");
    fs::create_dir_all(root.join("config")).expect("a directory");
    for (number, file) in bytes.chunks(FILE).enumerate() {
        let mut file = file.to_vec();
        file.resize(FILE, 0);
        fs::write(data.join(format!("{:020}", number * FILE)), file).expect("a file");
    }
    let whole = format!("endIndex={0}\ncommittedIndex={0}\n", MESSAGES - 1);
    fs::write(root.join("dledger-n0/checkpoint"), checkpoint.unwrap_or(whole.as_bytes())).expect("a file");
}

fuzz_target!(|input: Input| {
    let original = original();
    let mut bytes = original.bytes.clone();
    damage(&mut bytes, &original.positions, &input.edits);
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("source");
    write(&root, &bytes, input.checkpoint.as_deref());
    let Ok(source) = DledgerSource::open(&root, None, &[], None) else { return };
    let Ok(survey) = source.survey(&mut |_| {}) else { return };
    let store = StoreOptions {
        commit_log_file_size: FILE as u32,
        consume_queue_file_size: 200,
        index_slots: 10,
        index_units: 40,
        disk_usage: DiskUsageSource::Fixed(|_| Some(10)),
        delete_when_hours: Vec::new(),
        ..StoreOptions::new(directory.path().join("target"))
    };
    let uncommitted = [Uncommitted::Refuse, Uncommitted::Keep, Uncommitted::Drop][input.keeps as usize % 3];
    let options = ImportOptions { store: store.clone(), uncommitted, skip_damaged: input.skip_damaged };
    if import(&source, &survey, &options, &|_, _, _| {}).is_err() {
        assert!(!store.root.exists(), "something is left of an import that failed");
        return;
    }
    let offline = OfflineStore::open(store).expect("what was imported opens");
    let mut messages = 0;
    let selection = Selection { read_log: true, ..Selection::default() };
    let seen = offline.messages(&selection, &mut |selected| {
        let Selected::Message(record) = selected else { panic!("{selected:?}") };
        assert!(original.bodies.contains(record.body()), "nobody stored it");
        messages += 1;
        ControlFlow::Continue(())
    });
    seen.expect("what was imported can be read");
    assert!(input.edits.len() > 0 || input.checkpoint.is_some() || messages == MESSAGES);
});
