//! The send path: what producers send becomes records of the log (`docs/spec/03-broker.md` 2).
//!
//! Sends are not stored one by one. While the frames of one socket read are handled, each send is checked, its record
//! encoded into the [`SendRound`]'s batch, and its answer held back; [`SendRound::finish`] then appends the whole batch
//! under one lock and writes all answers. Any other request on the connection, and the end of the read, finish the
//! round first, so that answers keep the order of the requests.

mod answer;
mod batch;
mod check;
mod properties;
mod retry;
mod send_back;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use ferromq_protocol::code::response;
use ferromq_protocol::header::{FieldValue, Request};
use ferromq_protocol::message::{RecordFields, sysflag};
use ferromq_protocol::names;
use ferromq_protocol::send::SendHeader;
use ferromq_remoting::Connection;
use ferromq_store::{AppendBatch, PushError};

use crate::answer::Refusal;
use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::replication::acks::Acks;
use crate::topics::is_batch;
use answer::Stored;
pub(crate) use answer::refuse_append;
use check::QueueTarget;
pub(crate) use check::TopicLookup;
pub(crate) use properties::BrokerProperties;
pub(crate) use send_back::route;

/// MESSAGE_ILLEGAL with a sentence.
pub(crate) fn illegal(remark: impl Into<String>) -> Refusal {
    Refusal::new(response::MESSAGE_ILLEGAL, remark)
}

/// The remark that the reference gives for everything that is wrong with a message's sizes (2.9).
fn too_large(config: &BrokerConfig) -> Refusal {
    illegal(format!(
        "the message is illegal, maybe msg body or properties length not matched. msg body length limit {}B, msg \
         properties length limit 32KB.",
        config.max_message_size
    ))
}

/// The answer to a message that can't become a record.
fn refuse_push(config: &BrokerConfig, error: &PushError) -> Refusal {
    match error {
        PushError::Encode(_) | PushError::LargerThanFile { .. } => too_large(config),
        PushError::InnerBatch => illegal(error.to_string()),
    }
}

/// Sends of one connection between two writes to it.
pub(crate) struct SendRound {
    batch: AppendBatch,
    pending: Vec<Pending>,
    /// The unique ids of the pending sends, back to back.
    unique_ids: Vec<u8>,
    /// Message ids of the answer that is being written.
    message_ids: String,
    /// Properties as a client wrote them.
    client_properties: Vec<u8>,
    /// Properties as they are stored.
    properties: Vec<u8>,
    /// One entry for each queue that is written to.
    counts: Vec<QueueCount>,
    settings: Option<Settings>,
}

/// What a round stored in one queue.
struct QueueCount {
    target: Arc<QueueTarget>,
    puts: u64,
    messages: u64,
    bytes: u64,
}

/// What holds for all sends of a round.
struct Settings {
    config: Arc<BrokerConfig>,
    own_properties: Arc<[u8]>,
    began: Instant,
}

/// A send whose record is in the batch.
struct Pending {
    /// Position of its queue in the round's counts.
    count: usize,
    opaque: i32,
    oneway: bool,
    /// What the answer says, whatever became of the message.
    queue_id: i32,
    /// Position of its first record in the batch.
    first: usize,
    records: usize,
    /// Messages in these records.
    messages: usize,
    /// A batch in one record: the answer says its id.
    inner_batch: bool,
    unique_id: Range<usize>,
    /// Whether the answer waits for the disk and for replicas, if the settings say so.
    wait: bool,
}

/// Where a message goes once retries and delays have had their say.
struct Target<'a> {
    topic: Cow<'a, str>,
    queue_id: i32,
}

impl SendRound {
    pub(crate) fn new(broker: &Broker) -> Self {
        Self {
            batch: broker.store.new_batch(),
            pending: Vec::new(),
            unique_ids: Vec::new(),
            message_ids: String::new(),
            client_properties: Vec::new(),
            properties: Vec::new(),
            counts: Vec::new(),
            settings: None,
        }
    }

    /// Takes in one send. Its answer comes with [`finish`](Self::finish), unless it is refused at once.
    pub(crate) fn send(
        &mut self,
        broker: &Arc<Broker>,
        topics: &mut TopicLookup,
        connection: &Arc<Connection>,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) {
        let settings = self.settings.take().unwrap_or_else(|| Settings {
            config: broker.config(),
            own_properties: broker.properties.own(),
            began: Instant::now(),
        });
        let prepared = self.prepare(broker, topics, connection, request, &settings);
        self.settings = Some(settings);
        if let Err(refusal) = prepared {
            self.finish(broker, connection, out);
            if !request.is_oneway() {
                answer::write_refusal(out, connection.encoding(), &broker.config(), request.opaque, &refusal);
            }
        }
    }

