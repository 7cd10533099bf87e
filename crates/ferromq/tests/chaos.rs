//! The failure suite in short: half a minute of each mode. `chaos/README.md` has the long version, and what is checked.
//!
//! The plans are always the same here. `FERROMQ_CHAOS_SEED` is a seed for another one.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ferromq_chaos::{Fault, LinkKind, Mode, Options, run};

/// How long things break. Starts, restarts and comparisons add about as much.
const TIME: Duration = Duration::from_secs(12);

/// One cluster at a time: several of them starve each other on a small machine, and then nobody recovers in time.
static MACHINE: Mutex<()> = Mutex::new(());

#[test]
fn a_sync_master_and_its_slaves() {
    briefly(Mode::SyncMaster, LinkKind::Auto, 11, Mode::SyncMaster.faults());
}

#[test]
fn a_set_under_controllers() {
    briefly(Mode::Controller, LinkKind::Auto, 21, Mode::Controller.faults());
}

#[test]
fn a_raft_group() {
    briefly(Mode::Raft, LinkKind::Auto, 12, Mode::Raft.faults());
}

/// The network of machines that have no namespaces.
#[test]
fn a_raft_group_behind_proxies() {
    briefly(
        Mode::Raft,
        LinkKind::Proxies,
        13,
        vec![Fault::Isolate, Fault::OneWayIn, Fault::OneWayOut, Fault::SlowLink],
    );
}

fn briefly(mode: Mode, links: LinkKind, seed: u64, faults: Vec<Fault>) {
    let _ours = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = std::env::var("FERROMQ_CHAOS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(seed);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let options = Options {
        program: PathBuf::from(env!("CARGO_BIN_EXE_ferromq")),
        mode,
        time: TIME,
        faults,
        seed,
        directory: directory.path().to_owned(),
        links,
        settings: Vec::new(),
    };
    let tokio = tokio::runtime::Runtime::new().expect("a runtime");
    match tokio.block_on(run(&options)) {
        Ok(report) => println!("{mode:?}, seed {seed}: {report}"),
        Err(failure) => {
            // What it wrote is worth more than a clean disk.
            let kept = directory.keep();
            panic!("{mode:?}, seed {seed}, files in {}:\n{failure}", kept.display());
        }
    }
}
