//! How the members of a group share out the queues of a topic (`docs/spec/07-client.md` 14.6).
//!
//! All members compute the same from the same lists, so they need not talk to each other. That works only if all of
//! them, in whatever language, use the same strategy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ferromq_protocol::body::MessageQueue;

use super::consistent_hash;

/// Finds the room that a broker or a client is in.
pub type RoomOf = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// A rule by which queues are shared out.
#[derive(Clone, Default)]
pub enum AllocateStrategy {
    /// Neighbouring queues to one member, as evenly as possible (`AVG`).
    #[default]
    Average,
    /// Queues dealt out like cards (`AVG_BY_CIRCLE`).
    AverageByCircle,
    /// Always these queues, whoever else is there (`CONFIG`).
    Config(Vec<MessageQueue>),
    /// The queues of brokers that are called `room@name`, of these rooms, evenly (`MACHINE_ROOM`).
    MachineRoom(BTreeSet<String>),
    /// Queues to members in the same room; those of rooms without any member to all (`MACHINE_ROOM_NEARBY`).
    MachineRoomNearby {
        /// How queues are shared out within a room.
        inner: Box<AllocateStrategy>,
        /// Room of a broker, by its name.
        room_of_broker: RoomOf,
        /// Room of a member, by its client id.
        room_of_client: RoomOf,
    },
    /// By a ring of hashes: few queues change hands when members come and go (`CONSISTENT_HASH`).
    ConsistentHash {
        /// Places of a member on the ring; 10 is usual.
        virtual_nodes: usize,
    },
}

impl AllocateStrategy {
    /// Its name, as it is shown to administrators and told to brokers.
    pub fn name(&self) -> String {
        match self {
            Self::Average => "AVG".to_owned(),
            Self::AverageByCircle => "AVG_BY_CIRCLE".to_owned(),
            Self::Config(_) => "CONFIG".to_owned(),
            Self::MachineRoom(_) => "MACHINE_ROOM".to_owned(),
            Self::MachineRoomNearby { inner, .. } => format!("MACHINE_ROOM_NEARBY-{}", inner.name()),
            Self::ConsistentHash { .. } => "CONSISTENT_HASH".to_owned(),
        }
    }

    /// Whether brokers can share out queues by it, too.
    pub(crate) fn is_known_to_brokers(&self) -> bool {
        matches!(self, Self::Average | Self::AverageByCircle)
    }

    /// The share of member `me`. `queues` and `members` must be sorted. `None`: the rule can't be applied, and everything
    /// should stay as it is.
    pub(crate) fn allocate(
        &self,
        me: &str,
        queues: &[MessageQueue],
        members: &[String],
    ) -> Option<Vec<MessageQueue>> {
        if let Self::Config(queues) = self {
            return Some(queues.clone());
        }
        if me.is_empty() || queues.is_empty() || members.is_empty() {
            return None;
        }
        let Some(position) = members.iter().position(|member| member == me) else { return Some(Vec::new()) };
        let (me_at, count) = (position, members.len());
        Some(match self {
            Self::Config(queues) => queues.clone(),
            Self::Average => average(me_at, count, queues).to_vec(),
            Self::AverageByCircle => queues.iter().skip(me_at).step_by(count).cloned().collect(),
            Self::MachineRoom(rooms) => {
                let room = |queue: &&MessageQueue| match queue.broker_name.split_once('@') {
                    Some((room, name)) => rooms.contains(room) && !name.contains('@'),
                    None => false,
                };
                let mine: Vec<&MessageQueue> = queues.iter().filter(room).collect();
                let (each, rest) = (mine.len() / count, mine.len() % count);
                let extra = (rest > me_at).then(|| me_at + each * count);
                let share = mine[each * me_at..each * (me_at + 1)].iter();
                share.copied().chain(extra.map(|at| mine[at])).cloned().collect()
            }
            Self::MachineRoomNearby { inner, room_of_broker, room_of_client } => {
                return nearby(me, queues, members, inner, room_of_broker, room_of_client);
            }
            Self::ConsistentHash { virtual_nodes } => {
                let ring = consistent_hash::Ring::new(members, *virtual_nodes);
                let mine = |queue: &&MessageQueue| ring.owner(&queue.to_string()) == Some(me);
                queues.iter().filter(mine).cloned().collect()
            }
        })
    }
}

fn average(me_at: usize, count: usize, queues: &[MessageQueue]) -> &[MessageQueue] {
    let rest = queues.len() % count;
    let has_one_more = me_at < rest;
    let size = if queues.len() <= count { 1 } else { queues.len() / count + usize::from(has_one_more) };
    let start = if rest > 0 && has_one_more { me_at * size } else { me_at * size + rest };
    let end = (start + size).min(queues.len());
    queues.get(start..end).unwrap_or_default()
}

