//! Numbers of requests that tell at once to which slot an answer belongs.

/// First number: all have ten digits, so that a frame's length never changes.
const FIRST: i32 = 1_000_000_000;
/// How many numbers with ten digits are used.
const NUMBERS: u32 = 1_000_000_000;

/// The numbers of one connection with a fixed count of slots. No two requests in flight in this process have the same.
#[derive(Debug)]
pub(super) struct Opaques {
    slots: u32,
    connection: u32,
    connections: u32,
    /// After so many requests of a slot its numbers begin anew.
    rounds: u32,
    round: u32,
}

impl Opaques {
    /// Numbers for connection `connection` of `connections`, with `slots` requests in flight at most.
    pub(super) fn new(connection: u32, connections: u32, slots: u32) -> Self {
        let rounds = u64::from(NUMBERS) / (u64::from(slots) * u64::from(connections));
        Self { slots, connection, connections, rounds: rounds.max(1) as u32, round: 0 }
    }

    /// A new number for `slot`.
    pub(super) fn next(&mut self, slot: u32) -> i32 {
        self.round = (self.round + 1) % self.rounds;
        FIRST + ((self.round * self.connections + self.connection) * self.slots + slot) as i32
    }

    /// The slot that a number was made for.
    pub(super) fn slot(&self, opaque: i32) -> Option<u32> {
        u32::try_from(opaque.checked_sub(FIRST)?).ok().map(|number| number % self.slots)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_are_unique_and_know_their_slot() {
        let mut seen = HashSet::new();
        for connection in 0..3 {
            let mut opaques = Opaques::new(connection, 3, 5);
            for _ in 0..10 {
                for slot in 0..5 {
                    let opaque = opaques.next(slot);
                    assert_eq!(opaque.to_string().len(), 10);
                    assert_eq!(opaques.slot(opaque), Some(slot));
                    assert!(seen.insert(opaque));
                }
            }
        }
        assert_eq!(Opaques::new(0, 1, 5).slot(-1), None);
    }

    #[test]
    fn numbers_begin_anew_before_they_get_longer() {
        let mut opaques = Opaques::new(999, 1000, 1_000_000);
        for _ in 0..10 {
            assert_eq!(opaques.next(999_999).to_string().len(), 10);
        }
    }
}
