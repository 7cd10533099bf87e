//! Waiting for sockets.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::error::BenchError;

/// Most sockets that one call reports.
const EVENTS_MAX: usize = 256;

/// A socket that can be read or written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    /// The number that it was added with.
    pub(super) link: usize,
    /// Whether reading makes sense: there are bytes, an error or the end.
    pub(super) readable: bool,
    /// Whether writing makes sense.
    pub(super) writable: bool,
}

/// An epoll instance.
pub(super) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    pub(super) fn new() -> Result<Self, BenchError> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)? })
    }

    /// Watches a socket, for reading only at first.
    pub(super) fn add(&self, socket: impl AsFd, link: usize) -> Result<(), BenchError> {
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(link as u64), epoll::EventFlags::IN)
            .map_err(failed)
    }

    /// Says whether to report also when the socket can be written.
    pub(super) fn watch_writing(&self, socket: impl AsFd, link: usize, on: bool) -> Result<(), BenchError> {
        let flags = if on { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(link as u64), flags).map_err(failed)
    }

    /// Waits until a socket is ready or `timeout` has passed, to the microsecond, and puts those that are into `ready`.
    pub(super) fn wait(&self, timeout: Duration, ready: &mut Vec<Ready>) -> Result<(), BenchError> {
        // Kernels before 5.11 count epoll's timeout in whole milliseconds, but not that of ppoll.
        let is_whole_millis = timeout.subsec_nanos().is_multiple_of(1_000_000);
        if !is_whole_millis {
            let mut epoll = [PollFd::new(&self.epoll, PollFlags::IN)];
            match poll(&mut epoll, Some(&timespec(timeout))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let timeout = timespec(if is_whole_millis { timeout } else { Duration::ZERO });
        let mut events = [MaybeUninit::uninit(); EVENTS_MAX];
        ready.clear();
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok((events, _)) => ready.extend(events.iter().map(|event| Ready::of(*event))),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        Ok(())
    }
}

impl Ready {
    fn of(event: epoll::Event) -> Self {
        let (flags, data) = (event.flags, event.data);
        Self {
            link: data.u64() as usize,
            readable: flags
                .intersects(epoll::EventFlags::IN | epoll::EventFlags::ERR | epoll::EventFlags::HUP),
            writable: flags.contains(epoll::EventFlags::OUT),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

fn failed(error: rustix::io::Errno) -> BenchError {
    BenchError::Poll(io::Error::from(error))
}
