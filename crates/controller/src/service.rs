//! What a controller does on a connection.

use std::sync::Arc;

use ferromq_protocol::code::request::BROKER_HEARTBEAT;
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::FRAME_BYTES_MAX;
use ferromq_protocol::header::{FLAG_RESPONSE, Request};
use ferromq_remoting::{Connection, Service};

use crate::handlers;
use crate::link::PEER_MESSAGE;
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::watch;

/// Longest body of an answer: a frame less than enough for any header of ours.
const BODY_BYTES_MAX: usize = FRAME_BYTES_MAX - 64 * 1024;

/// Hands requests to their handlers, each in a task of its own: all but heartbeats wait for other controllers.
pub(crate) struct ControllerService {
    pub(crate) shared: Arc<Shared>,
}

impl Service for ControllerService {
    type Session = ();

    fn open(&self, _: &Arc<Connection>) {}

    fn request(&self, (): &mut (), connection: &Arc<Connection>, request: &Request<'_>, out: &mut Vec<u8>) {
        let command = RemotingCommand::from_request(request).map_err(Refusal::from);
        let answer = command.and_then(|command| self.begin(command, connection));
        let answer = match answer {
            Ok(None) => return,
            Ok(Some(answer)) => answer,
            Err(refusal) => refusal.answer(),
        };
        if !request.is_oneway() {
            let answer = RemotingCommand { opaque: request.opaque, flag: FLAG_RESPONSE, ..answer };
            answer.encode(connection.encoding(), out);
        }
    }

    fn close(&self, (): (), connection: &Arc<Connection>) {
        let disconnected = self.shared.live.disconnected(connection.id());
        if !disconnected.is_empty() {
            tokio::spawn(watch::knock(self.shared.clone(), disconnected));
        }
    }
}

impl ControllerService {
    /// The answer, or nothing if it comes later.
    fn begin(
        &self,
        command: RemotingCommand,
        connection: &Arc<Connection>,
    ) -> Result<Option<RemotingCommand>, Refusal> {
        let shared = &self.shared;
        if command.code == BROKER_HEARTBEAT {
            return handlers::heartbeat(shared, &command, connection.id()).map(Some);
        }
        let permit = shared.requests.clone().try_acquire_owned().map_err(|_| Refusal::Busy)?;
        let (shared, connection) = (shared.clone(), connection.clone());
        tokio::spawn(async move {
            let answer = handlers::handle(&shared, &command).await.unwrap_or_else(|refusal| {
                if command.code == PEER_MESSAGE {
                    warn_now_and_then!(peer = %connection.peer(), %refusal, "message of another controller refused");
                }
                refusal.answer()
            });
            if !command.is_oneway() {
                connection.respond(command.opaque, checked(answer));
            }
            drop(permit);
        });
        Ok(None)
    }
}

/// The answer, or one that says that it can't be sent.
fn checked(answer: RemotingCommand) -> RemotingCommand {
    let bytes = answer.body.len();
    if bytes > BODY_BYTES_MAX { Refusal::AnswerTooLong { bytes }.answer() } else { answer }
}
