//! A node: a broker, perhaps a controller beside it, a disk and a clock.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::clock::Clock;
use crate::disk::Disk;
use crate::links::Links;
use crate::process::Process;

/// Size of the files of the log: every run should cross some ends.
pub(crate) const SEGMENT_BYTES: u32 = 1 << 20;

/// What can be started at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Broker,
    Controller,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Broker => "broker",
            Role::Controller => "controller",
        }
    }
}

/// One program of a node, whether it runs or not.
#[derive(Debug)]
struct Program {
    role: Role,
    process: Option<Process>,
}

/// A node of the cluster.
#[derive(Debug)]
pub(crate) struct Node {
    index: usize,
    directory: PathBuf,
    program: PathBuf,
    disk: Option<Disk>,
    clock: Option<Clock>,
    programs: Vec<Program>,
}

impl Node {
    /// A node in `directory`, with a disk of `disk_bytes` if one can be mounted.
    pub(crate) fn new(
        index: usize,
        directory: PathBuf,
        program: PathBuf,
        disk_bytes: u64,
    ) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        let disk = match Disk::mount(&directory.join("disk"), disk_bytes) {
            Ok(disk) => Some(disk),
            Err(error) => {
                tracing::warn!(%error, "no disk can be filled: a small file system can't be mounted here");
                fs::create_dir_all(directory.join("disk"))?;
                None
            }
        };
        let clock = Clock::new(&directory.join("clock"))?;
        if clock.is_none() && index == 0 {
            tracing::warn!("no clock can jump: libfaketime is not installed");
        }
        Ok(Self { index, directory, program, disk, clock, programs: Vec::new() })
    }

    /// Where the broker's files are.
    pub(crate) fn store(&self) -> PathBuf {
        self.directory.join("disk/store")
    }

    /// Where a controller's files are.
    pub(crate) fn controller_store(&self) -> PathBuf {
        self.directory.join("disk/controller")
    }

    /// Adds a program with these settings.
    pub(crate) fn add(&mut self, role: Role, settings: &[(String, String)]) -> io::Result<()> {
        let mut lines = String::new();
        for (key, value) in settings {
            // Writing to a string does not fail.
            let _ = writeln!(lines, "{key}={value}");
        }
        fs::write(self.configuration(role), lines)?;
        self.programs.push(Program { role, process: None });
        Ok(())
    }

    fn configuration(&self, role: Role) -> PathBuf {
        self.directory.join(format!("{}.conf", role.name()))
    }

    /// Starts what does not run.
    pub(crate) fn start(&mut self, links: &dyn Links) -> io::Result<()> {
        for number in 0..self.programs.len() {
            let role = self.programs[number].role;
            if self.programs[number].process.is_none() {
                let mut command = links.command(self.index, &self.program);
                command.arg(role.name()).arg("-c").arg(self.configuration(role)).current_dir(&self.directory);
                if let Some(clock) = &self.clock {
                    clock.apply(&mut command);
                }
                let log = self.directory.join(format!("{}.log", role.name()));
                let process = Process::start(command, &log)?;
                links.has_started(self.index, process.id());
                self.programs[number].process = Some(process);
            }
        }
        Ok(())
    }

    fn running(&mut self) -> impl Iterator<Item = &mut Process> {
        self.programs.iter_mut().filter_map(|program| program.process.as_mut())
    }

    /// Kills one program, or nothing if it is not there.
    pub(crate) fn kill(&mut self, role: Role) -> io::Result<()> {
        for program in self.programs.iter_mut().filter(|program| program.role == role) {
            if let Some(mut process) = program.process.take() {
                process.kill()?;
            }
        }
        Ok(())
    }

    /// Kills all programs.
    pub(crate) fn kill_all(&mut self) -> io::Result<()> {
        self.kill(Role::Broker)?;
        self.kill(Role::Controller)
    }

    /// Stops all programs in good order; one that does not stop is an error.
    pub(crate) fn terminate(&mut self, patience: std::time::Duration) -> io::Result<()> {
        let index = self.index;
        for process in self.running() {
            if process.terminate(patience)?.is_none() {
                let tail = process.log_tail();
                return Err(io::Error::other(format!("node {index} does not stop after SIGTERM:\n{tail}")));
            }
        }
        self.programs.iter_mut().for_each(|program| program.process = None);
        Ok(())
    }

    /// SIGSTOP to all programs.
    pub(crate) fn pause(&mut self) -> io::Result<()> {
        self.running().try_for_each(|process| process.pause())
    }

    /// SIGCONT to all programs.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        self.running().try_for_each(|process| process.resume())
    }

    /// Fills the disk; false if it can't be filled.
    pub(crate) fn fill_disk(&self) -> io::Result<bool> {
        self.disk.as_ref().map_or(Ok(false), |disk| disk.fill().map(|()| true))
    }

    /// Gives the disk's space back.
    pub(crate) fn free_disk(&self) -> io::Result<()> {
        self.disk.as_ref().map_or(Ok(()), Disk::free)
    }

    /// Moves the clock; false if it can't be moved.
    pub(crate) fn set_clock(&self, seconds: i64) -> io::Result<bool> {
        self.clock.as_ref().map_or(Ok(false), |clock| clock.set(seconds).map(|()| true))
    }

    /// Kills the broker and deletes everything that it has stored.
    pub(crate) fn lose_store(&mut self) -> io::Result<()> {
        self.kill(Role::Broker)?;
        fs::remove_dir_all(self.store())
    }

    /// Programs that ended although nobody killed them, in words.
    pub(crate) fn deaths(&mut self) -> io::Result<Vec<String>> {
        let index = self.index;
        let mut deaths = Vec::new();
        for program in &mut self.programs {
            let Some(process) = &mut program.process else { continue };
            if let Some(status) = process.ended()? {
                let (name, tail) = (program.role.name(), process.log_tail());
                deaths.push(format!("the {name} of node {index} ended, {status}:\n{tail}"));
                program.process = None;
            }
        }
        Ok(deaths)
    }

    /// Leaves all files in the node's directory when the run is over. Nothing may run any more.
    pub(crate) fn keep_files(&mut self) -> io::Result<()> {
        self.disk.take().map_or(Ok(()), Disk::keep)
    }

    /// Where its files are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}
