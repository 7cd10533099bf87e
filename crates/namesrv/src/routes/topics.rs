//! Changes of single topics, and of a broker's permission to take messages (`docs/spec/06-namesrv.md` 7).

use ferromq_protocol::body::QueueData;

use super::{NAME_BYTES_MAX, PERM_READ_WRITE, PERM_WRITE, Tables, TopicQueues};

impl Tables {
    /// Adds queues of one topic. Those of an unknown broker end it: of a topic that was known, the queues before them
    /// are taken all the same, of a new one none.
    pub(crate) fn register_topic(&mut self, topic: &str, queues: Vec<QueueData>) {
        let known =
            queues.iter().take_while(|queue| self.broker_addr_table.contains_key(&queue.broker_name)).count();
        if known < queues.len() {
            warn_now_and_then!(
                topic,
                broker_name = queues[known].broker_name,
                "topic registered on an unknown broker"
            );
        }
        let is_new = !self.topic_queue_table.contains_key(topic);
        let has_room = !is_new || topic.len() <= NAME_BYTES_MAX && self.has_room_for_topics(1);
        if queues.is_empty() || is_new && known < queues.len() || !has_room {
            return;
        }
        let table: &mut TopicQueues = self.topic_queue_table.entry(topic.to_owned()).or_default();
        queues.into_iter().take(known).for_each(|queue| table.set(queue));
    }

    /// Forgets a topic, in one cluster or in all.
    pub(crate) fn delete_topic(&mut self, topic: &str, cluster_name: Option<&str>) {
        let Some(cluster_name) = cluster_name else {
            self.topic_queue_table.remove(topic);
            return;
        };
        let Some(broker_names) = self.cluster_addr_table.get(cluster_name) else { return };
        let Some(queues) = self.topic_queue_table.get_mut(topic) else { return };
        queues.0.retain(|queue| !broker_names.contains(&queue.broker_name));
        if queues.0.is_empty() {
            self.topic_queue_table.remove(topic);
        }
    }

    /// Keeps producers away from a broker, and returns the number of its topics.
    pub(crate) fn wipe_write_perm(&mut self, broker_name: &str) -> usize {
        self.change_perm(broker_name, |perm| perm & !PERM_WRITE)
    }

    /// Undoes [`wipe_write_perm`](Self::wipe_write_perm). Whatever the permissions were, they are read and write now.
    pub(crate) fn add_write_perm(&mut self, broker_name: &str) -> usize {
        self.change_perm(broker_name, |_| PERM_READ_WRITE)
    }

    fn change_perm(&mut self, broker_name: &str, change: impl Fn(i32) -> i32) -> usize {
        let queues = self.topic_queue_table.values_mut().filter_map(|queues| queues.get_mut(broker_name));
        queues.map(|queue| queue.perm = change(queue.perm)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::registration;
    use super::*;

    fn queue(broker_name: &str, perm: i32) -> QueueData {
        QueueData { broker_name: broker_name.to_owned(), perm, ..QueueData::default() }
    }

    #[test]
    fn an_unknown_broker_ends_the_registration_of_a_topic() {
        let mut tables = Tables::default();
        tables.take(registration("a", 0, "a0", &["T", "U"])).unwrap();
        tables.take(registration("b", 0, "b0", &["T", "U"])).unwrap();
        tables.register_topic("New", vec![queue("a", 4), queue("unknown", 4)]);
        assert_eq!(tables.route("New", false), None);
        tables.register_topic("T", vec![queue("a", 4), queue("unknown", 4), queue("b", 4)]);
        let perms: Vec<_> = tables.route_of("T").queue_datas.iter().map(|queue| queue.perm).collect();
        assert_eq!(perms, [4, 6]);
        tables.register_topic("New", vec![queue("b", 4)]);
        assert_eq!(tables.perm("New"), 4);
        tables.register_topic("Empty", Vec::new());
        assert!(!tables.all_topics().topic_list.contains(&"Empty".to_owned()));
    }

    #[test]
    fn a_topic_is_deleted_in_one_cluster_or_in_all() {
        let mut tables = Tables::default();
        tables.take(registration("a", 0, "a0", &["T", "U"])).unwrap();
        let mut other = registration("b", 0, "b0", &["T", "U"]);
        other.broker.cluster_name = "Other".to_owned();
        tables.take(other).unwrap();
        tables.delete_topic("T", Some("unknown"));
        assert_eq!(tables.route_of("T").queue_datas.len(), 2);
        tables.delete_topic("T", Some("C"));
        assert_eq!(tables.route_of("T").queue_datas[0].broker_name, "b");
        tables.delete_topic("T", Some("Other"));
        assert_eq!(tables.route("T", false), None);
        tables.delete_topic("U", None);
        assert!(tables.all_topics().topic_list.is_empty());
    }
}
