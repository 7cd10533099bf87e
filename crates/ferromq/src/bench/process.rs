//! What a process costs: its CPU time and memory, from `/proc`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::error::BenchError;

/// A process on this machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process {
    pid: u32,
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Everything in RAM, mapped files included.
    pub(super) resident_bytes: u64,
    /// Memory that no file backs: heaps, stacks, buffers.
    pub(super) anonymous_bytes: u64,
}

impl Process {
    pub(super) fn new(pid: u32) -> Self {
        Self { pid }
    }

    fn read<T>(self, file: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, BenchError> {
        let path = PathBuf::from(format!("/proc/{}/{file}", self.pid));
        let text = fs::read_to_string(&path)
            .map_err(|error| BenchError::Process { path: path.clone(), reason: error.to_string() })?;
        parse(&text)
            .ok_or_else(|| BenchError::Process { path, reason: "it lacks what is looked for".to_owned() })
    }

    /// CPU time that all its threads have used so far, in user and kernel mode.
    pub(super) fn cpu_time(self) -> Result<Duration, BenchError> {
        self.read("stat", |stat| {
            let ticks = cpu_ticks(stat)?;
            Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
        })
    }

    /// Its memory now. Not from `smaps_rollup`, which would walk the page tables of every mapped file and disturb it.
    pub(super) fn memory(self) -> Result<Memory, BenchError> {
        self.read("status", memory)
    }
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The second field, the program's name, may hold blanks and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn memory(status: &str) -> Option<Memory> {
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some(Memory { resident_bytes: kib("VmRSS")? * 1024, anonymous_bytes: kib("RssAnon")? * 1024 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_measured() {
        let process = Process::new(std::process::id());
        let memory = process.memory().unwrap();
        assert!(memory.anonymous_bytes > 0 && memory.resident_bytes > memory.anonymous_bytes);
        assert!(process.cpu_time().is_ok());
    }

    #[test]
    fn a_strange_name_does_not_hide_the_times() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 100 0 0 0 31 11 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(memory("VmRSS:\t   12 kB\nRssAnon:\t    3 kB\n").unwrap().anonymous_bytes, 3072);
        assert_eq!(memory("Name:\tkthreadd\n"), None);
    }
}
