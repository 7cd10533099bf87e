//! Which request goes to which handler, and on which thread.
//!
//! Sends and pulls are handled as they are parsed, from the bytes of the socket. Everything else becomes an owned
//! [`RemotingCommand`] for the [`Handler`] that its module names.

use std::pin::Pin;
use std::sync::Arc;

use ferromq_protocol::code::request;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::header::Request;
use ferromq_remoting::{Connection, Service};
use parking_lot::Mutex;

use crate::answer::{Answer, Refusal};
use crate::broker::Broker;
use crate::replication::exchange;
use crate::send::{SendRound, TopicLookup};
use crate::{admin, client, groups, locks, offsets, pull, query, schedule, send, stats, topics};

/// How a request that is neither a send nor a pull is handled.
pub(crate) enum Handler {
    /// Works in memory only: runs at once, on the connection's task.
    Inline(fn(&Arc<Broker>, &Arc<Connection>, &RemotingCommand) -> Answer),
    /// May wait for a disk or take long: runs on a thread that may block.
    Blocking(fn(&Arc<Broker>, &Arc<Connection>, &RemotingCommand) -> Answer),
    /// Asks others and waits for them.
    Async(fn(Arc<Broker>, Arc<Connection>, RemotingCommand) -> PendingAnswer),
}

/// An answer that is being waited for.
pub(crate) type PendingAnswer = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Every module's requests; none is claimed twice.
fn route(code: i32) -> Option<Handler> {
    let routes = [
        client::route,
        offsets::route,
        locks::route,
        send::route,
        query::route,
        topics::route,
        groups::route,
        schedule::route,
        exchange::route,
        stats::route,
        admin::route,
    ];
    routes.iter().find_map(|route| route(code))
}

/// Which of a broker's two ports a connection came through (`docs/spec/03-broker.md` 1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// `listenPort`: everything.
    Main,
    /// `listenPort` - 2: everything but pulls.
    Fast,
}

/// The requests of one port.
pub(crate) struct BrokerService {
    broker: Arc<Broker>,
    port: Port,
    spare: Mutex<Vec<Scratch>>,
}

/// Memory that sends and pulls work in, lent to a connection for as long as one read is being handled.
struct Scratch {
    round: SendRound,
    bodies: pull::Bodies,
}

/// What a connection keeps.
#[derive(Default)]
pub(crate) struct Session {
    topics: TopicLookup,
    scratch: Option<Scratch>,
}

/// Scratch memory that is kept; at most as many connections are handled at once as there are worker threads.
const SPARE_MAX: usize = 64;
/// Bodies above this are given back to the system.
const BODIES_KEPT_MAX: usize = 1024 * 1024;

impl BrokerService {
    pub(crate) fn new(broker: Arc<Broker>, port: Port) -> Self {
        Self { broker, port, spare: Mutex::default() }
    }

    fn scratch<'s>(&self, session: &'s mut Session) -> (&'s mut TopicLookup, &'s mut Scratch) {
        let fresh = || Scratch { round: SendRound::new(&self.broker), bodies: Vec::new() };
        let scratch = session.scratch.get_or_insert_with(|| self.spare.lock().pop().unwrap_or_else(fresh));
        (&mut session.topics, scratch)
    }

    fn give_back(&self, mut scratch: Scratch) {
        scratch.bodies.clear();
        scratch.bodies.shrink_to(BODIES_KEPT_MAX);
        let mut spare = self.spare.lock();
        if spare.len() < SPARE_MAX {
            spare.push(scratch);
        }
    }

    /// Stores the sends that are held back, so that what follows them sees their messages.
    fn finish_sends(&self, session: &mut Session, connection: &Arc<Connection>, out: &mut Vec<u8>) {
        if let Some(scratch) = &mut session.scratch {
            scratch.round.finish(&self.broker, connection, out);
        }
    }

    fn handle(&self, connection: &Arc<Connection>, request: &Request<'_>, out: &mut Vec<u8>) {
        let command = match RemotingCommand::from_request(request) {
            Ok(command) => command,
            Err(error) => {
                let answer = Refusal::from(error).into_command();
                return write(out, connection, request.opaque, request.is_oneway(), answer);
            }
        };
        match route(command.code) {
            None => {
                let answer = RemotingCommand::not_supported(command.code);
                write(out, connection, command.opaque, command.is_oneway(), answer);
            }
            Some(Handler::Inline(handler)) => {
                let answer =
                    handler(&self.broker, connection, &command).unwrap_or_else(Refusal::into_command);
                write(out, connection, command.opaque, command.is_oneway(), answer);
            }
            Some(Handler::Blocking(handler)) => {
                let (broker, connection) = (self.broker.clone(), connection.clone());
                tokio::task::spawn_blocking(move || {
                    let answer =
                        handler(&broker, &connection, &command).unwrap_or_else(Refusal::into_command);
                    respond(&connection, &command, answer);
                });
            }
            Some(Handler::Async(handler)) => {
                let (broker, connection) = (self.broker.clone(), connection.clone());
                tokio::spawn(async move {
                    let (opaque, oneway) = (command.opaque, command.is_oneway());
                    let answer = handler(broker, connection.clone(), command).await;
                    if !oneway {
                        connection.respond(opaque, answer.unwrap_or_else(Refusal::into_command));
                    }
                });
            }
        }
    }
}

fn write(out: &mut Vec<u8>, connection: &Connection, opaque: i32, oneway: bool, mut answer: RemotingCommand) {
    if !oneway {
        answer.opaque = opaque;
        answer.encode(connection.encoding(), out);
    }
}

fn respond(connection: &Connection, command: &RemotingCommand, answer: RemotingCommand) {
    if !command.is_oneway() {
        connection.respond(command.opaque, answer);
    }
}

impl Service for BrokerService {
    type Session = Session;

    fn open(&self, _: &Arc<Connection>) -> Session {
        Session::default()
    }

    fn request(
        &self,
        session: &mut Session,
        connection: &Arc<Connection>,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) {
        match request.code {
            request::SEND_MESSAGE | request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => {
                let (topics, scratch) = self.scratch(session);
                scratch.round.send(&self.broker, topics, connection, request, out);
            }
            request::PULL_MESSAGE | request::LITE_PULL_MESSAGE if self.port == Port::Main => {
                self.finish_sends(session, connection, out);
                let (_, scratch) = self.scratch(session);
                pull::pull(&self.broker, connection, request, &mut scratch.bodies, out);
            }
            _ => {
                self.finish_sends(session, connection, out);
                self.handle(connection, request, out);
            }
        }
    }

    fn batch_end(&self, session: &mut Session, connection: &Arc<Connection>, out: &mut Vec<u8>) {
        self.finish_sends(session, connection, out);
        if let Some(scratch) = session.scratch.take() {
            self.give_back(scratch);
        }
    }

    fn close(&self, _: Session, connection: &Arc<Connection>) {
        client::on_close(&self.broker, connection);
    }
}
