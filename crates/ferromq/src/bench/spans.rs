//! Whether the offsets that a server gave out can be true.

/// The offsets that one queue gave out, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    count: u64,
    min: i64,
    max: i64,
    sum: i128,
}

impl Default for Span {
    fn default() -> Self {
        Self { count: 0, min: i64::MAX, max: i64::MIN, sum: 0 }
    }
}

impl Span {
    /// Notes that `count` messages got the offsets from `first` on.
    pub(super) fn add(&mut self, first: i64, count: u32) {
        let last = first.saturating_add(i64::from(count) - 1);
        self.count += u64::from(count);
        self.min = self.min.min(first);
        self.max = self.max.max(last);
        self.sum += (i128::from(first) + i128::from(last)) * i128::from(count) / 2;
    }

    /// Joins what another thread noted of the same queue.
    pub(super) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }

    /// What is wrong with the offsets: a negative one, fewer than there were messages, or, when the queue had no other
    /// producer, one given twice.
    pub(super) fn problem(&self) -> Option<String> {
        if self.count == 0 {
            return None;
        }
        if self.min < 0 {
            return Some(format!("a message got the offset {}", self.min));
        }
        let Self { count, min, max, sum } = *self;
        let offsets = (i128::from(max) - i128::from(min) + 1) as u128;
        if offsets < u128::from(count) {
            return Some(format!("{count} messages got only {offsets} offsets ({min} to {max})"));
        }
        let expected = (i128::from(min) + i128::from(max)) * i128::from(count) / 2;
        if offsets == u128::from(count) && sum != expected {
            return Some(format!("of the offsets {min} to {max} some were given twice and some never"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(adds: &[(i64, u32)]) -> Span {
        let mut span = Span::default();
        for (first, count) in adds {
            span.add(*first, *count);
        }
        span
    }

    #[test]
    fn offsets_in_any_order_are_fine() {
        assert_eq!(Span::default().problem(), None);
        assert_eq!(span(&[(7, 1), (5, 2), (8, 3)]).problem(), None);
        // Somebody else sent there too.
        assert_eq!(span(&[(0, 1), (100, 1)]).problem(), None);
    }

    #[test]
    fn offsets_given_twice_are_found() {
        assert!(span(&[(5, 1), (5, 1)]).problem().unwrap().contains("2 messages got only 1 offsets"));
        assert!(span(&[(0, 1), (1, 1), (1, 1), (3, 1)]).problem().unwrap().contains("twice"));
        assert!(span(&[(-1, 1)]).problem().is_some());
        let mut merged = span(&[(0, 3)]);
        merged.merge(&span(&[(2, 1)]));
        assert!(merged.problem().is_some());
    }
}
