//! The transport as a peer sees it: order, back-pressure, hostile bytes, requests in both directions.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::{self, HeaderEncoding};
use ferromq_protocol::header::Request;
use ferromq_remoting::{
    Client, Connection, InvokeError, Limits, RunningServer, Server, ServerOptions, Service,
};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Answers code 1 with the request's body, code 2 with a body of the size that the request's opaque says, code 3 later
/// from another task, and reports connections that end.
struct Echo {
    handled: AtomicUsize,
    opened: mpsc::UnboundedSender<Arc<Connection>>,
    closed: mpsc::UnboundedSender<u64>,
}

impl Service for Echo {
    type Session = ();

    fn open(&self, connection: &Arc<Connection>) {
        let _ = self.opened.send(connection.clone());
    }

    fn request(&self, (): &mut (), connection: &Arc<Connection>, request: &Request<'_>, out: &mut Vec<u8>) {
        self.handled.fetch_add(1, Ordering::SeqCst);
        if request.is_oneway() {
            return;
        }
        let mut answer = RemotingCommand::success();
        answer.opaque = request.opaque;
        match request.code {
            2 => answer.body = vec![7; request.opaque as usize].into(),
            3 => {
                let (connection, opaque) = (connection.clone(), request.opaque);
                tokio::spawn(async move {
                    connection.respond(opaque, RemotingCommand::success().with_body("later"))
                });
                return;
            }
            _ => answer.body = request.body.to_vec().into(),
        }
        answer.encode(connection.encoding(), out);
    }

    fn close(&self, (): (), connection: &Arc<Connection>) {
        let _ = self.closed.send(connection.id());
    }
}

struct Fixture {
    _server: RunningServer,
    address: String,
    echo: Arc<Echo>,
    opened: mpsc::UnboundedReceiver<Arc<Connection>>,
    closed: mpsc::UnboundedReceiver<u64>,
}

impl Fixture {
    fn start(limits: Limits) -> Self {
        let options = ServerOptions { encoding: HeaderEncoding::Json, limits };
        let server = Server::bind("127.0.0.1", 0, options).unwrap();
        let address = server.address().to_string();
        let (open_sender, opened) = mpsc::unbounded_channel();
        let (close_sender, closed) = mpsc::unbounded_channel();
        let echo = Arc::new(Echo { handled: AtomicUsize::new(0), opened: open_sender, closed: close_sender });
        let server = server.start(echo.clone()).unwrap();
        Self { _server: server, address, echo, opened, closed }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.unwrap()
    }
}

fn request(code: i32, opaque: i32, body: &[u8]) -> Vec<u8> {
    let mut command = RemotingCommand::request(code).with_body(body.to_vec());
    command.opaque = opaque;
    let mut bytes = Vec::new();
    command.encode(HeaderEncoding::Binary, &mut bytes);
    bytes
}

async fn read_frame(stream: &mut TcpStream) -> RemotingCommand {
    let mut bytes = vec![0; 4];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes.resize(frame::announced_bytes(&bytes).unwrap(), 0);
    stream.read_exact(&mut bytes[4..]).await.unwrap();
    let (frame, _) = frame::split(&bytes).unwrap().unwrap();
    RemotingCommand::decode(&frame).unwrap()
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let fixture = Fixture::start(Limits::default());
    let mut stream = fixture.connect().await;
    let bytes: Vec<u8> =
        (0..1000).flat_map(|opaque| request(1, opaque, opaque.to_string().as_bytes())).collect();
    // Cut anywhere: a frame may arrive in any number of pieces.
    for piece in bytes.chunks(997) {
        stream.write_all(piece).await.unwrap();
    }
    for opaque in 0..1000 {
        let answer = read_frame(&mut stream).await;
        assert_eq!((answer.opaque, &answer.body[..]), (opaque, opaque.to_string().as_bytes()));
    }
}

#[tokio::test]
async fn frames_larger_than_a_read_arrive_whole() {
    let fixture = Fixture::start(Limits::default());
    let mut stream = fixture.connect().await;
    let body: Vec<u8> = (0..5_000_000u32).map(|byte| byte as u8).collect();
    for opaque in [1, 2] {
        stream.write_all(&request(1, opaque, &body)).await.unwrap();
        assert!(read_frame(&mut stream).await.body == body);
    }
}

#[tokio::test]
async fn who_does_not_read_is_not_read_from() {
    let fixture = Fixture::start(Limits::default());
    let mut stream = fixture.connect().await;
    const ANSWER_BYTES: i32 = 1024 * 1024;
    let requests: Vec<u8> = (0..200).flat_map(|_| request(2, ANSWER_BYTES, b"")).collect();
    stream.write_all(&requests).await.unwrap();
    // The first answers fill the socket's buffers; long before all 200 are made, the server stops making them.
    let mut answer = read_frame(&mut stream).await;
    let handled = fixture.echo.handled.load(Ordering::SeqCst);
    assert!(handled < 100, "{handled} requests handled while one answer was read");
    for _ in 1..200 {
        assert_eq!(answer.body.len(), ANSWER_BYTES as usize);
        answer = read_frame(&mut stream).await;
    }
    assert_eq!(fixture.echo.handled.load(Ordering::SeqCst), 200);
}

