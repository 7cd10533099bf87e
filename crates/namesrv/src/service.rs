//! What a name server does on a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferromq_protocol::code::request::{GET_ROUTEINFO_BY_TOPIC, REGISTER_BROKER};
use ferromq_protocol::code::response::SUCCESS;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::FRAME_BYTES_MAX;
use ferromq_protocol::header::{FLAG_RESPONSE, FieldOut, Head, Request, write_response};
use ferromq_remoting::{Connection, Service};
use ferromq_settings::ChangeError;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::handlers::{self, Outcome, RouteRequest};
use crate::refusal::Refusal;
use crate::routes::BrokerAddrInfo;
use crate::state::{Saving, State};

/// Longest body of an answer: a frame less than enough for any header of ours.
const BODY_BYTES_MAX: usize = FRAME_BYTES_MAX - 64 * 1024;

/// Registrations with longer bodies take so long to read that other connections must not wait for it.
const LONG_REGISTRATION_BYTES: usize = 64 * 1024;

/// Newest version that does not know what [`Refusal::GoAway`] means (`docs/spec/01-remoting.md` 3.2).
const LAST_VERSION_THAT_STAYS: i32 = 475;

/// Hands requests to their handlers.
pub(crate) struct NamesrvService {
    pub(crate) state: Arc<State>,
}

impl Service for NamesrvService {
    /// The brokers that registered over this connection and leave with it.
    type Session = Vec<BrokerAddrInfo>;

    fn open(&self, _: &Arc<Connection>) -> Self::Session {
        Vec::new()
    }

    fn request(
        &self,
        registered: &mut Self::Session,
        connection: &Arc<Connection>,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) {
        if request.code == GET_ROUTEINFO_BY_TOPIC && !self.sends_away(request) {
            self.answer_route(connection, request, out);
            return;
        }
        let answer = match self.handle(registered, connection, request) {
            Ok(Outcome::Answer(answer)) => answer,
            Ok(Outcome::AfterSaving(saving)) => return self.answer_after(saving, connection, request),
            Err(refusal) => {
                if matches!(refusal, Refusal::Change(ChangeError::Forbidden)) {
                    warn_now_and_then!(peer = %connection.peer(), "a client asked for a change that is not for clients");
                }
                refusal.answer()
            }
        };
        if !request.is_oneway() {
            let mut answer = checked(answer);
            answer.opaque = request.opaque;
            answer.flag = FLAG_RESPONSE;
            answer.encode(connection.encoding(), out);
        }
    }

    fn close(&self, registered: Self::Session, connection: &Arc<Connection>) {
        for broker in registered {
            let lost = self.state.routes.read().lost(&broker, connection.id());
            if let Some(Err(refusal)) = lost.map(|lost| self.state.remove(lost)) {
                tracing::warn!(?broker, %refusal, "broker whose connection ended stays until it is found silent");
            }
        }
    }
}

impl NamesrvService {
    fn sends_away(&self, request: &Request<'_>) -> bool {
        request.version > LAST_VERSION_THAT_STAYS && self.state.going_away.load(Ordering::Relaxed)
    }

    fn handle(
        &self,
        registered: &mut Vec<BrokerAddrInfo>,
        connection: &Arc<Connection>,
        request: &Request<'_>,
    ) -> Result<Outcome, Refusal> {
        if self.sends_away(request) {
            return Err(Refusal::GoAway);
        }
        let command = RemotingCommand::from_request(request)?;
        let mut handle = || handlers::handle(&self.state, &command, connection.clone(), registered);
        if request.code == REGISTER_BROKER && request.body.len() > LONG_REGISTRATION_BYTES {
            aside(handle)
        } else {
            handle()
        }
    }

    /// The one hot request: its header is read in place and its answer written in place.
    fn answer_route(&self, connection: &Connection, request: &Request<'_>, out: &mut Vec<u8>) {
        let route = RouteRequest::parse(request).map_err(Refusal::from);
        let route = route.and_then(|request| handlers::route(&self.state, request));
        if request.is_oneway() {
            return;
        }
        match route {
            Ok(body) => {
                let head = Head::response(SUCCESS, request.opaque, None);
                let no_fields: Option<[(&str, FieldOut<'_>); 0]> = None;
                write_response(out, connection.encoding(), &head, no_fields, &body);
            }
            Err(refusal) => {
                let mut answer = refusal.answer();
                answer.opaque = request.opaque;
                answer.encode(connection.encoding(), out);
            }
        }
    }

    /// Answers when what the request changed is on the disk.
    fn answer_after(&self, saving: Saving, connection: &Arc<Connection>, request: &Request<'_>) {
        let (state, connection) = (self.state.clone(), connection.clone());
        let (opaque, is_oneway) = (request.opaque, request.is_oneway());
        tokio::task::spawn_blocking(move || {
            let answer = match saving.run(&state) {
                Ok(()) => RemotingCommand::success(),
                Err(refusal) => {
                    tracing::error!(%refusal);
                    refusal.answer()
                }
            };
            if !is_oneway {
                connection.respond(opaque, answer);
            }
        });
    }
}

/// The answer, or one that says that it can't be sent.
fn checked(answer: RemotingCommand) -> RemotingCommand {
    let bytes = answer.body.len();
    if bytes > BODY_BYTES_MAX { Refusal::AnswerTooLong { bytes }.answer() } else { answer }
}

/// Runs what takes long while other tasks of this thread go on elsewhere.
fn aside<R>(work: impl FnOnce() -> R) -> R {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
