//! What many queues cost: creating them, keeping them while nothing happens, appending to all of them, reading them, starting
//! again after a clean stop and after `kill -9`.
//!
//! `cargo run --release -p ferromq-store --example many_queues [queues, 100000 [directory]]`
//!
//! Appends are measured with bodies of 128 bytes and of 1 KiB.
//!
//! Every phase is a process of its own, so that its memory is its own. The directory needs two inodes and 8 KiB per queue, and
//! 50 GiB for the log. The store lies in a directory of its own in it, which is removed at the end.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferromq_protocol::message::RecordFields;
use ferromq_store::{
    AcceptAll, ConsumeQueue, ReadRequest, ReadStatus, RecordSlice, Residency, Store, StoreOptions,
};

const QUEUES_PER_TOPIC: usize = 8;
const BATCH: usize = 32;
/// Sizes of the bodies that are appended, and how long a round of appends goes on.
const APPENDS: [(usize, Duration); 2] = [(128, Duration::from_secs(3)), (1024, Duration::from_secs(1))];
const ROUNDS: usize = 5;
/// Most queues that a phase of reading looks at.
const READ_MAX: usize = 100_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let queues = arguments.first().map_or(100_000, |count| count.parse().expect("a number of queues"));
    let directory = arguments.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    match arguments.get(2).map(String::as_str) {
        Some("create") => create(&directory, queues),
        Some("append") => append(&directory, queues),
        Some("read") => read(&directory, queues),
        Some("recover") => open(&directory, "start after kill -9").shutdown(),
        _ => {
            let free_before = free(&directory);
            let directory = directory.join(format!("ferromq-many-queues-{}", std::process::id()));
            std::fs::create_dir(&directory).expect("a new directory");
            run(&directory, queues, "create", false);
            let free_after = free(&directory);
            println!(
                "disk: {} bytes and {:.2} inodes per queue",
                (free_before.0 - free_after.0 - (1 << 30)) / queues as u64,
                (free_before.1 - free_after.1) as f64 / queues as f64,
            );
            run(&directory, queues, "read", false);
            run(&directory, queues, "append", true);
            run(&directory, queues, "recover", false);
            run(&directory, queues, "read", false);
            let begun = Instant::now();
            std::fs::remove_dir_all(&directory).expect("removed");
            println!("removed in {:?}", begun.elapsed());
        }
    }
}

/// Runs a phase in a process of its own. One that is to be killed says `done` when it has come so far.
fn run(directory: &Path, queues: usize, phase: &str, kill: bool) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([queues.to_string(), directory.display().to_string(), phase.to_owned()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the phase starts");
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
        let line = line.expect("text");
        if line == "done" {
            break;
        }
        println!("{line}");
    }
    if kill {
        child.kill().expect("killed");
    }
    let status = child.wait().expect("ended");
    assert!(kill || status.success(), "{phase}: {status}");
}

fn say(what: &str, count: usize, begun: Instant) {
    let took = begun.elapsed();
    println!("{what:<46} {took:>10.2?} {:>12.0}/s", count as f64 / took.as_secs_f64());
}

fn open(directory: &Path, what: &str) -> Arc<Store> {
    let begun = Instant::now();
    let store = Store::open(StoreOptions::new(directory)).expect("the store opens");
    println!("{what:<46} {:>10.2?}", begun.elapsed());
    store
}

fn handles(store: &Store, queues: usize) -> Vec<Arc<ConsumeQueue>> {
    let topics: Vec<String> =
        (0..queues.div_ceil(QUEUES_PER_TOPIC)).map(|topic| format!("Topic{topic}")).collect();
    (0..queues)
        .map(|queue| store.queue(&topics[queue / QUEUES_PER_TOPIC], (queue % QUEUES_PER_TOPIC) as i32))
        .collect()
}

fn create(directory: &Path, queues: usize) {
    let store = open(directory, "start, empty");
    let before = memory();
    let begun = Instant::now();
    let handles = handles(&store, queues);
    say("handles made", queues, begun);
    println!("memory of a handle: {} bytes", (memory() - before) / queues as u64);
    let begun = Instant::now();
    send(&store, handles.iter(), &[b'x'; 128]);
    store.dispatch_to_confirmed();
    say("one message appended to each", queues, begun);
    let begun = Instant::now();
    store.shutdown();
    say("clean stop, with every file created", queues, begun);
    println!("memory of a queue with a message: {} bytes", (memory() - before) / queues as u64);
}

/// First reads and first appends of queues of which only the list was read so far.
fn read(directory: &Path, queues: usize) {
    let before = memory();
    let store = open(directory, "start after a clean stop");
    println!("memory of a queue: {} bytes", (memory() - before) / queues as u64);
    let begun = Instant::now();
    let step = queues.div_ceil(READ_MAX);
    let handles: Vec<_> = handles(&store, queues).into_iter().step_by(step).collect();
    let mut records: Vec<RecordSlice> = Vec::new();
    let mut found = 0;
    for queue in &handles {
        let mut offset = queue.min_offset();
        loop {
            let request =
                ReadRequest { offset, max_messages: 32, max_bytes: usize::MAX, residency: Residency::Any };
            let outcome = store.read(queue, request, &AcceptAll, &mut records);
            if outcome.status != ReadStatus::Found {
                break;
            }
            offset = outcome.next_offset;
            found += outcome.messages;
            records.clear();
        }
        assert_eq!(offset, queue.next_offset(), "{}-{}", queue.topic(), queue.queue_id());
    }
    say(&format!("{} queues read, {found} messages", handles.len()), handles.len(), begun);
    let begun = Instant::now();
    store.shutdown();
    say("clean stop", handles.len(), begun);
}