#[tokio::test]
async fn a_hostile_frame_ends_its_own_connection_only() {
    let mut fixture = Fixture::start(Limits::default());
    let mut friendly = fixture.connect().await;
    let mut announced_2gb = vec![0x7f, 0xff, 0xff, 0xff];
    announced_2gb.extend_from_slice(&[0; 12]);
    let mut unknown_encoding = request(1, 1, b"x");
    unknown_encoding[4] = 9;
    let mut header_beyond_frame = request(1, 1, b"x");
    header_beyond_frame[5] = 0xff;
    let too_short = [&[0, 0, 0, 2], &[0; 12][..]].concat();
    let broken_json = [&22u32.to_be_bytes()[..], &18u32.to_be_bytes()[..], b"{\"code\":10,\"opaqu?"].concat();
    let tls = [&[0x16, 3, 1, 2, 0][..], &[1; 30][..]].concat();
    for hostile in [announced_2gb, unknown_encoding, header_beyond_frame, too_short, broken_json, tls] {
        let mut stream = fixture.connect().await;
        stream.write_all(&hostile).await.unwrap();
        let mut rest = Vec::new();
        // A reset is as good an end as any.
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "nothing is answered to {hostile:02x?}");
        fixture.closed.recv().await.unwrap();
    }
    friendly.write_all(&request(1, 7, b"still here")).await.unwrap();
    assert_eq!(&read_frame(&mut friendly).await.body[..], b"still here");
}

#[tokio::test]
async fn fewer_than_twelve_bytes_are_waited_for() {
    let mut fixture =
        Fixture::start(Limits { idle_timeout: Duration::from_millis(100), ..Limits::default() });
    let mut stream = fixture.connect().await;
    stream.write_all(&[0, 0, 0, 6, 0, 0, 0, 2, b'{', b'}']).await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty(), "closed by silence, without an answer");
    fixture.closed.recv().await.unwrap();
}

#[tokio::test]
async fn a_quiet_connection_is_closed_and_a_busy_one_is_not() {
    let mut fixture =
        Fixture::start(Limits { idle_timeout: Duration::from_millis(400), ..Limits::default() });
    let mut quiet = fixture.connect().await;
    let quiet_id = fixture.opened.recv().await.unwrap().id();
    let mut busy = fixture.connect().await;
    let busy_id = fixture.opened.recv().await.unwrap().id();
    let closed = loop {
        busy.write_all(&request(1, 1, b"x")).await.unwrap();
        read_frame(&mut busy).await;
        if let Ok(closed) = fixture.closed.try_recv() {
            break closed;
        }
    };
    assert_eq!((closed, quiet.read(&mut [0]).await.unwrap()), (quiet_id, 0));
    drop(busy);
    assert_eq!(fixture.closed.recv().await, Some(busy_id));
}

#[tokio::test]
async fn one_way_requests_are_handled_and_not_answered() {
    let fixture = Fixture::start(Limits::default());
    let mut stream = fixture.connect().await;
    let mut command = RemotingCommand::request(1);
    command.flag = 2;
    let mut bytes = Vec::new();
    command.encode(HeaderEncoding::Json, &mut bytes);
    bytes.extend(request(1, 9, b"after"));
    stream.write_all(&bytes).await.unwrap();
    assert_eq!(read_frame(&mut stream).await.opaque, 9);
    assert_eq!(fixture.echo.handled.load(Ordering::SeqCst), 2);
}

/// A client that shuts down tells its progress, waits for no answer and closes, while something is being written to it.
#[tokio::test]
async fn what_a_peer_sent_before_it_went_is_handled() {
    let mut fixture = Fixture::start(Limits::default());
    let stream = fixture.connect().await;
    let connection = fixture.opened.recv().await.unwrap();
    const LAST_WORDS: usize = 100;
    let bytes: Vec<u8> =
        (0..LAST_WORDS as i32).flat_map(|opaque| request(1, opaque, b"last words")).collect();
    assert_eq!(stream.try_write(&bytes).unwrap(), bytes.len());
    // The server's task does not run before the next await: it finds a connection that was reset when it begins to write.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    connection.oneway(RemotingCommand::request(1));
    assert_eq!(fixture.closed.recv().await.unwrap(), connection.id());
    assert_eq!(fixture.echo.handled.load(Ordering::SeqCst), LAST_WORDS);
}

