//! Appends 1-KiB records as fast as the store takes them, beside the speed at which this disk takes a file that is written from
//! begin to end. Tells how long appends took: a disk that can't follow must not make single ones wait for long.
//!
//! Both are measured after as much was written as the machine has memory: before, pages come from memory that was never used (on
//! a virtual machine, each has to be provided by the host), and the disk has credit.
//!
//! `cargo run --release -p ferromq-store --example long_run [directory [GiB to measure]]`

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ferromq_protocol::message::{RecordFields, properties};
use ferromq_store::{Store, StoreOptions};

const BATCH: usize = 32;
const QUEUES: usize = 8;

fn main() -> io::Result<()> {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let gib: u64 = std::env::args().nth(2).map_or(8, |gib| gib.parse().expect("a number of GiB"));
    let directory = base.join(format!("ferromq-long-run-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let span = Span { from: memory()? + (2 << 30), bytes: gib << 30 };
    append(&directory.join("store"), &span);
    fs::remove_dir_all(directory.join("store"))?;
    let result = disk(&directory, &span);
    fs::remove_dir_all(&directory)?;
    result
}

/// What is measured: `bytes`, after `from`.
struct Span {
    from: u64,
    bytes: u64,
}

fn memory() -> io::Result<u64> {
    let info = fs::read_to_string("/proc/meminfo")?;
    let kib = info.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    Ok(kib.expect("MemTotal comes first") << 10)
}

fn disk(directory: &Path, span: &Span) -> io::Result<()> {
    let path = directory.join("plain");
    let mut file = File::create(&path)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, span.from + span.bytes)?;
    let block = vec![1u8; 4 << 20];
    let mut written = 0;
    while written < span.from {
        file.write_all(&block)?;
        written += block.len() as u64;
    }
    file.sync_data()?;
    let (begun, from) = (Instant::now(), written);
    while written < from + span.bytes {
        file.write_all(&block)?;
        written += block.len() as u64;
    }
    file.sync_data()?;
    println!("disk_mb_per_second {:.0}", (written - from) as f64 / begun.elapsed().as_secs_f64() / 1e6);
    Ok(())
}

fn append(directory: &Path, span: &Span) {
    let store = Store::open(StoreOptions::new(directory)).expect("the store opens");
    let host: SocketAddr = "127.0.0.1:10911".parse().expect("an address");
    let queues: Vec<_> = (0..QUEUES).map(|queue| store.queue("TopicTest", queue as i32)).collect();
    let mut list = Vec::new();
    for (name, value) in [("UNIQ_KEY", "AC11000100002A9F00000000000000"), ("WAIT", "true"), ("TAGS", "TagA")]
    {
        properties::append(&mut list, name, value);
    }
    let body = [b'x'; 1024];
    let mut batch = store.new_batch();
    // Duration of each measured append, in us.
    let mut times = Vec::new();
    let (mut from, mut end) = (None, 0);
    while end < span.from + span.bytes {
        for queue in queues.iter().cycle().take(BATCH) {
            let fields = RecordFields {
                properties: &list,
                ..RecordFields::new(queue.topic(), queue.queue_id(), host, &body)
            };
            batch.push(queue, &fields).expect("it fits");
        }
        let begun = Instant::now();
        end = store.append(&mut batch).expect("the disk has room");
        let took = begun.elapsed();
        batch.clear();
        if end >= span.from {
            if from.is_none() {
                store.flush_to(end).expect("the disk takes it");
                from = Some((Instant::now(), end));
            }
            times.push(took.as_micros());
        }
    }
    let (begun, from) = from.expect("the measured part was reached");
    store.flush_to(end).expect("the disk takes it");
    let rate = (end - from) as f64 / begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 10_000] as f64 / 1000.0;
    println!("store_mb_per_second {:.0}", rate / 1e6);
    for (name, part) in [("p99", 9_900), ("p999", 9_990), ("p9999", 9_999), ("longest", 10_000)] {
        println!("append_of_{BATCH}_{name}_ms {:.2}", at(part));
    }
    store.shutdown();
}