/// Appends to all queues in turn, beside the same with 8 of them: by turns, because the machine has its moods.
fn append(directory: &Path, queues: usize) {
    let store = open(directory, "start after a clean stop");
    let handles = handles(&store, queues);
    let begun = Instant::now();
    handles.iter().for_each(|queue| read_last(&store, queue));
    say("first look at a queue's files", queues, begun);
    let few_handles = &handles[..8.min(handles.len())];
    for (body_bytes, duration) in APPENDS {
        let body = vec![b'x'; body_bytes];
        let (mut few, mut many) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            few.push(append_for_a_while(&store, few_handles, &body, duration));
            many.push(append_for_a_while(&store, &handles, &body, duration));
        }
        let mut ratios: Vec<f64> = few.iter().zip(&many).map(|(few, many)| many.rate / few.rate).collect();
        for (queues, rounds) in [(8, &mut few), (queues, &mut many)] {
            rounds.sort_by(|a, b| a.rate.total_cmp(&b.rate));
            let Round { rate, cpu_ns, behind_mib, writes } = rounds[ROUNDS / 2];
            println!(
                "{:<46} {:>10} {rate:>12.0}/s, CPU {cpu_ns:.0} ns each, {writes:.0} writes/s, dispatch {behind_mib} MiB behind at the end",
                format!("{body_bytes} bytes to {queues} queues in turn"),
                "",
            );
        }
        ratios.sort_by(f64::total_cmp);
        println!(
            "    {:.0} % of the speed with 8 queues ({:.0} to {:.0} %)",
            100.0 * ratios[ROUNDS / 2],
            100.0 * ratios[0],
            100.0 * ratios[ROUNDS - 1],
        );
    }
    println!("    memory {} MiB", memory() >> 20);
    println!("done");
    std::io::stdout().flush().expect("a pipe");
    std::thread::park();
}

/// Who uses a queue first after a start looks at its files; a broker that runs has that behind it.
fn read_last(store: &Store, queue: &ConsumeQueue) {
    let offset = queue.next_offset() - 1;
    let request = ReadRequest { offset, max_messages: 1, max_bytes: usize::MAX, residency: Residency::Any };
    let mut records: Vec<RecordSlice> = Vec::new();
    let outcome = store.read(queue, request, &AcceptAll, &mut records);
    assert_eq!(outcome.messages, 1, "{}-{}", queue.topic(), queue.queue_id());
}

/// What a round of appends came to.
struct Round {
    /// Messages per second, from the first append until the last one is dispatched.
    rate: f64,
    /// CPU time of the whole process for one message.
    cpu_ns: f64,
    behind_mib: u64,
    /// Calls of `write` and its kind per second.
    writes: f64,
}

fn append_for_a_while(
    store: &Store,
    handles: &[Arc<ConsumeQueue>],
    body: &[u8],
    duration: Duration,
) -> Round {
    let (begun, cpu, io) = (Instant::now(), cpu_ns(), writes());
    let mut count = 0;
    let mut turn = handles.iter().cycle();
    while begun.elapsed() < duration {
        count += send(store, turn.by_ref().take(32 * BATCH), body);
    }
    let end = store.confirmed().get();
    let behind_mib = (end - store.dispatched().get()) >> 20;
    // Not `dispatch_to_confirmed`: two threads that take turns at it are slower than one.
    assert!(store.dispatched().wait_blocking(end, Duration::from_secs(60)), "dispatched in time");
    let took = begun.elapsed().as_secs_f64();
    let round = Round {
        rate: count as f64 / took,
        cpu_ns: (cpu_ns() - cpu) / count as f64,
        behind_mib,
        writes: (writes() - io) as f64 / took,
    };
    // The next round, which is of the other kind, is not to pay for what this one left to be written.
    store.flush_to(end).expect("the disk takes it");
    round
}

fn send<'a>(store: &Store, queues: impl Iterator<Item = &'a Arc<ConsumeQueue>>, body: &[u8]) -> usize {
    let host: SocketAddr = "127.0.0.1:10911".parse().expect("an address");
    let mut batch = store.new_batch();
    let mut count = 0;
    let mut finish = |batch: &mut ferromq_store::AppendBatch| {
        store.append(batch).expect("the disk has room");
        count += batch.len();
        batch.clear();
    };
    for queue in queues {
        let fields = RecordFields::new(queue.topic(), queue.queue_id(), host, body);
        batch.push(queue, &fields).expect("it fits");
        if batch.len() == BATCH {
            finish(&mut batch);
        }
    }
    if !batch.is_empty() {
        finish(&mut batch);
    }
    count
}

/// Bytes of this process's own memory.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line for it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Calls of `write` and its kind so far.
fn writes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").expect("Linux");
    let line = io.lines().find_map(|line| line.strip_prefix("syscw: ")).expect("a line for it");
    line.parse().expect("a number")
}

/// CPU time of this process so far, user and system, ns.
fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a command name").1.split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().map(|ticks| ticks.parse::<f64>().expect("a number")).sum();
    ticks * 10_000_000.0
}

/// Free bytes and inodes of a directory's partition.
fn free(directory: &Path) -> (u64, u64) {
    let stat = rustix::fs::statvfs(directory).expect("a directory");
    (stat.f_bfree * stat.f_frsize, stat.f_ffree)
}
