//! The messages of a queue between the oldest and the newest one that are not finished.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use crate::message::MessageExt;

/// Messages by queue offset. They come with rising offsets and leave in almost the same order, which is what this is quick
/// at; any other order is right, too.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// By offset, with a message in the first one and the last one.
    places: VecDeque<Place>,
    /// Places that have a message.
    count: usize,
}

#[derive(Debug)]
struct Place {
    offset: i64,
    /// `None` when it has left.
    cached: Option<Cached>,
}

/// A message that is not finished.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) message: Arc<MessageExt>,
    /// When the listener got it.
    pub(super) started: Option<Instant>,
}

impl Cached {
    /// One that waits for the listener.
    pub(super) fn waiting(message: Arc<MessageExt>) -> Self {
        Self { message, started: None }
    }
}

impl Window {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Puts a message at its offset, and returns the one that was there.
    pub(super) fn insert(&mut self, cached: Cached) -> Option<Cached> {
        let offset = cached.message.queue_offset;
        let new = Place { offset, cached: Some(cached) };
        let before = match self.places.back() {
            Some(last) if offset <= last.offset => match self.find(offset) {
                Ok(at) => std::mem::replace(&mut self.places[at], new).cached,
                Err(at) => {
                    self.places.insert(at, new);
                    None
                }
            },
            _ => {
                self.places.push_back(new);
                None
            }
        };
        self.count += usize::from(before.is_none());
        before
    }

    /// The message at an offset.
    pub(super) fn get_mut(&mut self, offset: i64) -> Option<&mut Cached> {
        let at = self.find(offset).ok()?;
        self.places[at].cached.as_mut()
    }

    /// Takes the message at an offset out.
    pub(super) fn remove(&mut self, offset: i64) -> Option<Cached> {
        let at = self.find(offset).ok()?;
        let removed = self.places[at].cached.take()?;
        self.count -= 1;
        while self.places.front().is_some_and(|place| place.cached.is_none()) {
            self.places.pop_front();
        }
        while self.places.back().is_some_and(|place| place.cached.is_none()) {
            self.places.pop_back();
        }
        Some(removed)
    }

    /// Takes the first message out.
    pub(super) fn pop_first(&mut self) -> Option<Cached> {
        let first = self.first_offset()?;
        self.remove(first)
    }

    pub(super) fn first(&self) -> Option<&Cached> {
        self.places.front()?.cached.as_ref()
    }

    pub(super) fn first_offset(&self) -> Option<i64> {
        Some(self.places.front()?.offset)
    }

    pub(super) fn last_offset(&self) -> Option<i64> {
        Some(self.places.back()?.offset)
    }

    /// Takes all messages out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Cached> {
        self.count = 0;
        std::mem::take(&mut self.places).into_iter().filter_map(|place| place.cached)
    }

    /// The place of an offset, or where it would be.
    fn find(&self, offset: i64) -> Result<usize, usize> {
        match self.first_offset() {
            Some(first) if first == offset => Ok(0),
            _ => self.places.binary_search_by_key(&offset, |place| place.offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::testing::message;
    use super::*;

    fn waiting(offset: i64) -> Cached {
        Cached::waiting(Arc::new(message("T", offset)))
    }

    #[test]
    fn it_is_a_map_whatever_comes_and_leaves() {
        let (mut window, mut map) = (Window::default(), BTreeMap::new());
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let offset = random.i64(0..24);
            match random.u8(0..8) {
                0..3 => {
                    assert_eq!(window.insert(waiting(offset)).is_some(), map.insert(offset, ()).is_some());
                }
                3..7 => assert_eq!(window.remove(offset).is_some(), map.remove(&offset).is_some()),
                _ => {
                    let first = window.pop_first().map(|cached| cached.message.queue_offset);
                    assert_eq!(first, map.pop_first().map(|(offset, ())| offset));
                }
            }
            assert_eq!(window.get_mut(offset).is_some(), map.contains_key(&offset));
            assert_eq!((window.len(), window.is_empty()), (map.len(), map.is_empty()));
            assert_eq!(window.first_offset(), map.first_key_value().map(|(offset, ())| *offset));
            assert_eq!(window.last_offset(), map.last_key_value().map(|(offset, ())| *offset));
            assert_eq!(window.first().map(|cached| cached.message.queue_offset), window.first_offset());
        }
        let drained: Vec<_> = window.drain().map(|cached| cached.message.queue_offset).collect();
        assert_eq!(drained, map.into_keys().collect::<Vec<_>>());
        assert!(window.is_empty() && window.first().is_none());
    }

    #[test]
    fn what_is_finished_between_others_takes_no_room_for_long() {
        let mut window = Window::default();
        (0..10).for_each(|offset| drop(window.insert(waiting(offset))));
        (1..9).for_each(|offset| drop(window.remove(offset)));
        assert_eq!((window.len(), window.places.len()), (2, 10));
        window.remove(0);
        assert_eq!((window.len(), window.places.len()), (1, 1));
    }
}
