//! Servers that answer as a test tells them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ferromq_client::{Client, ClientBuilder};
use ferromq_protocol::body::{BrokerData, QueueData, TopicRouteData};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::header::Request;
use ferromq_protocol::json;
use ferromq_protocol::names::RETRY_PREFIX;
use ferromq_remoting::{Connection, RunningServer, Server, ServerOptions, Service};
use tokio::sync::mpsc;

/// What a fake server does with a request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Answers it.
    Answer(RemotingCommand),
    /// Answers it after a while.
    After(Duration, RemotingCommand),
    /// Does not answer.
    Silence,
}

type Script = Box<dyn Fn(&RemotingCommand) -> Reply + Send + Sync>;

/// A server that follows a script and reports what it was asked.
pub(crate) struct FakeServer {
    server: RunningServer,
    pub(crate) address: String,
    asked: mpsc::UnboundedReceiver<RemotingCommand>,
    opened: mpsc::UnboundedReceiver<Arc<Connection>>,
}

struct Scripted {
    script: Script,
    asked: mpsc::UnboundedSender<RemotingCommand>,
    opened: mpsc::UnboundedSender<Arc<Connection>>,
}

impl Service for Scripted {
    type Session = ();

    fn open(&self, connection: &Arc<Connection>) {
        let _ = self.opened.send(connection.clone());
    }

    fn request(&self, (): &mut (), connection: &Arc<Connection>, request: &Request<'_>, _: &mut Vec<u8>) {
        let command = RemotingCommand::from_request(request).expect("a sound request");
        let (reply, opaque) = ((self.script)(&command), command.opaque);
        let is_oneway = command.is_oneway();
        let _ = self.asked.send(command);
        match reply {
            _ if is_oneway => {}
            Reply::Answer(answer) => connection.respond(opaque, answer),
            Reply::After(delay, answer) => {
                let connection = connection.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    connection.respond(opaque, answer);
                });
            }
            Reply::Silence => {}
        }
    }
}

impl FakeServer {
    pub(crate) fn start(script: impl Fn(&RemotingCommand) -> Reply + Send + Sync + 'static) -> Self {
        let (asked_sender, asked) = mpsc::unbounded_channel();
        let (opened_sender, opened) = mpsc::unbounded_channel();
        let server = Server::bind("127.0.0.1", 0, ServerOptions::default()).unwrap();
        let address = server.address().to_string();
        let service = Scripted { script: Box::new(script), asked: asked_sender, opened: opened_sender };
        let server = server.start(Arc::new(service)).unwrap();
        Self { server, address, asked, opened }
    }

    /// The next request with this code; others are passed over.
    pub(crate) async fn asked(&mut self, code: i32) -> RemotingCommand {
        let wait = async {
            loop {
                let command = self.asked.recv().await.expect("the server runs");
                if command.code == code {
                    return command;
                }
            }
        };
        let name = request::name(code);
        tokio::time::timeout(super::PATIENCE, wait).await.unwrap_or_else(|_| panic!("{name} never came"))
    }

    /// How many requests with this code came since the last look; the others are forgotten.
    pub(crate) fn count(&mut self, code: i32) -> usize {
        std::iter::from_fn(|| self.asked.try_recv().ok()).filter(|command| command.code == code).count()
    }

    /// The next connection that was opened.
    pub(crate) async fn connection(&mut self) -> Arc<Connection> {
        tokio::time::timeout(super::PATIENCE, self.opened.recv()).await.expect("in time").expect("running")
    }

    pub(crate) fn stop(&self) {
        self.server.stop();
    }
}

/// A broker that does `send` with each message and accepts everything else.
pub(crate) fn broker(send: impl Fn(&RemotingCommand) -> Reply + Send + Sync + 'static) -> FakeServer {
    FakeServer::start(move |command| match command.code {
        request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => send(command),
        request::GET_MAX_OFFSET => Reply::Answer(RemotingCommand::success().with("offset", 0)),
        _ => Reply::Answer(RemotingCommand::success()),
    })
}

/// A receipt for a message.
pub(crate) fn stored(code: i32) -> RemotingCommand {
    RemotingCommand::response(code)
        .with("msgId", "0A00000100002A9F000000000001E240")
        .with("queueId", 0)
        .with("queueOffset", 7)
}

/// A route with one queue on each of these brokers, given as name and address.
pub(crate) fn route(brokers: &[(&str, &str)]) -> TopicRouteData {
    let data = |(name, address): &(&str, &str)| BrokerData {
        broker_name: (*name).to_owned(),
        broker_addrs: BTreeMap::from([(0, (*address).to_owned())]),
        ..BrokerData::default()
    };
    let queues = |(name, _): &(&str, &str)| QueueData {
        broker_name: (*name).to_owned(),
        perm: 6,
        read_queue_nums: 1,
        write_queue_nums: 1,
        topic_sys_flag: 0,
    };
    TopicRouteData {
        broker_datas: brokers.iter().map(data).collect(),
        queue_datas: brokers.iter().map(queues).collect(),
        ..TopicRouteData::default()
    }
}

/// A name server that has this route for every topic but those of retries.
pub(crate) fn name_server(route: impl Fn() -> TopicRouteData + Send + Sync + 'static) -> FakeServer {
    FakeServer::start(move |command| {
        let is_retry = command.field("topic").is_some_and(|topic| topic.starts_with(RETRY_PREFIX));
        Reply::Answer(if is_retry {
            RemotingCommand::error(response::TOPIC_NOT_EXIST, "no retries so far")
        } else {
            RemotingCommand::success().with_body(json::to_vec_standard(&route()))
        })
    })
}

/// Settings of a client of that name server.
pub(crate) fn client(name_server: &FakeServer) -> ClientBuilder {
    Client::builder(&*name_server.address).client_ip("127.0.0.1")
}