    fn prepare(
        &mut self,
        broker: &Arc<Broker>,
        topics: &mut TopicLookup,
        connection: &Arc<Connection>,
        request: &Request<'_>,
        settings: &Settings,
    ) -> Result<(), Refusal> {
        let header = SendHeader::parse(request)?;
        if request.body.is_empty() {
            return Err(Refusal::system_error("a message needs a body, this one has none"));
        }
        let config = &settings.config;
        let checked = || -> Result<(), Refusal> {
            if broker.store.is_follower() && !config.enable_slave_acting_master {
                return Err(Refusal::rejected());
            }
            if !Acks::are_possible(broker, config) {
                return Err(Refusal::system_error("in-sync replicas not enough"));
            }
            check::accepts_sends_now(config)
        };
        checked().map_err(Refusal::with_field_map)?;
        let taken = if header.batch {
            self.take_batch(broker, topics, connection, request, &header, settings)
        } else {
            self.take_message(broker, topics, connection, request, &header, settings)
        };
        taken.map_err(Refusal::with_field_map)
    }

    fn take_message(
        &mut self,
        broker: &Arc<Broker>,
        topics: &mut TopicLookup,
        connection: &Arc<Connection>,
        request: &Request<'_>,
        header: &SendHeader<'_>,
        settings: &Settings,
    ) -> Result<(), Refusal> {
        let config = &*settings.config;
        let topic = topics.checked(broker, config, connection, header)?;
        let queue_id = check::choose_queue(header.queue_id, &topic)?;
        self.read_properties(header.properties.as_ref())?;
        self.properties.clear();
        let mut directives = properties::take_in(&self.client_properties, &mut self.properties)?;
        if directives.unique_id.is_empty() {
            directives.unique_id = broker.properties.append_unique_id(&mut self.properties);
        }

        let mut target = Target { topic: Cow::Borrowed(&*header.topic), queue_id };
        if let Some(group) = header.topic.strip_prefix(names::RETRY_PREFIX)
            && let Some(dead_letter) = retry::dead_letter_target(broker, group, header, request.version)?
        {
            target = dead_letter;
            // A dead letter waits for nothing, whatever its sender asked for.
            self.replace_properties(&[("DELAY", "-1")], &mut directives);
            (directives.delay_level, directives.timer) = (0, false);
        }
        let mut sys_flag = header.sys_flag;
        if check::is_multi_tag(&topic) {
            sys_flag |= sysflag::MULTI_TAGS;
        }
        if check::is_compacted(&topic) && !directives.has_keys {
            return Err(illegal("Required message key is missing"));
        }
        let transaction = sys_flag & sysflag::TRANSACTION_MASK;
        if directives.transactional && !(header.reconsume_times > 0 && directives.delay_level > 0) {
            return Err(Refusal::new(
                response::NO_PERMISSION,
                format!("the broker[{}] sending transaction message is forbidden", config.broker_ip1),
            ));
        }
        let inner_batch = sys_flag & sysflag::INNER_BATCH != 0;
        if directives.inner_batch != inner_batch
            || inner_batch
                && !(is_batch(&topic) && *target.topic == *header.topic && directives.delay_level <= 0)
        {
            return Err(too_large(config));
        }
        if directives.no_light_queue && config.enable_lmq {
            return Err(illegal(
                "the message property INNER_MULTI_DISPATCH names something else than light queues (%LMQ%…)",
            ));
        }
        if request.body.len() > config.max_message_size as usize {
            return Err(too_large(config));
        }
        if transaction == sysflag::TRANSACTION_NONE || transaction == sysflag::TRANSACTION_COMMIT {
            if directives.timer {
                let remark = "accurate timer message is not enabled, timerWheelEnable is false";
                return Err(Refusal::system_error(remark));
            }
            if directives.delay_level > 0 {
                self.delay(broker, &mut target, &mut directives);
            }
        }
        self.properties.extend_from_slice(&settings.own_properties);

        let queue = if *target.topic == *header.topic {
            topics.queue(broker, target.queue_id)
        } else {
            QueueTarget::new(broker, &target.topic, target.queue_id)
        };
        let record = RecordFields {
            topic: &target.topic,
            queue_id: target.queue_id,
            flag: header.flag,
            sys_flag,
            born_timestamp: header.born_timestamp,
            born_host: connection.peer(),
            store_host: broker.store_host(),
            reconsume_times: header.reconsume_times,
            prepared_transaction_offset: 0,
            body: request.body,
            properties: &self.properties,
        };
        let first = self.batch.len();
        self.batch.push(&queue.queue, &record).map_err(|error| refuse_push(config, &error))?;
        let unique_id = self.remember_unique_id(directives.unique_id);
        let count = self.count_for(queue);
        self.pending.push(Pending {
            count,
            opaque: request.opaque,
            oneway: request.is_oneway(),
            queue_id,
            first,
            records: 1,
            messages: 1,
            inner_batch: false,
            unique_id,
            wait: !directives.no_wait,
        });
        Ok(())
    }

