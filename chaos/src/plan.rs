//! What will be done to a cluster: drawn from a seed, and from nothing else.

use std::fmt;
use std::time::Duration;

use crate::mode::Mode;

/// Something that happens to a node or to its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// SIGKILL, and a new start at the end.
    Kill,
    /// SIGKILL of the controller beside the broker, and a new start at the end.
    KillController,
    /// SIGSTOP, and SIGCONT at the end.
    Pause,
    /// Nothing goes in or out.
    Isolate,
    /// Nothing goes to or comes from other brokers; clients and name server are there.
    CutFromPeers,
    /// What it sends gets lost; it receives.
    OneWayOut,
    /// What is sent to it by others of the set gets lost; it sends.
    OneWayIn,
    /// The two other nodes don't reach each other, but this one reaches both.
    Bridge,
    /// Little gets through its network in a second.
    SlowLink,
    /// Its disk is full.
    FullDisk,
    /// Its clock jumps by some minutes, and back at the end.
    ClockJump,
    /// It is killed and comes back with an empty disk. Happens to a slave, while nothing else is broken.
    LoseStore,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 12] = [
        Fault::Kill,
        Fault::KillController,
        Fault::Pause,
        Fault::Isolate,
        Fault::CutFromPeers,
        Fault::OneWayOut,
        Fault::OneWayIn,
        Fault::Bridge,
        Fault::SlowLink,
        Fault::FullDisk,
        Fault::ClockJump,
        Fault::LoseStore,
    ];
}

/// Whom a fault hits; found out when it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// Who is registered as master.
    Master,
    /// The so-manieth of the others.
    Slave(usize),
}

/// A fault and its victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// What happens.
    pub fault: Fault,
    /// To whom.
    pub victim: Victim,
}

/// Faults at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// Pause before it.
    pub quiet: Duration,
    /// What happens; to different nodes.
    pub strikes: Vec<Strike>,
    /// Until all of it ends.
    pub lasts: Duration,
}

/// The whole run, one round after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where it was drawn from.
    pub seed: u64,
    /// The rounds.
    pub rounds: Vec<Round>,
}

/// A fault lasts at most that long, so that everybody notices it and time is left for others.
pub(crate) const LASTS_MAX: Duration = Duration::from_secs(12);

impl Plan {
    /// Rounds of these faults for about `time`. Short runs have short faults, and begin with a dead master.
    pub fn draw(seed: u64, mode: Mode, faults: &[Fault], time: Duration) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let lasts_max = LASTS_MAX.min(time / 5).as_millis() as u64;
        let mut rounds = Vec::new();
        let mut planned = Duration::ZERO;
        while planned < time && !faults.is_empty() {
            let quiet = Duration::from_millis(random.u64(500..=3000));
            let lasts = Duration::from_millis(random.u64(lasts_max / 4..=lasts_max));
            let mut strikes = vec![Strike {
                fault: faults[random.usize(..faults.len())],
                victim: match random.u32(..5) {
                    0..3 => Victim::Master,
                    slave => Victim::Slave(slave as usize - 3),
                },
            }];
            if rounds.is_empty() && faults.contains(&Fault::Kill) {
                strikes[0] = Strike { fault: Fault::Kill, victim: Victim::Master };
            }
            // A majority that is broken makes nothing wrong, but nothing goes on either.
            if random.u32(..4) == 0 {
                let fault = faults[random.usize(..faults.len())];
                let victim = match strikes[0].victim {
                    Victim::Master => Victim::Slave(random.usize(..mode.brokers() - 1)),
                    Victim::Slave(_) => Victim::Master,
                };
                strikes.push(Strike { fault, victim });
            }
            if let Some(loss) = strikes.iter().copied().find(|strike| strike.fault == Fault::LoseStore) {
                let slave = random.usize(..mode.brokers() - 1);
                strikes = vec![Strike { victim: Victim::Slave(slave), ..loss }];
            }
            planned += quiet + lasts;
            rounds.push(Round { quiet, strikes, lasts });
        }
        Self { seed, rounds }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "seed {}", self.seed)?;
        for (number, round) in self.rounds.iter().enumerate() {
            writeln!(formatter, "{number:4}  after {:5.1?}  {round}", round.quiet)?;
        }
        Ok(())
    }
}

impl fmt::Display for Round {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let strikes: Vec<_> = self.strikes.iter().map(ToString::to_string).collect();
        write!(formatter, "{} for {:.1?}", strikes.join(" and "), self.lasts)
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.victim {
            Victim::Master => write!(formatter, "{:?} of the master", self.fault),
            Victim::Slave(number) => write!(formatter, "{:?} of slave {number}", self.fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_plan() {
        let draw = |seed| Plan::draw(seed, Mode::Raft, &Fault::ALL, Duration::from_secs(600));
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7).rounds, draw(8).rounds);
    }

    #[test]
    fn a_store_is_lost_alone() {
        let plan = Plan::draw(1, Mode::Raft, &Fault::ALL, Duration::from_secs(36_000));
        let losses = plan
            .rounds
            .iter()
            .filter(|round| round.strikes.iter().any(|strike| strike.fault == Fault::LoseStore));
        let mut count = 0;
        for round in losses {
            count += 1;
            assert!(matches!(round.strikes[..], [Strike { victim: Victim::Slave(_), .. }]), "{round}");
        }
        assert!(count > 0);
    }
}
