use super::super::testing::{client, connection};
use super::*;

#[tokio::test]
async fn each_producer_is_picked_in_turn() {
    let table = ProducerTable::default();
    assert!(table.pick("PG").is_none());
    let ((one, _peer), (other, _other_peer)) = (connection().await, connection().await);
    table.register("PG", &client("a", &one));
    table.register("PG", &client("b", &other));
    table.register("PG", &client("b", &other));
    let picked: Vec<_> = (0..4).map(|_| table.pick("PG").unwrap().id()).collect();
    assert_eq!(picked[..2], picked[2..]);
    assert_ne!(picked[0], picked[1]);
    one.close();
    assert!((0..3).all(|_| table.pick("PG").unwrap().id() == other.id()));
    other.close();
    assert!(table.pick("PG").is_none());
}

#[tokio::test]
async fn a_connection_that_ends_takes_its_members_along() {
    let table = ProducerTable::default();
    let (connection, _peer) = connection().await;
    table.register("PG", &client("a", &connection));
    table.register("QG", &client("a", &connection));
    assert_eq!(table.connection_of("a").map(|found| found.id()), Some(connection.id()));
    table.unregister(connection.id(), "QG");
    assert!(table.connections("QG").is_none());
    assert!(table.connection_of("a").is_some(), "it still is a member of the other group");
    table.on_close(connection.id());
    assert!(table.connections("PG").is_none() && table.connection_of("a").is_none());
    let state = table.state.read();
    assert!(state.groups.is_empty() && state.by_connection.is_empty() && state.by_client.is_empty());
}

#[tokio::test]
async fn a_client_is_reached_over_its_newest_connection() {
    let table = ProducerTable::default();
    let ((old, _peer), (new, _other_peer)) = (connection().await, connection().await);
    table.register("PG", &client("a", &old));
    table.register("PG", &client("a", &new));
    table.on_close(old.id());
    assert_eq!(table.connection_of("a").map(|found| found.id()), Some(new.id()));
    assert_eq!(table.connections("PG").unwrap().connection_set.len(), 1);
}

#[tokio::test]
async fn silent_producers_are_removed() {
    let table = ProducerTable::default();
    let (connection, _peer) = connection().await;
    let client = client("a", &connection);
    table.register("PG", &client);
    let limit = Duration::from_secs(120);
    assert!(table.remove_silent(limit, client.heard + limit).is_empty());
    assert_eq!(table.remove_silent(limit, client.heard + limit + Duration::from_millis(1)).len(), 1);
    assert!(table.connections("PG").is_none());
}

#[tokio::test]
async fn what_administrators_see() {
    let table = ProducerTable::default();
    let (connection, _peer) = connection().await;
    table.register("PG", &client("a@1", &connection));
    let seen = table.table_info();
    assert_eq!(seen.data["PG"][0].remote_ip, format!("/{}", connection.peer()));
    assert_eq!(seen.data["PG"][0].last_update_timestamp, 1_700_000_000_000);
    assert_eq!(table.connections("PG").unwrap().connection_set[0].client_id, "a@1");
}
