//! Pulls whose messages are not in memory.
//!
//! They are repeated on threads that may wait for the disk, a few at a time and in the order in which they came: however many
//! consumers lag behind, the disk has room for what the log writes, and other work finds a free thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;

use ferromq_remoting::Connection;
use ferromq_store::Residency;
use parking_lot::Mutex;
use rustix::process::setpriority_process;
use tokio::sync::{Semaphore, oneshot};

use super::{Asked, Pass, answer_later};
use crate::broker::Broker;

/// Reads of cold messages at a time. Each has up to 2 MiB on order, which keeps an SSD busy; more would only make everything else
/// wait longer.
const AT_ONCE_MAX: usize = 4;

/// Their threads give way to everybody else: a send must not wait for a processor on which a lagging consumer reads.
const NICENESS: i32 = 10;

type Work = Box<dyn FnOnce() + Send>;

/// The places of the reads that may wait for the disk, and their threads, which begin with the first of them.
#[derive(Debug)]
pub(crate) struct ColdReads {
    places: Arc<Semaphore>,
    threads: OnceLock<Sender<Work>>,
    begun: AtomicU64,
}

impl Default for ColdReads {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE_MAX)),
            threads: OnceLock::new(),
            begun: AtomicU64::new(0),
        }
    }
}

impl ColdReads {
    /// Reads that have begun so far: whoever has an answer finds it counted.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Does `work` on a thread that may block, as soon as it is its turn. If this is dropped meanwhile, work that has begun goes on,
    /// and keeps its place.
    async fn take_turn(self: Arc<Self>, work: impl FnOnce() + Send + 'static) {
        let Ok(place) = self.places.clone().acquire_owned().await else { return };
        let (finished, turn) = oneshot::channel();
        let reads = Arc::clone(&self);
        let work = Box::new(move || {
            let _place = place;
            reads.begun.fetch_add(1, Ordering::Relaxed);
            work();
            // Whoever asked may have gone.
            let _ = finished.send(());
        });
        if self.threads.get_or_init(start_threads).send(work).is_err() || turn.await.is_err() {
            tracing::error!("a read of cold messages panicked, or there is no thread for it");
        }
    }
}

/// As many threads as there are places. They end when the sender is dropped.
fn start_threads() -> Sender<Work> {
    let (sender, receiver) = mpsc::channel::<Work>();
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..AT_ONCE_MAX {
        let receiver = Arc::clone(&receiver);
        let started = thread::Builder::new().name("cold-read".to_owned()).spawn(move || {
            if let Err(error) = setpriority_process(None, NICENESS) {
                tracing::warn!(%error, "reads of cold messages run with the priority of everything else");
            }
            loop {
                let work = receiver.lock().recv();
                let Ok(work) = work else { return };
                // Whoever waits for it sees that it did not finish; the thread is needed for others.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
        });
        if let Err(error) = started {
            tracing::error!(%error, "can't start a thread for reads of cold messages");
        }
    }
    sender
}

/// Repeats a pull where waiting for a disk hurts nobody.
pub(super) fn read(broker: Arc<Broker>, connection: Arc<Connection>, asked: Asked<'_>, pass: Pass) {
    let asked = asked.into_owned();
    tokio::spawn(async move {
        let reads = broker.cold_reads.clone();
        let closed = connection.clone();
        let answer = reads.take_turn(move || {
            answer_later(&broker, &connection, asked, pass, Residency::Any);
        });
        // A consumer that has gone loses its turn.
        tokio::select! {
            () = answer => {}
            () = closed.closed() => {}
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[tokio::test]
    async fn a_few_run_at_a_time_and_all_get_their_turn() {
        const TURNS: usize = 50;
        let reads = Arc::new(ColdReads::default());
        let (begin, begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Arc::new(Mutex::new(may_go_on));
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let turns: Vec<_> = (0..TURNS)
            .map(|_| {
                let (reads, begin, may_go_on) = (reads.clone(), begin.clone(), may_go_on.clone());
                let (running, most) = (running.clone(), most.clone());
                tokio::spawn(async move {
                    reads
                        .take_turn(move || {
                            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            begin.send(()).expect("the test listens");
                            may_go_on.lock().recv().expect("the test lets it go on");
                            running.fetch_sub(1, Ordering::SeqCst);
                        })
                        .await;
                })
            })
            .collect();
        let watcher = tokio::task::spawn_blocking(move || {
            // All places are taken at the same time, before the first is given back.
            (0..AT_ONCE_MAX).for_each(|_| begun.recv().expect("a turn begins"));
            (0..TURNS).for_each(|_| go_on.send(()).expect("somebody waits"));
            begun.into_iter().count() + AT_ONCE_MAX
        });
        drop(begin);
        for turn in turns {
            turn.await.expect("the turn ends");
        }
        assert_eq!(watcher.await.expect("the watcher ends"), TURNS);
        assert_eq!(most.load(Ordering::SeqCst), AT_ONCE_MAX);
        assert_eq!(reads.begun(), TURNS as u64);
    }
}