fn nearby(
    me: &str,
    queues: &[MessageQueue],
    members: &[String],
    inner: &AllocateStrategy,
    room_of_broker: &RoomOf,
    room_of_client: &RoomOf,
) -> Option<Vec<MessageQueue>> {
    let mut queue_rooms: BTreeMap<String, Vec<MessageQueue>> = BTreeMap::new();
    for queue in queues {
        let room = room_of_broker(&queue.broker_name).filter(|room| !room.is_empty())?;
        queue_rooms.entry(room).or_default().push(queue.clone());
    }
    let mut member_rooms: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for member in members {
        let room = room_of_client(member).filter(|room| !room.is_empty())?;
        member_rooms.entry(room).or_default().push(member.clone());
    }
    let my_room = room_of_client(me)?;
    let mut mine = Vec::new();
    if let (Some(queues), Some(members)) = (queue_rooms.get(&my_room), member_rooms.get(&my_room)) {
        mine.extend(inner.allocate(me, queues, members)?);
    }
    for (room, queues) in &queue_rooms {
        if !member_rooms.contains_key(room) {
            mine.extend(inner.allocate(me, queues, members)?);
        }
    }
    Some(mine)
}

impl fmt::Debug for AllocateStrategy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(brokers: &[&str], count: i32) -> Vec<MessageQueue> {
        let queues = |broker: &&str| {
            let broker = (*broker).to_owned();
            (0..count).map(move |id| MessageQueue::new("T", broker.clone(), id))
        };
        brokers.iter().flat_map(queues).collect()
    }

    /// The share of each member, queues shortened to the last letter of the broker and the id.
    fn shares(strategy: &AllocateStrategy, queues: &[MessageQueue], members: &[&str]) -> Vec<String> {
        let members: Vec<String> = members.iter().map(|member| (*member).to_owned()).collect();
        let share = |me: &String| {
            let share = strategy.allocate(me, queues, &members).unwrap();
            let short =
                |q: &MessageQueue| format!("{}{}", &q.broker_name[q.broker_name.len() - 1..], q.queue_id);
            share.iter().map(short).collect::<Vec<_>>().join(" ")
        };
        members.iter().map(share).collect()
    }

    const MEMBERS: [&str; 3] = ["c1@1", "c2@2", "c3@3"];

    #[test]
    fn shares_of_the_spec_25_10() {
        let queues = queues(&["broker-a", "broker-b"], 4);
        let of = |strategy| shares(&strategy, &queues, &MEMBERS);
        assert_eq!(of(AllocateStrategy::Average), ["a0 a1 a2", "a3 b0 b1", "b2 b3"]);
        assert_eq!(of(AllocateStrategy::AverageByCircle), ["a0 a3 b2", "a1 b0 b3", "a2 b1"]);
        let hash = AllocateStrategy::ConsistentHash { virtual_nodes: 10 };
        assert_eq!(of(hash), ["a2 b2", "a0 a3", "a1 b0 b1 b3"]);
        assert_eq!(shares(&AllocateStrategy::Average, &queues[..2], &MEMBERS), ["a0", "a1", ""]);
    }

    #[test]
    fn machine_rooms_of_the_spec_25_10() {
        let queues = queues(&["idc1@b1", "idc2@b2", "idc3@b3"], 3);
        let rooms = AllocateStrategy::MachineRoom(BTreeSet::from(["idc1", "idc2"].map(str::to_owned)));
        assert_eq!(shares(&rooms, &queues, &["c1@1", "c2@2"]), ["10 11 12", "20 21 22"]);
        assert_eq!(shares(&rooms, &queues, &["a", "b", "c", "d"]), ["10 21", "11 22", "12", "20"]);
        let room_of: RoomOf = Arc::new(|name| name.split('@').next().map(str::to_owned));
        let nearby = AllocateStrategy::MachineRoomNearby {
            inner: Box::default(),
            room_of_broker: room_of.clone(),
            room_of_client: room_of,
        };
        assert_eq!(nearby.name(), "MACHINE_ROOM_NEARBY-AVG");
        let found = shares(&nearby, &queues, &["idc1@x", "idc1@y", "idc2@z"]);
        assert_eq!(found, ["10 11 30", "12 31", "20 21 22 32"]);
    }

    #[test]
    fn strangers_get_nothing_and_missing_lists_change_nothing() {
        let queues = queues(&["a"], 2);
        let members = vec!["me".to_owned()];
        let average = AllocateStrategy::Average;
        assert_eq!(average.allocate("other", &queues, &members), Some(Vec::new()));
        assert_eq!(average.allocate("me", &[], &members), None);
        assert_eq!(average.allocate("me", &queues, &[]), None);
        let fixed = AllocateStrategy::Config(queues.clone());
        assert_eq!(fixed.allocate("me", &[], &[]), Some(queues));
    }

    #[test]
    fn every_queue_has_one_owner() {
        for strategy in [
            AllocateStrategy::Average,
            AllocateStrategy::AverageByCircle,
            AllocateStrategy::ConsistentHash { virtual_nodes: 10 },
        ] {
            for count in 1..12 {
                let queues = queues(&["a", "b"], count);
                for members in 1..12 {
                    let members: Vec<String> = (0..members).map(|number| format!("m{number:02}")).collect();
                    let each = |me: &String| strategy.allocate(me, &queues, &members).unwrap();
                    let mut all: Vec<MessageQueue> = members.iter().flat_map(each).collect();
                    all.sort();
                    assert_eq!(all, queues, "{strategy:?}, {count} queues");
                }
            }
        }
    }
}
