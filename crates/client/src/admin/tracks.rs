//! Who has consumed a message (`docs/spec/10-admin.md` 2).

use ferromq_protocol::body::{ConsumeType, ConsumerConnection, MessageModel, SUB_ALL};
use ferromq_protocol::code::response;

use super::Admin;
use crate::error::Error;
use crate::message::MessageExt;

/// What became of a message in one consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageTrack {
    /// The group.
    pub consumer_group: String,
    /// What became of it.
    pub track_type: TrackType,
    /// What was said if it could not be found out.
    pub exception_desc: Option<String>,
}

/// What became of a message in a group, as far as the group's offsets tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackType {
    /// The group's progress is behind it.
    Consumed,
    /// The same, but the group's filter does not let it pass.
    ConsumedButFiltered,
    /// Pull consumers: only they know.
    Pull,
    /// The group's progress is before it.
    NotConsumeYet,
    /// Nobody of the group is there.
    NotOnline,
    /// Every member gets it, at its own pace.
    ConsumeBroadcasting,
    /// It could not be found out.
    Unknown,
}

impl Admin {
    /// What became of a message in each group that consumes its topic.
    ///
    /// # Errors
    /// If a broker of the topic does not answer. Problems with single groups are told in their tracks.
    pub async fn message_track_detail(&self, message: &MessageExt) -> Result<Vec<MessageTrack>, Error> {
        let mut tracks = Vec::new();
        for group in self.groups_of_topic(message.topic()).await? {
            let (track_type, exception_desc) = match self.track(&group, message).await {
                Ok(track_type) => (track_type, None),
                Err(error) => {
                    let is_offline = error.response_code() == Some(response::CONSUMER_NOT_ONLINE);
                    let kind = if is_offline { TrackType::NotOnline } else { TrackType::Unknown };
                    (kind, Some(error.to_string()))
                }
            };
            tracks.push(MessageTrack { consumer_group: group, track_type, exception_desc });
        }
        Ok(tracks)
    }

    async fn track(&self, group: &str, message: &MessageExt) -> Result<TrackType, Error> {
        let consumers = self.consumer_connection(group).await?;
        match (consumers.consume_type, consumers.message_model) {
            (Some(ConsumeType::ConsumeActively), _) => return Ok(TrackType::Pull),
            (_, Some(MessageModel::Broadcasting)) => return Ok(TrackType::ConsumeBroadcasting),
            (Some(ConsumeType::ConsumePassively), _) => {}
            _ => return Ok(TrackType::Unknown),
        }
        let progress = self.consume_stats(group, Some(message.topic())).await?;
        let is_consumed = progress
            .offset_table
            .get(&message.queue)
            .is_some_and(|offsets| offsets.consumer_offset > message.queue_offset);
        Ok(match is_consumed {
            false => TrackType::NotConsumeYet,
            true if is_filtered(&consumers, message) => TrackType::ConsumedButFiltered,
            true => TrackType::Consumed,
        })
    }
}

/// Whether a group's filter by tags keeps a message from it.
fn is_filtered(consumers: &ConsumerConnection, message: &MessageExt) -> bool {
    consumers.subscription_table.get(message.topic()).is_some_and(|subscription| {
        let tags = &subscription.tags_set;
        !tags.is_empty() && !tags.contains(SUB_ALL) && !tags.contains(message.tags().unwrap_or_default())
    })
}
