//! Several name servers, and an address server that tells them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use ferromq_client::{AddressServer, Client, Error};
use ferromq_protocol::body::TopicRouteData;
use ferromq_protocol::code::request;
use parking_lot::Mutex;
use support::eventually;
use support::fake::{self, FakeServer};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

/// A web server that answers every request with what it has been given last, and keeps what it was asked.
struct WebServer {
    address: String,
    answer: Arc<Mutex<String>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl WebServer {
    async fn start(answer: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (answer, asked) = (Arc::new(Mutex::new(answer)), Arc::new(Mutex::new(Vec::new())));
        let (says, notes) = (answer.clone(), asked.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).await.unwrap() > 0 {}
                notes.lock().push(head.to_lowercase());
                let answer = says.lock().clone();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { address, answer, asked }
    }

    fn says(&self, answer: String) {
        *self.answer.lock() = answer;
    }

    fn client(&self) -> Client {
        let server = AddressServer::new(&*self.address).period(Duration::from_millis(50));
        Client::discover(server).unit_name("east").start().unwrap()
    }
}

fn found(list: &str) -> String {
    let body = format!("{list}\r\nand more");
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn not_found() -> String {
    "HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\nbad:123".to_owned()
}

fn name_server() -> FakeServer {
    fake::name_server(TopicRouteData::default)
}

#[tokio::test]
async fn name_servers_come_from_an_address_server_and_change_with_its_list() {
    let (first, second) = (name_server(), name_server());
    let web = WebServer::start(found(&first.address)).await;
    let client = web.client();
    client.admin().topic_route("T").await.unwrap();
    assert_eq!(client.admin().name_servers(), [&*first.address]);
    let asked = web.asked.lock()[0].clone();
    assert!(asked.starts_with("get /rocketmq/nsaddr-east?nofix=1 http/1.1"), "{asked}");
    assert!(
        asked.contains("client-version: v5_3_3") && asked.contains("metaq-client-requestts: "),
        "{asked}"
    );

    web.says(not_found());
    let before = web.asked.lock().len();
    eventually("it was asked again", async || web.asked.lock().len() > before + 1).await;
    client.admin().topic_route("T").await.unwrap();

    web.says(found(&second.address));
    eventually("the list has changed", async || client.admin().name_servers() == [&*second.address]).await;
    first.stop();
    client.admin().topic_route("T").await.unwrap();
    client.shutdown().await;
}

#[tokio::test]
async fn who_asks_early_waits_for_the_list_and_learns_why_there_is_none() {
    let server = name_server();
    let web = WebServer::start(not_found()).await;
    let client = web.client();
    let impatient = client.admin().timeout(Duration::from_millis(100));
    eventually("the reason is known", async || match impatient.topics().await {
        Err(Error::AddressServer { url, reason }) => {
            assert!(url.ends_with("/rocketmq/nsaddr-east?nofix=1"), "{url}");
            reason.contains("404")
        }
        other => panic!("{other:?}"),
    })
    .await;
    web.says(found(&server.address));
    client.admin().topic_route("T").await.unwrap();
    client.shutdown().await;
}

#[tokio::test]
async fn the_next_name_server_is_asked_when_one_is_gone() {
    let (mut asked, mut other) = (name_server(), name_server());
    let client = Client::builder(format!("{};{}", asked.address, other.address)).start().unwrap();
    for _ in 0..3 {
        client.admin().topic_route("T").await.unwrap();
    }
    let looked_up = |server: &mut FakeServer| server.count(request::GET_ROUTEINFO_BY_TOPIC);
    let (first, second) = (looked_up(&mut asked), looked_up(&mut other));
    assert_eq!(first.max(second), 3, "the one that answers is asked again");
    if first == 0 {
        std::mem::swap(&mut asked, &mut other);
    }
    asked.stop();
    for _ in 0..2 {
        client.admin().topic_route("T").await.unwrap();
    }
    assert_eq!(looked_up(&mut other), 2);
    client.shutdown().await;
}
