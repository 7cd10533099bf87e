//! Crashes at random points of random histories, against the promises in the crate's documentation: the store is killed or loses
//! power, during work, clean stops and recoveries, with any part of what was not forced to the disk missing. It is opened again
//! and compared with a model, with the files that only other brokers read. Messages go to ordinary topics, to light queues as well, to a
//! topic whose batches are one record each, and into the log only (half messages).
//!
//! A history depends on nothing but its seed. `FERROMQ_CRASH_SEED=n` replays one and shows the store's log, `FERROMQ_CRASHES=n` sets
//! the number of crashes, `FERROMQ_CRASH_FROM=n` the first seed.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod batch_files;
mod check;
mod history;
mod image;
mod model;
mod scenarios;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use history::History;
use parking_lot::Mutex;

/// Crashes of one history.
const CRASHES: u32 = 10;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

/// Runs a history; says whether it went well.
fn run(seed: u64) -> bool {
    let mut history = History::new(seed);
    let went_well = catch_unwind(AssertUnwindSafe(|| history.run(CRASHES))).is_ok();
    if !went_well {
        let replay =
            format!("FERROMQ_CRASH_SEED={seed} cargo test -p ferromq-store --test crash survives_every");
        eprintln!("{}\nthis history failed; replay: {replay}\n", history.log);
    }
    went_well
}

#[test]
fn what_was_promised_survives_every_crash() {
    if let Some(seed) = setting("FERROMQ_CRASH_SEED") {
        tracing_subscriber::fmt().without_time().init();
        assert!(run(seed));
        return;
    }
    let first = setting("FERROMQ_CRASH_FROM").unwrap_or(0);
    let last = first + setting("FERROMQ_CRASHES").unwrap_or(2_000).div_ceil(u64::from(CRASHES));
    println!("seeds {first} to {}", last - 1);
    let next = AtomicU64::new(first);
    let failed = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= last {
                        break;
                    }
                    if !run(seed) {
                        failed.lock().push(seed);
                    }
                }
            });
        }
    });
    assert_eq!(*failed.lock(), Vec::<u64>::new(), "seeds of failed histories");
}

#[test]
fn a_seed_gives_the_same_history_every_time() {
    for seed in 0..3 {
        let log = || {
            let mut history = History::new(seed);
            history.run(CRASHES);
            history.log
        };
        assert_eq!(log(), log(), "seed {seed}");
    }
}
