//! Producers and consumers that use the cluster all along.

use std::sync::Arc;
use std::time::Duration;

use ferromq_client::{
    Client, ConsumeFrom, Error, Message, MessageQueue, Producer, PushConsumer, SendResult, SendStatus,
};
use ferromq_protocol::message::id::parse_offset_id;
use tokio::sync::{RwLock, RwLockWriteGuard};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::cluster::BROKER_NAME;
use crate::history::{Delivery, History, MessageId, Outcome, Position, Progress, Receipt, Send};
use crate::requests::Requests;

/// The topic under test.
pub(crate) const TOPIC: &str = "Chaos";
/// Its queues.
pub(crate) const QUEUES: i32 = 4;
const GROUP: &str = "chaos-consumers";
const PRODUCERS: u32 = 6;
const CONSUMERS: u32 = 2;
const BODY_BYTES: usize = 300;
/// Longer than a broker waits for copies.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after each send. Faults are what is tested, not speed.
const PACE: Duration = Duration::from_millis(10);
/// Attempts of the client for producers that let it try again.
const RETRIES: usize = 2;
const LOOK_AT_PROGRESS: Duration = Duration::from_millis(500);

/// Running producers and consumers.
pub(crate) struct Load {
    clients: Vec<Client>,
    producers: TaskTracker,
    consumers: Vec<PushConsumer>,
    /// Held by every producer while it sends.
    gate: Arc<RwLock<()>>,
    stop: CancellationToken,
    onlooker: DropGuard,
}

impl Load {
    /// Starts them.
    pub(crate) async fn start(namesrv: &str, history: &Arc<History>) -> Result<Self, Error> {
        let looking = CancellationToken::new();
        let onlooker = looking.clone().drop_guard();
        tokio::spawn(looking.run_until_cancelled_owned(watch_progress(namesrv.to_owned(), history.clone())));
        let mut load = Self {
            clients: Vec::new(),
            producers: TaskTracker::new(),
            consumers: Vec::new(),
            gate: Arc::default(),
            stop: CancellationToken::new(),
            onlooker,
        };
        for number in 0..CONSUMERS {
            let client = load.client(namesrv)?;
            let history = history.clone();
            let consumer = client
                .push_consumer(GROUP)
                .subscribe(TOPIC, "*")
                .consume_from(ConsumeFrom::FirstOffset)
                .listener(move |delivery: ferromq_client::Delivery| {
                    note_delivery(&history, number, &delivery);
                    async { Ok::<_, std::convert::Infallible>(()) }
                })
                .start()
                .await?;
            load.consumers.push(consumer);
        }
        for number in 0..PRODUCERS {
            let client = load.client(namesrv)?;
            // Every other one names the queue, and then there is one attempt.
            let names_queue = number % 2 == 0;
            let producer = client
                .producer(format!("chaos-producer-{number}"))
                .send_msg_timeout(SEND_TIMEOUT)
                .retry_times_when_send_failed(RETRIES)
                .start()
                .await?;
            let producing = produce(producer, number, names_queue, history.clone(), load.gate.clone());
            load.producers.spawn(load.stop.clone().run_until_cancelled_owned(producing));
        }
        Ok(load)
    }

    fn client(&mut self, namesrv: &str) -> Result<Client, Error> {
        let client = Client::builder(namesrv)
            .poll_name_server_interval(Duration::from_secs(2))
            .heartbeat_broker_interval(Duration::from_secs(2))
            .persist_consumer_offset_interval(Duration::from_secs(1))
            .start()?;
        self.clients.push(client.clone());
        Ok(client)
    }

    /// No producer sends while the guard lives; the sends that were under way have ended.
    pub(crate) async fn hold(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().await
    }

    /// Ends the producers. Nothing is sent any more when this returns, and what was sent is noted.
    pub(crate) async fn stop_producers(&self) {
        let _held = self.hold().await;
        self.stop.cancel();
        self.producers.close();
        self.producers.wait().await;
    }

    /// Ends everything.
    pub(crate) async fn stop(self) {
        self.stop_producers().await;
        drop(self.onlooker);
        for client in &self.clients {
            client.shutdown().await;
        }
    }
}

async fn produce(
    producer: Producer,
    number: u32,
    names_queue: bool,
    history: Arc<History>,
    gate: Arc<RwLock<()>>,
) {
    for count in 0.. {
        let held = gate.read().await;
        let id = MessageId { producer: number, number: count };
        let message = Message::new(TOPIC, id.body(BODY_BYTES));
        let called = history.now();
        let sent = if names_queue {
            let queue = (u64::from(number) + count) % QUEUES as u64;
            producer.send_to_queue(message, &MessageQueue::new(TOPIC, BROKER_NAME, queue as i32)).await
        } else {
            producer.send(message).await
        };
        let attempts_max = if names_queue { 1 } else { RETRIES + 1 };
        let outcome = outcome(sent);
        history.note(|seen| {
            let returned = history.now();
            seen.sends.push(Send { message: id, attempts_max, called, returned, outcome });
        });
        drop(held);
        tokio::time::sleep(PACE).await;
    }
}

fn outcome(sent: Result<SendResult, Error>) -> Outcome {
    match sent {
        Ok(result) => match receipt(&result) {
            Some(receipt) if result.status == SendStatus::SendOk => Outcome::Acknowledged(receipt),
            Some(receipt) => Outcome::Unsafe(receipt),
            None => Outcome::Unknown(format!("a receipt that makes no sense: {result:?}")),
        },
        Err(error) => match error.response_code() {
            Some(code) if code < 10_000 => Outcome::Refused(error.to_string()),
            _ => Outcome::Unknown(error.to_string()),
        },
    }
}

fn receipt(result: &SendResult) -> Option<Receipt> {
    let (host, physical) = parse_offset_id(&result.offset_msg_id)?;
    let position = Position { queue: result.queue.queue_id, offset: result.queue_offset };
    Some(Receipt { position, host, physical })
}

fn note_delivery(history: &History, consumer: u32, delivery: &ferromq_client::Delivery) {
    history.note(|seen| {
        let at = history.now();
        seen.deliveries.extend(delivery.iter().map(|message| Delivery {
            at,
            consumer,
            position: Position { queue: message.queue.queue_id, offset: message.queue_offset },
            message: MessageId::parse(&message.body),
        }));
    });
}

/// Asks the master again and again how far the group has come.
async fn watch_progress(namesrv: String, history: Arc<History>) {
    let requests = Requests::new(namesrv);
    loop {
        if let Some(master) = requests.registered(BROKER_NAME).await.remove(&0) {
            for queue in 0..QUEUES {
                let asked = history.now();
                let Some(offset) = requests.progress(&master, GROUP, TOPIC, queue).await else { continue };
                let answered = history.now();
                let position = Position { queue, offset };
                history.note(|seen| seen.progress.push(Progress { asked, answered, position }));
            }
        }
        tokio::time::sleep(LOOK_AT_PROGRESS).await;
    }
}