#[tokio::test]
async fn a_proxy_header_tells_the_client_behind_it() {
    let mut fixture = Fixture::start(Limits::default());
    let mut stream = fixture.connect().await;
    let connection = fixture.opened.recv().await.unwrap();
    let mut bytes = b"PROXY TCP4 1.2.3.4 5.6.7.8 1000 2000\r\n".to_vec();
    bytes.extend(request(1, 1, b"x"));
    stream.write_all(&bytes).await.unwrap();
    read_frame(&mut stream).await;
    assert_eq!(connection.client_address(), "1.2.3.4:1000".parse().unwrap());
    assert_eq!(connection.peer(), stream.local_addr().unwrap());
}

#[tokio::test]
async fn both_ends_can_ask() {
    let mut fixture = Fixture::start(Limits::default());
    let (opened, mut client_side) = mpsc::unbounded_channel();
    let (closed, _client_closed) = mpsc::unbounded_channel();
    let service = Arc::new(Echo { handled: AtomicUsize::new(0), opened, closed });
    let client = Client::with_service(service, HeaderEncoding::Binary, Limits::default());
    let timeout = Duration::from_secs(10);
    let ask = RemotingCommand::request(1).with_body("from client");
    let answer = client.invoke(&fixture.address, ask, timeout).await.unwrap();
    assert_eq!(&answer.body[..], b"from client");
    let later = client.invoke(&fixture.address, RemotingCommand::request(3), timeout).await.unwrap();
    assert_eq!(&later.body[..], b"later");

    let server_side = fixture.opened.recv().await.unwrap();
    let ask = RemotingCommand::request(1).with_body("from server");
    assert_eq!(&server_side.invoke(ask, timeout).await.unwrap().body[..], b"from server");

    client_side.recv().await.unwrap().close();
    let error = server_side.invoke(RemotingCommand::request(1), timeout).await.unwrap_err();
    assert!(matches!(error, InvokeError::Closed { .. }), "{error}");
    server_side.closed().await;
}

#[tokio::test]
async fn who_lets_queued_answers_pile_up_is_cut_off() {
    let mut fixture = Fixture::start(Limits { queued_bytes_max: 1024 * 1024, ..Limits::default() });
    let stream = fixture.connect().await;
    let connection = fixture.opened.recv().await.unwrap();
    while !connection.is_closed() {
        connection.respond(1, RemotingCommand::success().with_body(vec![0; 100_000]));
        tokio::task::yield_now().await;
    }
    fixture.closed.recv().await.unwrap();
    drop(stream);
}

#[tokio::test]
async fn a_retired_connection_answers_what_it_has_and_the_next_request_opens_another() {
    let mut fixture = Fixture::start(Limits::default());
    let client = Client::new();
    let first = client.connection(&fixture.address).await.unwrap();
    let server_side = fixture.opened.recv().await.unwrap();
    let timeout = Duration::from_secs(10);
    let invoked = first.invoke(RemotingCommand::request(3), timeout);
    first.retire();
    // Nothing was on its way yet, so it is closed at once; `invoke` begins when it is polled.
    assert!(matches!(invoked.await, Err(InvokeError::Closed { .. })));
    assert_eq!(fixture.closed.recv().await, Some(server_side.id()));

    let second = client.connection(&fixture.address).await.unwrap();
    assert_ne!(first.id(), second.id());
    let (answer, ()) = tokio::join!(second.invoke(RemotingCommand::request(3), timeout), async {
        second.retire();
        assert!(!second.is_closed(), "one request is on its way");
    });
    assert_eq!(&answer.unwrap().body[..], b"later");
    assert!(second.is_closed());
    let third = client.invoke(&fixture.address, RemotingCommand::request(1), timeout).await;
    third.unwrap();
    client.close().await;
}

#[tokio::test]
async fn who_waits_gets_the_answer_to_its_own_request() {
    const CALLS: usize = 1000;
    let fixture = Fixture::start(Limits::default());
    let client = Arc::new(Client::new());
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..CALLS {
        let (client, address) = (client.clone(), fixture.address.clone());
        calls.spawn(async move {
            let ask = RemotingCommand::request(1).with_body(number.to_string());
            let answer = client.invoke(&address, ask, Duration::from_secs(60)).await.unwrap();
            assert_eq!(answer.body, number.to_string());
        });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    assert_eq!(fixture.echo.handled.load(Ordering::SeqCst), CALLS);
    client.close().await;
}

#[tokio::test]
async fn who_does_not_answer_is_not_waited_for() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let client = Client::new();
    let invoke = |timeout| client.invoke(&address, RemotingCommand::request(1), timeout);
    let (short, timeout) = (Duration::from_millis(1), Duration::from_millis(2));
    let (first, second) = tokio::join!(invoke(timeout), invoke(short));
    assert!(matches!(first, Err(InvokeError::Timeout { timeout: reported, .. }) if reported == timeout));
    assert!(matches!(second, Err(InvokeError::Timeout { .. })));
    client.close().await;
}
