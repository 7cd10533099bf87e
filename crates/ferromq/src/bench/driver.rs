//! Runs load for a measured time and watches the server meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::error::BenchError;
use super::process::{Memory, Process};
use super::progress::Progress;
use super::settings::LoadArgs;
use super::tally::{Tally, Window};

/// How long to wait for answers after the last request.
pub(super) const DRAIN: Duration = Duration::from_secs(10);
/// How often the progress and the server's memory are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How often it is looked whether the last answers have come.
const LAST_TICK: Duration = Duration::from_millis(10);

/// What the threads of a run share.
#[derive(Debug)]
pub(super) struct Run {
    start: Instant,
    /// When things count.
    pub(super) window: Window,
    answered: AtomicU64,
    failed: AtomicBool,
}

impl Run {
    fn new(args: &LoadArgs) -> Self {
        let from_ns = args.warmup().as_nanos() as u64;
        let until_ns = args.measured_time().map_or(u64::MAX, |time| from_ns + time.as_nanos() as u64);
        let window = Window { from_ns, until_ns };
        Self { start: Instant::now(), window, answered: AtomicU64::new(0), failed: AtomicBool::new(false) }
    }

    /// Nanoseconds since the load began.
    pub(super) fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Tells how many more messages went through, for the progress.
    pub(super) fn advance(&self, messages: u64) {
        self.answered.fetch_add(messages, Ordering::Relaxed);
    }

    /// Whether another thread failed, so that going on makes no sense.
    pub(super) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// What the server used during the measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerUse {
    /// CPU time of all its threads.
    pub(super) cpu: Duration,
    /// Memory before the load.
    pub(super) before: Memory,
    /// Largest memory seen.
    pub(super) peak: Memory,
}

/// A finished run.
#[derive(Debug)]
pub(super) struct Measured {
    /// Everything that was counted.
    pub(super) tally: Tally,
    /// Length of the measurement.
    pub(super) elapsed: Duration,
    /// CPU time of this process during the measurement: it must be far from a whole core, or it was the limit.
    pub(super) generator_cpu: Duration,
    /// What the server used, if its process is known.
    pub(super) server: Option<ServerUse>,
}

/// Runs each of `workers` in a thread of its own until all are done.
pub(super) fn drive<W>(args: &LoadArgs, title: &str, workers: Vec<W>) -> Result<Measured, BenchError>
where
    W: FnOnce(&Run) -> Result<Tally, BenchError> + Send,
{
    let mut server = args.server_pid.map(|pid| ServerWatch::new(Process::new(pid))).transpose()?;
    let mut generator = CpuWatch::new(Process::new(std::process::id()));
    let run = Run::new(args);
    let mut progress = Progress::new(title, args.quiet);
    let tally = thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                scope.spawn(move || {
                    let tally = worker(run);
                    if tally.is_err() {
                        run.failed.store(true, Ordering::Relaxed);
                    }
                    tally
                })
            })
            .collect();
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            generator.look(run)?;
            if let Some(server) = &mut server {
                server.look(run)?;
            }
            progress.update(run.answered.load(Ordering::Relaxed), run.start.elapsed());
            thread::sleep(next_look(run));
        }
        let mut tally = Tally::new(run.window);
        for thread in threads {
            tally.merge(thread.join().expect("a load thread panicked")?);
        }
        Ok::<_, BenchError>(tally)
    })?;
    progress.finish();
    let end_ns = if run.window.until_ns == u64::MAX { tally.last_answer_ns } else { run.window.until_ns };
    let elapsed = Duration::from_nanos(end_ns.saturating_sub(run.window.from_ns));
    let generator_cpu = generator.finish(&run)?;
    let server = server.map(|server| server.finish(&run)).transpose()?;
    Ok(Measured { tally, elapsed, generator_cpu, server })
}

/// How long to sleep so that neither end of the window is missed.
fn next_look(run: &Run) -> Duration {
    let now_ns = run.now_ns();
    let edge_ns = [run.window.from_ns, run.window.until_ns].into_iter().find(|edge| *edge > now_ns);
    edge_ns.map_or(LAST_TICK, |edge_ns| Duration::from_nanos(edge_ns - now_ns).min(TICK))
}

/// Notes a process's CPU time at both ends of the window.
struct CpuWatch {
    process: Process,
    from: Option<Duration>,
    until: Option<Duration>,
}

impl CpuWatch {
    fn new(process: Process) -> Self {
        Self { process, from: None, until: None }
    }

    fn look(&mut self, run: &Run) -> Result<(), BenchError> {
        let now_ns = run.now_ns();
        for (edge_ns, cpu) in [(run.window.from_ns, &mut self.from), (run.window.until_ns, &mut self.until)] {
            if cpu.is_none() && now_ns >= edge_ns {
                *cpu = Some(self.process.cpu_time()?);
            }
        }
        Ok(())
    }

    /// The CPU time used within the window.
    fn finish(mut self, run: &Run) -> Result<Duration, BenchError> {
        self.look(run)?;
        let now = self.process.cpu_time()?;
        Ok(self.until.unwrap_or(now).saturating_sub(self.from.unwrap_or(now)))
    }
}

/// Watches the server's CPU time and its memory.
struct ServerWatch {
    cpu: CpuWatch,
    before: Memory,
    peak: Memory,
}

impl ServerWatch {
    fn new(process: Process) -> Result<Self, BenchError> {
        let memory = process.memory()?;
        Ok(Self { cpu: CpuWatch::new(process), before: memory, peak: memory })
    }

    fn look(&mut self, run: &Run) -> Result<(), BenchError> {
        self.cpu.look(run)?;
        let memory = self.cpu.process.memory()?;
        self.peak.resident_bytes = self.peak.resident_bytes.max(memory.resident_bytes);
        self.peak.anonymous_bytes = self.peak.anonymous_bytes.max(memory.anonymous_bytes);
        Ok(())
    }

    fn finish(mut self, run: &Run) -> Result<ServerUse, BenchError> {
        self.look(run)?;
        Ok(ServerUse { cpu: self.cpu.finish(run)?, before: self.before, peak: self.peak })
    }
}
