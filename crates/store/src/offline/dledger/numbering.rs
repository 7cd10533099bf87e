//! The queue offsets of the messages that are taken over.

use std::collections::HashMap;

use ferromq_protocol::message::{RecordView, sysflag};

/// Queue offsets that a queue of the source has given twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatedOffsets {
    /// Topic.
    pub topic: String,
    /// Queue of the topic.
    pub queue_id: i32,
    /// The first offset that was given again.
    pub from: i64,
    /// By how much the offsets behind it were raised in the end.
    pub raised_by: i64,
    /// Messages whose offset was raised.
    pub messages: u64,
}

/// Gives the messages their queue offsets, in the order of the log: those that they have.
///
/// A Java broker of 5.3 that was killed in DLedger mode cuts its queues too low and gives offsets again (`docs/spec/05-ha.md` §10.5,
/// 3a): acknowledged messages that no consumer could reach any more, and others with the same offsets behind them. Here the former
/// keep their offsets, and the latter come behind them. A group thus gets every message that it had not consumed, and some twice.
///
/// An offset 0 in the middle of a queue is none of that: the topic was deleted and made anew, and what lies before is not shown.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    queues: HashMap<String, HashMap<i32, Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    /// The offset behind the last one given, as far as another message bears it out.
    next: Option<i64>,
    /// The offset behind one that is not the next: messages before it are gone, or it is damaged (it has no checksum).
    doubtful: Option<i64>,
    raised_by: i64,
    repeated: Option<i64>,
    messages: u64,
}

impl Numbering {
    /// The queue offset of the next message of the log.
    pub(super) fn next(&mut self, record: &RecordView<'_>) -> i64 {
        let given = record.queue_offset();
        let flag = record.sys_flag();
        // A batch in one record takes as many offsets as it holds messages, and names the first one in its properties too.
        if !sysflag::takes_queue_offset(flag) || flag & sysflag::INNER_BATCH != 0 || given < 0 {
            return given;
        }
        // A whole record's topic is text.
        let topic = record.topic().unwrap_or_default();
        if !self.queues.contains_key(topic) {
            self.queues.insert(topic.to_owned(), HashMap::new());
        }
        let Some(queues) = self.queues.get_mut(topic) else { return given };
        queues.entry(record.queue_id()).or_default().next(given)
    }

    /// Whether the log has messages of a queue.
    pub(super) fn has(&self, topic: &str, queue_id: i32) -> bool {
        self.queues.get(topic).is_some_and(|queues| queues.contains_key(&queue_id))
    }

    /// Queues of which offsets were given twice.
    pub(super) fn repeated(&self) -> Vec<RepeatedOffsets> {
        let mut repeated = Vec::new();
        for (topic, queues) in &self.queues {
            repeated.extend(queues.iter().filter_map(|(queue_id, queue)| {
                let (topic, queue_id) = (topic.clone(), *queue_id);
                let Queue { raised_by, messages, .. } = *queue;
                queue.repeated.map(|from| RepeatedOffsets { topic, queue_id, from, raised_by, messages })
            }));
        }
        repeated.sort_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id)));
        repeated
    }
}

impl Queue {
    fn next(&mut self, given: i64) -> i64 {
        if given == 0 {
            *self = Queue { messages: self.messages, repeated: self.repeated, ..Queue::default() };
        }
        if let Some(next) = self.next.filter(|next| given.saturating_add(self.raised_by) < *next) {
            self.repeated.get_or_insert(given);
            self.raised_by = next - given;
        }
        let offset = given.saturating_add(self.raised_by);
        let behind = Some(offset.saturating_add(1));
        let is_borne_out = self.doubtful.is_some_and(|doubtful| offset >= doubtful);
        if offset == 0 || self.next == Some(offset) || is_borne_out {
            (self.next, self.doubtful) = (behind, None);
        } else {
            self.doubtful = behind;
        }
        self.messages += u64::from(offset != given);
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(given: &[i64]) -> (Vec<i64>, Queue) {
        let mut queue = Queue::default();
        (given.iter().map(|given| queue.next(*given)).collect(), queue)
    }

    #[test]
    fn offsets_stay_what_they_are() {
        assert_eq!(numbered(&[7, 8, 11, 12]).0, [7, 8, 11, 12]);
        // The topic was deleted and made anew.
        assert_eq!(numbered(&[0, 1, 2, 0, 1]).0, [0, 1, 2, 0, 1]);
        // One is damaged.
        assert_eq!(numbered(&[0, 1, 7_000_000, 3, 4]).0, [0, 1, 7_000_000, 3, 4]);
        assert_eq!(numbered(&[i64::MAX, 8, 9]).0, [i64::MAX, 8, 9]);
    }

    #[test]
    fn messages_whose_offsets_were_given_again_are_all_reached() {
        // Killed behind offset 4 and cut to 3; later killed behind 5 (now 7), and cut to 4 (now 6).
        let (offsets, queue) = numbered(&[0, 1, 2, 3, 4, 3, 4, 5, 4, 5, 6]);
        assert_eq!(offsets, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!((queue.repeated, queue.raised_by, queue.messages), (Some(3), 4, 6));
    }
}
