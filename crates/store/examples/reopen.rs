//! How long a store takes to open: after a clean stop, after a kill, and when queues and index have to be laid anew from the log;
//! beside the speed at which this disk gives the log's files. One figure a line.
//!
//! `cargo run --release -p ferromq-store --example reopen [directory [GiB]]`

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ferromq_protocol::message::{RecordFields, properties};
use ferromq_store::{Store, StoreOptions};

const BODY: usize = 1024;
const BATCH: u64 = 32;
const QUEUES: u64 = 8;

fn main() -> io::Result<()> {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, std::path::PathBuf::from);
    let gib: u64 = std::env::args().nth(2).map_or(4, |gib| gib.parse().expect("a number of GiB"));
    let directory = base.join(format!("ferromq-reopen-{}", std::process::id()));
    let result = measure(&directory, gib << 30);
    fs::remove_dir_all(&directory)?;
    result
}

fn measure(directory: &Path, bytes: u64) -> io::Result<()> {
    let store = open(directory, "empty");
    let begun = Instant::now();
    let records = fill(&store, bytes);
    let seconds = begun.elapsed().as_secs_f64();
    println!("records {records}\nfill_mb_per_second {:.0}", bytes as f64 / seconds / 1e6);
    store.shutdown();
    drop(store);

    let store = open(directory, "clean");
    append(&store, 0);
    drop(store);
    open(directory, "killed").shutdown();

    drop_from_memory(directory)?;
    let begun = Instant::now();
    let read = read_log(directory)?;
    let disk = read as f64 / begun.elapsed().as_secs_f64();
    println!("disk_mb_per_second {:.0}", disk / 1e6);

    for (what, cold) in [("warm", false), ("cold", true)] {
        for part in ["consumequeue", "index", "ferromq.marks", "ferromq.queues"] {
            let path = directory.join(part);
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        if cold {
            drop_from_memory(directory)?;
        }
        let begun = Instant::now();
        let store = open(directory, &format!("rebuild_{what}"));
        let speed = bytes as f64 / begun.elapsed().as_secs_f64();
        println!("rebuild_{what}_mb_per_second {:.0}", speed / 1e6);
        store.shutdown();
    }
    Ok(())
}

fn open(directory: &Path, what: &str) -> Arc<Store> {
    let begun = Instant::now();
    let store = Store::open(StoreOptions::new(directory)).expect("the store opens");
    println!("{what}_open_seconds {:.3}", begun.elapsed().as_secs_f64());
    store
}

fn fill(store: &Store, bytes: u64) -> u64 {
    let mut number = 0;
    while store.appended().get() < bytes {
        append(store, number);
        number += BATCH;
    }
    store.dispatch_to_confirmed();
    number
}

fn append(store: &Store, first: u64) {
    let host: SocketAddr = "127.0.0.1:10911".parse().expect("an address");
    let body = [b'x'; BODY];
    let mut batch = store.new_batch();
    for number in first..first + BATCH {
        let mut list = Vec::new();
        for (name, value) in [
            ("KEYS", number.to_string().as_str()),
            ("UNIQ_KEY", &format!("AC11000100002A9F{number:016X}")),
            ("WAIT", "true"),
            ("TAGS", "TagA"),
        ] {
            properties::append(&mut list, name, value);
        }
        let queue = store.queue("TopicTest", (number % QUEUES) as i32);
        let fields = RecordFields {
            properties: &list,
            ..RecordFields::new(queue.topic(), queue.queue_id(), host, &body)
        };
        batch.push(&queue, &fields).expect("it fits");
    }
    store.append(&mut batch).expect("the disk has room");
}

fn log_files(directory: &Path) -> io::Result<Vec<File>> {
    let mut files: Vec<_> = fs::read_dir(directory.join("commitlog"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    files.sort();
    files.iter().map(File::open).collect()
}

/// Asks the system to forget the log's pages.
fn drop_from_memory(directory: &Path) -> io::Result<()> {
    for file in log_files(directory)? {
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}

fn read_log(directory: &Path) -> io::Result<u64> {
    let mut buffer = vec![0; 4 << 20];
    let mut total = 0;
    for mut file in log_files(directory)? {
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                count => total += count as u64,
            }
        }
    }
    Ok(total)
}
