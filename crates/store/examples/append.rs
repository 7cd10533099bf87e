//! How fast the store appends: records per second for 128-byte and 1-KiB bodies, beside what the machine needs at least for the
//! same work (CRC of the body, one copy into memory that is there). Own CPU is that of the threads that append, per record: what is
//! left between it and the time that a record takes they waited for a processor. CPU is that of the whole process: appending, dispatching,
//! indexing, faulting pages in, flushing.
//!
//! `cargo run --release -p ferromq-store --example append [directory [part of a row's name]]`

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferromq_protocol::message::{RecordFields, crc32, properties};
use ferromq_store::{FlushDiskType, Store, StoreOptions};
use rustix::time::{ClockId, clock_gettime};

const SECONDS: u64 = 3;
/// What is appended to files that were warmed before.
const WARMED_BYTES: u64 = 768 << 20;

struct Load {
    body: Vec<u8>,
    properties: Vec<u8>,
    batch: usize,
    threads: usize,
    queues: i32,
    until: Until,
}

/// When a load ends.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    /// After [`SECONDS`]; includes bringing in memory for the log, and the disk.
    Time,
    /// After [`WARMED_BYTES`], into files that were faulted in before (`warmMapedFileEnable`).
    Warmed,
}

fn main() {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, std::path::PathBuf::from);
    let only = std::env::args().nth(2).unwrap_or_default();
    // All of it stays until the end: what is deleted leaves memory that a virtual machine may give back to its host, and getting it again
    // takes longer than what is measured.
    let directory = base.join(format!("ferromq-append-{}", std::process::id()));
    println!(
        "{:<46} {:>11} {:>11} {:>10} {:>10} {:>12} {:>10} {:>9}",
        "", "records/s", "floor/s", "% of floor", "own CPU ns", "its floor ns", "CPU ns", "p99.9 us"
    );
    let (time, warmed) = (Until::Time, Until::Warmed);
    for (name, body, batch, threads, queues, until) in [
        ("128 B, batches of 32, 1 thread, 8 queues", 128, 32, 1, 8, time),
        ("128 B, batches of 32, 2 threads, 8 queues", 128, 32, 2, 8, time),
        ("128 B, one at a time, 1 thread, 8 queues", 128, 1, 1, 8, time),
        ("128 B, batches of 32, 1 thread, 100000 queues", 128, 32, 1, 100_000, time),
        ("1 KiB, batches of 32, 1 thread, 8 queues", 1024, 32, 1, 8, time),
        ("1 KiB, batches of 32, 2 threads, 8 queues", 1024, 32, 2, 8, time),
        ("1 KiB, batches of 32, 1 thread, warmed", 1024, 32, 1, 8, warmed),
        ("1 KiB, batches of 32, 2 threads, warmed", 1024, 32, 2, 8, warmed),
        ("1 KiB, batches of 32, 4 threads, warmed", 1024, 32, 4, 8, warmed),
    ] {
        if !name.contains(&only) {
            continue;
        }
        let mut list = Vec::new();
        for (name, value) in [
            ("UNIQ_KEY", "AC11000100002A9F00000000000000"),
            ("WAIT", "true"),
            ("TAGS", "TagA"),
            ("CLUSTER", "DefaultCluster"),
        ] {
            properties::append(&mut list, name, value);
        }
        let load = Load { body: vec![b'x'; body], properties: list, batch, threads, queues, until };
        // No row pays for another one's writes.
        rustix::fs::sync();
        let floor = floor(&load);
        let store = append(&load, &directory.join(name), FlushDiskType::AsyncFlush);
        println!(
            "{name:<46} {:>11.0} {:>11.0} {:>10.0} {:>10.0} {:>12.0} {:>10.0} {:>9}",
            store.rate,
            floor.rate,
            100.0 * store.rate / floor.rate,
            store.own_cpu_ns,
            floor.own_cpu_ns,
            store.cpu_ns,
            store.tail_us
        );
    }
    for (name, batch, threads) in
        [("SYNC_FLUSH, 128 B, one at a time", 1, 1), ("SYNC_FLUSH, 128 B, 8 threads, batches of 32", 32, 8)]
    {
        if !name.contains(&only) {
            continue;
        }
        let load =
            Load { body: vec![b'x'; 128], properties: Vec::new(), batch, threads, queues: 8, until: time };
        let store = append(&load, &directory.join(name), FlushDiskType::SyncFlush);
        println!(
            "{name:<46} {:>11.0} {:>11} {:>10} {:>10.0} {:>12} {:>10.0} {:>9}",
            store.rate, "", "", store.own_cpu_ns, "", store.cpu_ns, store.tail_us
        );
    }
    let _ = std::fs::remove_dir_all(&directory);
}

/// How fast it went.
struct Speed {
    /// Records per second.
    rate: f64,
    /// Processor time of the threads that append, for each record.
    own_cpu_ns: f64,
    /// Processor time of the whole process, for each record.
    cpu_ns: f64,
    /// 99.9 % of the appends took less, microseconds.
    tail_us: u128,
}