    /// Sends a message with a delay level to the queue of that level (6.2).
    fn delay(&mut self, broker: &Broker, target: &mut Target<'_>, directives: &mut properties::Directives) {
        let level = directives.delay_level.min(broker.schedule.level_max());
        let real_queue = target.queue_id.to_string();
        let real_topic = std::mem::replace(&mut target.topic, Cow::Borrowed(names::SCHEDULE_TOPIC));
        target.queue_id = level - 1;
        let level = level.to_string();
        self.replace_properties(&properties::delay_changes(&level, &real_topic, &real_queue), directives);
    }

    fn replace_properties(&mut self, set: &[(&str, &str)], directives: &mut properties::Directives) {
        self.properties = properties::replaced(&self.properties, set);
        directives.unique_id = properties::unique_id(&self.properties);
    }

    fn read_properties(&mut self, value: Option<&FieldValue<'_>>) -> Result<(), Refusal> {
        self.client_properties.clear();
        if let Some(value) = value {
            value.append_to(&mut self.client_properties)?;
        }
        Ok(())
    }

    fn remember_unique_id(&mut self, in_properties: Range<usize>) -> Range<usize> {
        let start = self.unique_ids.len();
        self.unique_ids.extend_from_slice(&self.properties[in_properties]);
        start..self.unique_ids.len()
    }

    /// Where the round counts what it stores in this queue.
    fn count_for(&mut self, target: Arc<QueueTarget>) -> usize {
        let known = self.counts.iter().rposition(|count| Arc::ptr_eq(&count.target, &target));
        known.unwrap_or_else(|| {
            self.counts.push(QueueCount { target, puts: 0, messages: 0, bytes: 0 });
            self.counts.len() - 1
        })
    }

    /// Stores what was taken in and writes the answers.
    pub(crate) fn finish(&mut self, broker: &Arc<Broker>, connection: &Arc<Connection>, out: &mut Vec<u8>) {
        let Some(settings) = self.settings.take() else { return };
        if self.pending.is_empty() {
            return;
        }
        let acks = Acks::wanted(broker, &settings.config);
        let appended = broker.store.append(&mut self.batch);
        let outcomes = self.batch.outcomes();
        let mut parked: Vec<Stored<'static>> = Vec::new();
        let mut last_end = 0;
        let put_millis = settings.began.elapsed().as_millis() as u64;
        for pending in &self.pending {
            let records = outcomes.get(pending.first..pending.first + pending.records);
            let Some(records) = records else {
                if let (Err(error), false) = (&appended, pending.oneway) {
                    let refusal = refuse_append(broker, error).with_field_map();
                    answer::write_refusal(
                        out,
                        connection.encoding(),
                        &settings.config,
                        pending.opaque,
                        &refusal,
                    );
                }
                continue;
            };
            let count = &mut self.counts[pending.count];
            count.puts += 1;
            count.messages += pending.messages as u64;
            count.bytes += records.iter().map(|record| u64::from(record.size)).sum::<u64>();
            if pending.oneway {
                continue;
            }
            let stored = Stored {
                opaque: pending.opaque,
                queue_id: pending.queue_id,
                queue_offset: records[0].queue_offset,
                unique_id: Cow::Borrowed(
                    std::str::from_utf8(&self.unique_ids[pending.unique_id.clone()]).unwrap_or(""),
                ),
                inner_batch: pending.inner_batch,
                records: Cow::Borrowed(records),
            };
            match acks.at_once(pending.wait) {
                Some(code) => {
                    let ids = &mut self.message_ids;
                    stored.write(out, ids, connection.encoding(), broker, &settings.config, code);
                }
                None => {
                    last_end = records[records.len() - 1].end();
                    parked.push(stored.into_owned());
                }
            }
        }
        if !parked.is_empty() {
            answer_later(broker.clone(), connection.clone(), settings.config, acks, parked, last_end);
        }
        for count in self.counts.drain(..).filter(|count| count.puts > 0) {
            count.target.stats.add_many(count.puts, count.messages, count.bytes);
            count.target.latency.add(count.puts * put_millis, count.puts);
        }
        self.pending.clear();
        self.unique_ids.clear();
        self.batch.clear();
    }
}

/// Answers stored sends once everything up to `end` is as safe as the settings demand, or says that this took too long.
fn answer_later(
    broker: Arc<Broker>,
    connection: Arc<Connection>,
    config: Arc<BrokerConfig>,
    acks: Acks,
    parked: Vec<Stored<'static>>,
    end: u64,
) {
    tokio::spawn(async move {
        let reached = acks.wait(&broker, &config, end).await;
        let mut ids = String::new();
        connection.send_with(|out| {
            for stored in &parked {
                match reached.code(stored.end()) {
                    Ok(code) => stored.write(out, &mut ids, connection.encoding(), &broker, &config, code),
                    Err(refusal) => {
                        let refusal = refusal.with_field_map();
                        answer::write_refusal(out, connection.encoding(), &config, stored.opaque, &refusal);
                    }
                }
            }
        });
    });
}

#[cfg(test)]
mod tests;
