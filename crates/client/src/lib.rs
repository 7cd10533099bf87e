//! An asynchronous client for RocketMQ's remoting protocol: FerroMQ, and Apache RocketMQ 4.9 and 5.x.
//!
//! # A first message
//!
//! Everything begins with a [`Client`]: it knows the name servers and owns the connections. Producers and consumers are
//! made from it and share them.
//!
//! ```no_run
//! use ferromq_client::{Client, Message};
//!
//! # async fn example() -> Result<(), ferromq_client::Error> {
//! let client = Client::builder("127.0.0.1:9876").start()?;
//! let producer = client.producer("orders-service").start().await?;
//! let result = producer.send(Message::new("Orders", "one espresso").tag("drinks")).await?;
//! println!("stored as {} at offset {} of {}", result.msg_id, result.queue_offset, result.queue);
//! client.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`Producer::send`] returns when a broker has the message; when one fails, others are tried. Any number of sends may be
//! under way at the same time, over one connection to each broker: spawn them, or join them. There are
//! [batches](Producer::send_batch), sends [without an answer](Producer::send_oneway), to
//! [a queue of your choice](Producer::send_with_selector), with a [delay](Message::delay_level), and with a
//! [sharding key](Message::sharding_key) that keeps related messages in order. With
//! [`auto_batch`](ProducerBuilder::auto_batch) many small messages share requests by themselves. With
//! [`send_latency_fault_enable`](ProducerBuilder::send_latency_fault_enable) brokers that are slow or failing are left
//! alone for a while.
//!
//! A message can ask for a [reply](Producer::request).
//! Messages can be bound to a local transaction ([`TransactionProducer`]), and timer messages
//! [taken back](Producer::recall_message).
//!
//! # Consuming
//!
//! The members of a consumer group share the queues of a topic, and share them out anew when members come and go. A
//! [`PushConsumer`] calls a listener:
//!
//! ```no_run
//! use ferromq_client::{Client, ConsumeFrom, Delivery};
//!
//! # async fn handle(_: &[u8]) -> Result<(), std::io::Error> { Ok(()) }
//! # async fn example(client: Client) -> Result<(), ferromq_client::Error> {
//! let consumer = client
//!     .push_consumer("kitchen")
//!     .subscribe("Orders", "drinks || food")
//!     .consume_from(ConsumeFrom::FirstOffset)
//!     .listener(|delivery: Delivery| async move {
//!         for message in &delivery {
//!             handle(&message.body).await?;
//!         }
//!         Ok::<(), std::io::Error>(())
//!     })
//!     .start()
//!     .await?;
//! # consumer.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! A delivery that ends with an error, or a panic, comes again later, to any member of the group; after 16 tries it becomes
//! a dead letter in the topic `%DLQ%kitchen`. Every message is consumed at least once: after a crash, or when queues change
//! hands, some come twice, so listeners should bear that. [`ConsumeResult`] says more than success or failure.
//!
//! An [`orderly_listener`](PushConsumerBuilder::orderly_listener) gets the messages of a queue one after another, and
//! no other member has the queue at the same time. With [`broadcasting`](PushConsumerBuilder::broadcasting) every member
//! gets every message.
//!
//! A [`LitePullConsumer`] is for applications that would rather [ask](LitePullConsumer::poll), decide themselves what is
//! [committed](LitePullConsumer::commit), or [read queues](LitePullConsumer::assign) from [any place](LitePullConsumer::seek).
//!
//! With a [`PopConsumer`] (RocketMQ 5) the members of a group share messages instead of queues: each is
//! [received](PopConsumer::receive) by one of them, invisible to the others until it is
//! [acknowledged](PopConsumer::ack) or the time is over, when it comes again. A push consumer can have its messages that way,
//! too: with [`client_rebalance(false)`](PushConsumerBuilder::client_rebalance) brokers share out the queues, and decide
//! whether the group pulls or pops ([`set_consume_mode`](admin::Admin::set_consume_mode), `mqadmin setConsumeMode`). Then more
//! consumers than queues make sense, and one that hangs holds up nobody.
//!
//! # Administration
//!
//! [`Client::admin`] has what administrators do: topics and groups, progress and resets, search for messages, settings of
//! brokers and name servers, replication.
//!
//! # When something fails
//!
//! [`Error`] names the request, the broker, the topic and, if the broker refused, its response code and what it said.
//! Look at the kind to decide: [`Error::Invalid`] is a mistake of the caller, [`Error::SendFailed`] may go away. Dropping
//! any future of this crate is safe: it never leaves half a request on a connection.
//!
//! Name servers can also come [from an address server](Client::discover) or [from the environment](Client::from_env). When one
//! can't be reached, the next one is asked.
//!
//! Connections are made when they are needed, and again when they are lost. Routes are refreshed every 30 seconds, and
//! at once when a broker can't be reached or says that it is no longer the one. Logs are written with `tracing`.
//!
//! # Secured clusters
//!
//! [`credentials`](ClientBuilder::credentials) sign all requests, and with [`tls`](ClientBuilder::tls) all connections are
//! encrypted:
//!
//! ```no_run
//! use ferromq_client::{Client, Credentials, Tls};
//!
//! # fn example() -> Result<Client, ferromq_client::Error> {
//! Client::builder("mq.example:9876")
//!     .tls(Tls::trusting("ca.pem").server_name("mq.example"))
//!     .credentials(Credentials::new("orders-service", "secret"))
//!     .start()
//! # }
//! ```
//!
//! # Metrics
//!
//! Given to the recorder of the [`metrics`](https://docs.rs/metrics) facade that the application has installed, which has to
//! be there before the client is built. Times are in milliseconds; every metric has the label `client_id`.
//!
//! | name | kind | other labels | what |
//! |---|---|---|---|
//! | `rocketmq_send_cost_time` | histogram | `topic`, `invocation_status` | sends with all their attempts, `success` or `failure` |
//! | `rocketmq_process_time` | histogram | `topic`, `consumer_group`, `invocation_status` | deliveries to a listener; with a `PopConsumer`: from a message's receipt to its acknowledgement (`success`), or until it became a dead letter or its time was over |
//! | `rocketmq_consumer_cached_messages` | gauge | `topic`, `consumer_group` | messages that wait for the listener or are with it; those that were received and not acknowledged |
//! | `rocketmq_consumer_cached_bytes` | gauge | `topic`, `consumer_group` | bytes of their bodies |
//! | `rocketmq_consumer_rebalances` | counter | `consumer_group` | rebalances that gave or took queues |
//! | `rocketmq_trace_records_lost` | counter | `group` | records of the message trace that were not sent |
//!
//! What a consumer does per second, `mqadmin consumerStatus` and [`consumer_running_info`](admin::Admin::consumer_running_info)
//! show too.
//!
//! # Message trace
//!
//! With [`enable_trace`](ProducerBuilder::enable_trace) a producer or consumer writes down what becomes of each message, in a topic
//! of its own, for [`message_trace`](admin::Admin::message_trace), `mqadmin queryMsgTraceById` and the dashboard. It costs
//! about one more message for every twenty, and no send or delivery waits for it or fails because of it.
//!
//! # At the end
//!
//! [`Client::shutdown`] lets running listeners finish, commits progress, gives queues back and waits until the last task
//! of this crate has ended. Dropping everything ends it too, but without all that.
//!
//! # For those who read the code
//!
//! | module | what |
//! |---|---|
//! | `client` | [`Client`], the way to everything else |
//! | `instance/` | what producers and consumers share: connections, name servers, routes, heartbeats, requests of brokers |
//! | `admin/` | one request or a few for each operation of an administrator, on `instance/` |
//! | `message/` | messages in both directions, properties, ids, compression, batches |
//! | `producer/` | attempts to send, choice of queues, fault tolerance |
//! | `trace/` | records of what happens to messages, and how they are sent |
//! | `consumer/` | queues and how they are shared out, pulling, progress; `push/`, `lite_pull/` and `pop/` on top |
//!
//! The chapters `docs/spec/07-client.md` and, for POP, `docs/spec/04-pop-timer.md` have the facts that the code implements.
//! This crate must not know of servers.

#![deny(missing_docs)]

pub mod admin;
mod client;
mod consumer;
mod error;
mod identity;
mod instance;
mod message;
mod meters;
mod producer;
mod trace;
mod validate;

pub use client::{Client, ClientBuilder};
pub use consumer::{
    AllocateStrategy, ConsumeFrom, ConsumeOrderlyResult, ConsumeResult, Delivery, Filter, LitePullConsumer,
    LitePullConsumerBuilder, PopConsumer, PopConsumerBuilder, PushConsumer, PushConsumerBuilder, RoomOf,
};
pub use error::{Error, RequestInfo, client_code};
pub use ferromq_protocol as protocol;
pub use ferromq_protocol::body::MessageQueue;
pub use ferromq_remoting::Tls;
pub use instance::{AddressServer, Credentials};
pub use message::{Compression, Message, MessageExt, Properties};
pub use producer::{
    LocalTransactionState, Producer, ProducerBuilder, SendResult, SendStatus, TransactionProducer,
    TransactionSendResult, select_by_hash,
};