/// When each record costs only the CRC of its body and one copy of its bytes into memory that is there.
fn floor(load: &Load) -> Speed {
    let record = vec![1u8; 91 + 5 + load.body.len() + load.properties.len()];
    let share = WARMED_BYTES as usize / load.threads / record.len() * record.len();
    let mut log = vec![1u8; share * load.threads];
    let records = (log.len() / record.len()) as f64;
    let begun = Instant::now();
    let own: f64 = std::thread::scope(|scope| {
        let threads: Vec<_> = log
            .chunks_mut(share)
            .map(|part| {
                let (body, record) = (&load.body, &record);
                scope.spawn(move || {
                    for slot in part.chunks_mut(record.len()) {
                        std::hint::black_box(crc32(std::hint::black_box(body)));
                        slot.copy_from_slice(std::hint::black_box(record));
                    }
                    thread_cpu_ns()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let own_cpu_ns = own / records;
    Speed { rate: records / begun.elapsed().as_secs_f64(), own_cpu_ns, cpu_ns: own_cpu_ns, tail_us: 0 }
}

fn append(load: &Load, directory: &std::path::Path, flush_disk_type: FlushDiskType) -> Speed {
    let opened = Instant::now();
    let warm_whole_files = load.until == Until::Warmed;
    let store =
        Store::open(StoreOptions { flush_disk_type, warm_whole_files, ..StoreOptions::new(directory) })
            .expect("the store opens");
    while warm_whole_files && store.stats().log_warmed_offset < 2 << 30 {
        std::thread::sleep(Duration::from_millis(10));
    }
    if load.batch == 1 && load.threads == 1 {
        eprintln!("opened in {:?}", opened.elapsed());
    }
    let (begun, cpu_before) = (Instant::now(), cpu_ns());
    let (mut records, mut own, mut times) = (0u64, 0.0, Vec::new());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.threads)
            .map(|thread| {
                scope.spawn({
                    let store = &store;
                    move || produce(load, store, thread as i32, begun)
                })
            })
            .collect();
        for thread in threads {
            let (count, cpu, mut some) = thread.join().expect("no panic");
            records += count;
            own += cpu;
            times.append(&mut some);
        }
    });
    let rate = records as f64 / begun.elapsed().as_secs_f64();
    // All threads of the store, with the kernel's work for them.
    let cpu_ns = (cpu_ns() - cpu_before) / records as f64;
    let lag = store.confirmed().get() - store.dispatched().get();
    let caught_up = Instant::now();
    store.dispatch_to_confirmed();
    if lag > 1 << 20 {
        eprintln!("dispatch was {} MiB behind, {:?} to catch up", lag >> 20, caught_up.elapsed());
    }
    times.sort_unstable();
    let tail_us = times.get(times.len() * 999 / 1000).copied().unwrap_or(0);
    store.shutdown();
    Speed { rate, own_cpu_ns: own / records as f64, cpu_ns, tail_us }
}

/// CPU time of this thread, user and system, ns.
fn thread_cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// CPU time of this process, user and system, ns.
fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a command name").1.split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().map(|ticks| ticks.parse::<f64>().expect("a number")).sum();
    ticks * 10_000_000.0
}

fn produce(load: &Load, store: &Arc<Store>, thread: i32, begun: Instant) -> (u64, f64, Vec<u128>) {
    let host: SocketAddr = "127.0.0.1:10911".parse().expect("an address");
    let topics: Vec<String> = (0..(load.queues + 7) / 8).map(|topic| format!("Topic{topic}")).collect();
    let queues: Vec<_> =
        (0..load.queues).map(|queue| store.queue(&topics[queue as usize / 8], queue % 8)).collect();
    let mut batch = store.new_batch();
    let (mut count, mut times) = (0u64, Vec::new());
    let mut next = thread as usize;
    let share = WARMED_BYTES / load.threads as u64;
    let mut bytes = 0;
    let cpu_before = thread_cpu_ns();
    while match load.until {
        Until::Time => begun.elapsed() < Duration::from_secs(SECONDS),
        Until::Warmed => bytes < share,
    } {
        let start = Instant::now();
        for _ in 0..load.batch {
            let queue = &queues[next % queues.len()];
            next = next.wrapping_add(7919);
            let fields = RecordFields {
                properties: &load.properties,
                ..RecordFields::new(queue.topic(), queue.queue_id(), host, &load.body)
            };
            batch.push(queue, &fields).expect("it fits");
        }
        let end = store.append(&mut batch).expect("the disk has room");
        if store.options().flush_disk_type == FlushDiskType::SyncFlush {
            assert!(store.flushed().wait_blocking(end, Duration::from_secs(10)), "flush in time");
        }
        count += batch.len() as u64;
        bytes += batch.bytes() as u64;
        batch.clear();
        times.push(start.elapsed().as_micros());
    }
    (count, thread_cpu_ns() - cpu_before, times)
}
