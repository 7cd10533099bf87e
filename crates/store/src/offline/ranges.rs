//! Parts of the log that hold nothing whole.

/// Half-open ranges, ascending.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    ranges: Vec<(u64, u64)>,
}

/// Ranges that are remembered one by one. A log that is damaged in more places is remembered coarsely from there on.
const RANGES_MAX: usize = 1 << 20;

impl Ranges {
    /// Adds a range that lies behind all others.
    pub(super) fn push(&mut self, from: u64, to: u64) {
        let is_full = self.ranges.len() >= RANGES_MAX;
        match self.ranges.last_mut() {
            Some(last) if is_full || from <= last.1 => last.1 = last.1.max(to),
            _ => self.ranges.push((from, to)),
        }
    }

    pub(super) fn contains(&self, offset: u64) -> bool {
        let behind = self.ranges.partition_point(|(from, _)| *from <= offset);
        behind.checked_sub(1).is_some_and(|at| offset < self.ranges[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_found_in_their_ranges() {
        let mut ranges = Ranges::default();
        ranges.push(10, 20);
        ranges.push(20, 30);
        ranges.push(40, 50);
        let contained: Vec<u64> =
            [9, 10, 29, 30, 39, 40, 49, 50].into_iter().filter(|at| ranges.contains(*at)).collect();
        assert_eq!(contained, [10, 29, 40, 49]);
        assert!(!Ranges::default().contains(0));
    }
}
