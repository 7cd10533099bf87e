//! A server that parses each send and answers it in full, but stores nothing: what the transport alone can do.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::header::{FieldOut, Head, Request, write_response};
use ferromq_protocol::message::{id, properties};
use ferromq_protocol::send::SendHeader;
use ferromq_remoting::{Connection, Server, ServerOptions, Service};

use super::error::BenchError;

/// Options of `ferromq bench null-server`.
#[derive(Debug, clap::Args)]
pub(super) struct NullServerArgs {
    /// Port to listen on, on 127.0.0.1; 0 lets the system choose
    #[arg(short = 'p', long, default_value_t = 10911)]
    port: u16,
    /// Threads that serve connections; by default one for each core
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

/// Serves until the process is ended.
pub(super) fn run(args: &NullServerArgs) -> Result<ExitCode, BenchError> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = args.threads {
        runtime.worker_threads(usize::from(threads));
    }
    let runtime = runtime.enable_all().build().map_err(BenchError::Serve)?;
    runtime.block_on(async {
        let server = Server::bind("127.0.0.1", args.port, ServerOptions::default())?;
        let address = server.address();
        let running = server.start(Arc::new(NullService { address, next_offset: AtomicI64::new(0) }));
        let _running = running.map_err(BenchError::Serve)?;
        println!("null server on {address}");
        // Whoever started this process may wait for that line.
        std::io::stdout().flush().map_err(BenchError::Serve)?;
        tokio::signal::ctrl_c().await.map_err(BenchError::Serve)?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Offsets that a connection takes at once, so that connections do not wait for each other.
const OFFSETS_RESERVED: i64 = 4096;

struct NullService {
    address: SocketAddr,
    next_offset: AtomicI64,
}

/// What a connection keeps between requests.
#[derive(Default)]
struct Session {
    properties: Vec<u8>,
    message_id: String,
    next_offset: i64,
    reserved_until: i64,
}

impl Session {
    fn take_offsets(&mut self, count: i64, shared: &AtomicI64) -> i64 {
        if self.next_offset + count > self.reserved_until {
            let reserved = OFFSETS_RESERVED.max(count);
            self.next_offset = shared.fetch_add(reserved, Ordering::Relaxed);
            self.reserved_until = self.next_offset + reserved;
        }
        let offset = self.next_offset;
        self.next_offset += count;
        offset
    }
}

impl NullService {
    /// Answers a send; its message gets an offset that no other one has.
    fn send(&self, session: &mut Session, connection: &Connection, request: &Request<'_>, out: &mut Vec<u8>) {
        let header = match SendHeader::parse(request) {
            Ok(header) => header,
            Err(error) => {
                return refuse(response::SYSTEM_ERROR, &error.to_string(), connection, request, out);
            }
        };
        session.properties.clear();
        if let Some(encoded) = &header.properties
            && let Err(error) = encoded.append_to(&mut session.properties)
        {
            return refuse(response::SYSTEM_ERROR, &error.to_string(), connection, request, out);
        }
        let messages =
            if header.batch { ferromq_protocol::message::batch::iter(request.body).count() } else { 1 };
        let offset = session.take_offsets(messages as i64, &self.next_offset);
        session.message_id.clear();
        id::write_offset_id(&mut session.message_id, self.address, offset as u64);
        if request.is_oneway() {
            return;
        }
        let unique = properties::find(&session.properties, properties::UNIQ_KEY);
        let fields = [
            Some(("queueId", FieldOut::Number(i64::from(header.queue_id)))),
            unique.map(|unique| ("transactionId", FieldOut::Text(unique))),
            Some(("msgId", FieldOut::Text(&session.message_id))),
            Some(("TRACE_ON", FieldOut::Text("true"))),
            Some(("MSG_REGION", FieldOut::Text("DefaultRegion"))),
            Some(("queueOffset", FieldOut::Number(offset))),
        ];
        let head = Head::response(response::SUCCESS, request.opaque, None);
        write_response(out, connection.encoding(), &head, Some(fields.into_iter().flatten()), &[]);
    }
}

impl Service for NullService {
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
                self.send(session, connection, request, out);
            }
            _ if request.is_oneway() => {}
            request::UPDATE_AND_CREATE_TOPIC => {
                let mut answer = RemotingCommand::success();
                answer.opaque = request.opaque;
                answer.encode(connection.encoding(), out);
            }
            code => {
                let remark = format!(" request type {code} not supported");
                refuse(response::REQUEST_CODE_NOT_SUPPORTED, &remark, connection, request, out);
            }
        }
    }
}

fn refuse(code: i32, remark: &str, connection: &Connection, request: &Request<'_>, out: &mut Vec<u8>) {
    let mut answer = RemotingCommand::error(code, remark);
    answer.opaque = request.opaque;
    answer.encode(connection.encoding(), out);
}
