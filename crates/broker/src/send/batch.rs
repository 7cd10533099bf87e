//! Batches: one request, many messages (`docs/spec/03-broker.md` 2.7, `docs/spec/02-store.md` 4.7).

use std::ops::Range;
use std::sync::Arc;

use ferromq_protocol::header::Request;
use ferromq_protocol::message::{RecordFields, batch, properties as encoded, sysflag};
use ferromq_protocol::names;
use ferromq_protocol::send::SendHeader;
use ferromq_remoting::Connection;

use super::{Pending, SendRound, Settings, TopicLookup, check, illegal, properties, refuse_push, too_large};
use crate::answer::Refusal;
use crate::broker::Broker;
use crate::topics::is_batch;

impl SendRound {
    /// Takes in a batch: every message becomes a record of its own, with consecutive queue offsets. All or none.
    pub(super) fn take_batch(
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
        if header.topic.starts_with(names::RETRY_PREFIX) {
            let remark = format!("batch request does not support retry group {}", header.topic);
            return Err(illegal(remark));
        }
        let queue_id = check::choose_queue(header.queue_id, &topic)?;
        self.read_properties(header.properties.as_ref())?;

        // What the request says of all messages is appended to each one's own properties.
        let mut common = Vec::new();
        let directives = properties::take_in(&self.client_properties, &mut common)?;
        let no_transaction = header.sys_flag & sysflag::TRANSACTION_MASK == sysflag::TRANSACTION_NONE;
        if directives.delay_level > 0 || directives.timer || directives.transactional || !no_transaction {
            return Err(too_large(config));
        }
        if request.body.len() > config.max_message_size as usize {
            return Err(too_large(config));
        }
        self.unique_ids.extend_from_slice(&common[directives.unique_id.clone()]);
        let unique_id = self.unique_ids.len() - directives.unique_id.len()..self.unique_ids.len();
        common.extend_from_slice(&settings.own_properties);

        let mut messages: Vec<(batch::BatchMessage<'_>, Range<usize>)> = Vec::new();
        self.properties.clear();
        for message in batch::iter(request.body) {
            let message =
                message.map_err(|error| Refusal::system_error(error.to_string()).without_fields())?;
            let start = self.properties.len();
            let own = properties::take_in(message.properties, &mut self.properties)?;
            if own.delay_level > 0 || own.timer || own.transactional {
                let which = messages.len();
                return Err(illegal(format!(
                    "message {which} of the batch is delayed or transactional; send such messages one by one"
                )));
            }
            self.properties.extend_from_slice(&common);
            messages.push((message, start..self.properties.len()));
        }
        let mut sys_flag = header.sys_flag;
        if check::is_multi_tag(&topic) {
            sys_flag |= sysflag::MULTI_TAGS;
        }
        let inner_batch = is_batch(&topic) && !unique_id.is_empty();
        let queue = topics.queue(broker, queue_id);
        let first = self.batch.len();
        let record = |flag, sys_flag, body, properties| RecordFields {
            topic: &header.topic,
            queue_id,
            flag,
            sys_flag,
            born_timestamp: header.born_timestamp,
            born_host: connection.peer(),
            store_host: broker.store_host(),
            reconsume_times: header.reconsume_times,
            prepared_transaction_offset: 0,
            body,
            properties,
        };
        let pushed = if inner_batch {
            encoded::append(&mut common, "INNER_NUM", &messages.len().to_string());
            sys_flag |= sysflag::NEED_UNWRAP | sysflag::INNER_BATCH;
            let record = record(header.flag, sys_flag, request.body, &common[..]);
            self.batch.push(&queue.queue, &record).map(|()| 1)
        } else {
            let stored = &self.properties;
            let records = messages.iter().map(|(message, properties)| {
                record(message.flag, sys_flag, message.body, &stored[properties.clone()])
            });
            self.batch.push_group(&queue.queue, records)
        };
        let records = pushed.map_err(|error| refuse_push(config, &error))?;
        let count = self.count_for(queue);
        self.pending.push(Pending {
            count,
            opaque: request.opaque,
            oneway: request.is_oneway(),
            queue_id,
            first,
            records,
            messages: messages.len(),
            inner_batch,
            unique_id,
            wait: !directives.no_wait,
        });
        Ok(())
    }
}
