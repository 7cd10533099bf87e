//! Requests before the load: routes, topics, offsets. One at a time, on a connection of their own.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::{self, HeaderEncoding};
use ferromq_protocol::json::{self, Value};

use super::error::BenchError;
use super::link;
use super::settings::LoadArgs;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Topic whose route leads to the brokers that create topics by themselves.
const AUTO_CREATE_TOPIC: &str = "TBW102";

/// A broker to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broker {
    pub(super) address: String,
    pub(super) name: String,
}

/// A connection that waits for each answer.
pub(super) struct Control {
    address: String,
    stream: TcpStream,
    opaque: i32,
}

impl Control {
    pub(super) fn connect(address: &str) -> Result<Self, BenchError> {
        let stream = link::connect(address)?;
        stream
            .set_read_timeout(Some(ANSWER_TIMEOUT))
            .map_err(|source| BenchError::Connect { address: address.to_owned(), source })?;
        Ok(Self { address: address.to_owned(), stream, opaque: 0 })
    }

    /// Sends a request and returns its answer, whatever its code.
    fn ask(&mut self, mut command: RemotingCommand) -> Result<RemotingCommand, BenchError> {
        let broken = |source| BenchError::Io { address: self.address.clone(), source };
        self.opaque += 1;
        command.opaque = self.opaque;
        let mut bytes = Vec::new();
        command.encode(HeaderEncoding::Json, &mut bytes);
        self.stream.write_all(&bytes).map_err(broken)?;
        bytes.clear();
        let mut buffer = [0; 16 * 1024];
        loop {
            let length = self.stream.read(&mut buffer).map_err(broken)?;
            if length == 0 {
                return Err(BenchError::Closed { address: self.address.clone(), unanswered: 1 });
            }
            bytes.extend_from_slice(&buffer[..length]);
            while let Some((frame, length)) = frame::split(&bytes)
                .map_err(|source| BenchError::Frame { address: self.address.clone(), source })?
            {
                let answer = RemotingCommand::decode(&frame)
                    .map_err(|source| BenchError::Header { address: self.address.clone(), source })?;
                if answer.is_response() && answer.opaque == self.opaque {
                    return Ok(answer);
                }
                bytes.drain(..length);
            }
        }
    }

    /// Sends a request that has to succeed.
    fn demand(&mut self, action: &str, command: RemotingCommand) -> Result<RemotingCommand, BenchError> {
        let answer = self.ask(command)?;
        if answer.code == response::SUCCESS {
            return Ok(answer);
        }
        Err(BenchError::Refused {
            address: self.address.clone(),
            action: action.to_owned(),
            code: answer.code,
            remark: answer.remark.unwrap_or_default(),
        })
    }

    /// Creates a topic, or gives it this number of queues.
    pub(super) fn create_topic(&mut self, topic: &str, queues: u32) -> Result<(), BenchError> {
        let command = RemotingCommand::request(request::UPDATE_AND_CREATE_TOPIC)
            .with("topic", topic)
            .with("defaultTopic", AUTO_CREATE_TOPIC)
            .with("readQueueNums", queues)
            .with("writeQueueNums", queues)
            .with("perm", 6)
            .with("topicFilterType", "SINGLE_TAG")
            .with("topicSysFlag", 0)
            .with("order", false);
        self.demand(&format!("create topic {topic}"), command).map(drop)
    }

    /// Smallest and largest offset of a queue; the largest is that of the next message.
    pub(super) fn offsets(&mut self, topic: &str, queue: u32) -> Result<(i64, i64), BenchError> {
        let mut ask = |code| {
            let action = format!("tell an offset of {topic}, queue {queue}");
            let command = RemotingCommand::request(code).with("topic", topic).with("queueId", queue);
            let answer = self.demand(&action, command)?;
            answer.number("offset").map_err(|error| BenchError::Answer {
                address: self.address.clone(),
                action,
                what: error.to_string(),
            })
        };
        Ok((ask(request::GET_MIN_OFFSET)?, ask(request::GET_MAX_OFFSET)?))
    }

    /// The master brokers of a topic; `None` if there is no such topic.
    fn route(&mut self, topic: &str) -> Result<Option<Vec<Broker>>, BenchError> {
        let command = RemotingCommand::request(request::GET_ROUTEINFO_BY_TOPIC)
            .with("topic", topic)
            .with("acceptStandardJsonOnly", true);
        let answer = self.ask(command)?;
        let action = format!("tell the route of {topic}");
        match answer.code {
            response::SUCCESS => {}
            response::TOPIC_NOT_EXIST => return Ok(None),
            code => {
                let remark = answer.remark.unwrap_or_default();
                return Err(BenchError::Refused { address: self.address.clone(), action, code, remark });
            }
        }
        let text = String::from_utf8_lossy(&answer.body);
        let route = json::parse(&text)
            .map_err(|source| BenchError::Route { address: self.address.clone(), source })?;
        let brokers = masters(&route);
        if brokers.is_empty() {
            let what = "no master broker".to_owned();
            return Err(BenchError::Answer { address: self.address.clone(), action, what });
        }
        Ok(Some(brokers))
    }
}

/// The master of each broker in a route.
fn masters(route: &Value<'_>) -> Vec<Broker> {
    let Some(Value::Array(brokers)) = route.get("brokerDatas") else { return Vec::new() };
    let master = |broker: &Value<'_>| {
        let address = broker.get("brokerAddrs")?.get("0")?.as_name()?.to_owned();
        Some(Broker { address, name: broker.get("brokerName")?.as_name()?.to_owned() })
    };
    brokers.iter().filter_map(master).collect()
}

/// The brokers that the options name.
pub(super) fn brokers(args: &LoadArgs) -> Result<Vec<Broker>, BenchError> {
    let Some(namesrv) = &args.namesrv else {
        return Ok(vec![Broker { address: args.addr.clone(), name: "broker-a".to_owned() }]);
    };
    let mut control = Control::connect(namesrv)?;
    for topic in [&args.topic_names()[0], AUTO_CREATE_TOPIC] {
        if let Some(brokers) = control.route(topic)? {
            return Ok(brokers);
        }
    }
    Err(BenchError::Answer {
        address: namesrv.clone(),
        action: "a route request".to_owned(),
        what: format!("neither topic {} nor {AUTO_CREATE_TOPIC} has a route", args.topic),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_are_found_in_both_forms_of_a_route() {
        for key in ["\"0\"", "0"] {
            let text = format!(
                r#"{{"brokerDatas":[{{"brokerAddrs":{{{key}:"127.0.0.1:10911","1":"127.0.0.1:10921"}},"brokerName":"b"}},
                   {{"brokerAddrs":{{"1":"127.0.0.1:10931"}},"brokerName":"c"}}],"queueDatas":[]}}"#
            );
            let masters = masters(&json::parse(&text).unwrap());
            assert_eq!(masters, [Broker { address: "127.0.0.1:10911".to_owned(), name: "b".to_owned() }]);
        }
    }
}
