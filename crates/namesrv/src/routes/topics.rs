//! Changes of single topics, and of a broker's permission to take messages (`docs/spec/06-namesrv.md` 7).

use ferromq_protocol::body::QueueData;

use super::{PERM_READ_WRITE, PERM_WRITE, Tables, TopicQueues};

impl Tables {
    /// Adds queues of one topic. Those of an unknown broker end it: of a topic that was known, the queues before them
    /// are taken all the same, of a new one none.
    pub(crate) fn register_topic(&mut self, topic: &str, queues: Vec<QueueData>) {
        let known =
            queues.iter().take_while(|queue| self.broker_addr_table.contains_key(&queue.broker_name)).count();
        if known < queues.len() {
            tracing::warn!(
                topic,
                broker_name = queues[known].broker_name,
                "topic registered on an unknown broker"
            );
        }
        let is_new = !self.topic_queue_table.contains_key(topic);
        if queues.is_empty() || is_new && known < queues.len() {
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
