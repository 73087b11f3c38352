//! Checks of connectors whose clients take one request about one key.

use std::sync::Arc;

use bytes::Bytes;
use sherwood_store::{Applied, Copied, PAGE_KEYS_MAX, Store, is_reserved};

use crate::duplicates::{connected, copied, put, refused, removal};
use crate::servers::Server;
use crate::{dropped_calls_do_not_affect_others, failure, keys, label, value, values};

/// Checks that values of the keys are stored, replaced, read and removed.
pub(crate) async fn values_of_any_key(store: &Arc<dyn Store>, keys: &[&'static [u8]]) {
    let asked: Vec<Bytes> = keys.iter().map(|&key| Bytes::from_static(key)).collect();
    assert!(store.get_many(asked.clone()).await.unwrap().iter().all(Option::is_none));
    assert!(store.get_many(Vec::new()).await.unwrap().is_empty());
    for round in 0..2 {
        for (at, key) in asked.iter().enumerate() {
            store.put(key.clone(), format!("{round}{at}").into()).await.unwrap();
        }
    }
    store.put("empty".into(), Bytes::new()).await.unwrap();
    assert_eq!(value(store, "empty").await.as_deref(), Some(""));
    let found = store.get_each(asked.clone()).await.unwrap().each;
    for (at, found) in found.into_iter().enumerate() {
        assert_eq!(found.unwrap().unwrap().value, format!("1{at}"));
    }
    for key in asked.iter().chain(&[Bytes::from_static(b"absent")]) {
        store.delete(key.clone()).await.unwrap();
    }
    assert!(store.get_many(asked).await.unwrap().iter().all(Option::is_none));
    dropped_calls_do_not_affect_others(store).await;
}

/// Checks that the last of many changes of a key is the one that stays, with the marker.
pub(crate) async fn changes_in_their_order(store: &Arc<dyn Store>) {
    let mut connection = connected(store).await;
    assert_eq!(connection.marker().await, Ok(None));
    let mut changes: Vec<_> = (0..200).map(|n| put("k", n.to_string())).collect();
    changes.extend([
        put("a", "1"),
        removal("a"),
        removal("absent"),
        put("b", ""),
        removal("c"),
        put("c", "3"),
    ]);
    assert_eq!(refused(&connection.apply("first".into(), changes).await), []);
    let found = values(store, &["k", "a", "b", "c"]).await;
    assert_eq!(found, [Some("199".into()), None, Some(String::new()), Some("3".into())]);
    assert_eq!(refused(&connection.apply("second".into(), Vec::new()).await), []);
    assert_eq!(connection.marker().await, Ok(Some("second".into())));
    drop(connection);
    let mut connection = connected(store).await;
    assert_eq!(connection.marker().await, Ok(Some("second".into())));
    assert_eq!(refused(&connection.apply("third".into(), vec![put("k", "new"), removal("b")]).await), []);
    assert_eq!(values(store, &["k", "b"]).await, [Some("new".into()), None]);
}

/// Checks that dropping a batch ends its connection.
pub(crate) async fn dropped_batch_ends_its_connection(store: &Arc<dyn Store>) {
    let mut connection = connected(store).await;
    let mut batch = connection.apply("m".into(), vec![put("a", "1")]);
    std::future::poll_fn(|context| std::task::Poll::Ready(batch.as_mut().poll(context).is_pending())).await;
    drop(batch);
    connection.ended().await;
    let applied = connection.apply("m".into(), Vec::new()).await;
    assert!(matches!(applied, Applied::Broken { made: 0, .. }), "{applied:?}");
    assert!(connection.marker().await.is_err());
}

/// Checks that a copy makes two stores equal, except for the marker, which only `from` has.
pub(crate) async fn copy_makes_stores_equal(from: &Arc<dyn Store>, to: &Arc<dyn Store>) {
    let mut changes: Vec<_> = (0..600).map(|n| put(&format!("k{n}"), format!("v{n}"))).collect();
    changes.push(put("a/b c", "1"));
    assert_eq!(refused(&connected(from).await.apply("source".into(), changes).await), []);
    let old = vec![put("k1", "old"), put("gone", "1")];
    assert_eq!(refused(&connected(to).await.apply("old".into(), old).await), []);
    assert_eq!(copied(from, to).await, Ok(Copied { items: 601, removed: 1 }));
    assert_eq!(values(to, &["k1", "k599", "gone"]).await, [Some("v1".into()), Some("v599".into()), None]);
    assert_eq!(connected(to).await.marker().await, Ok(None));
    assert_eq!(connected(from).await.marker().await, Ok(Some("source".into())));
    let mut pages = to.as_duplicate().unwrap().walk().await.unwrap();
    let mut count = 0;
    while let Some(page) = pages.next_page().await.unwrap() {
        assert!(page.len() <= PAGE_KEYS_MAX && !page.iter().any(|key| is_reserved(key)));
        count += page.len();
    }
    assert_eq!(count, 601);
}

/// Checks that a server that stops answering fails calls, and that its late answers are not taken
/// for those to later calls.
pub(crate) async fn late_answer_is_dropped(server: &Server, store: &Arc<dyn Store>) {
    store.put("k".into(), "1".into()).await.unwrap();
    store.put("other".into(), "2".into()).await.unwrap();
    let mut connection = connected(store).await;
    server.pause();
    assert_eq!(failure(store).await, "silent");
    let Applied::Broken { made: 0, .. } = connection.apply("m".into(), vec![put("k", "3")]).await else {
        panic!("it has answered")
    };
    connection.ended().await;
    server.resume();
    loop {
        match store.get_many(keys(&["other", "absent"])).await {
            Ok(found) => break assert_eq!(found[0].as_ref().map(|found| &found.value[..]), Some(&b"2"[..])),
            Err(error) => assert!(["silent", "unreachable"].contains(&error.cause().label()), "{error}"),
        }
    }
}

/// Checks that the end of a server is noticed, and that calls succeed after its restart.
pub(crate) async fn restarted_server_is_used_again(server: &mut Server, store: &Arc<dyn Store>) {
    store.put("k".into(), "1".into()).await.unwrap();
    let mut connection = connected(store).await;
    assert_eq!(refused(&connection.apply("m".into(), vec![put("a", "1")]).await), []);
    server.kill();
    connection.ended().await;
    let error = store.put("k".into(), "2".into()).await.unwrap_err();
    assert!(["unreachable", "reset"].contains(&error.cause().label()), "{error}");
    assert_eq!(failure(store).await, "unreachable");
    server.restart();
    while label(store.get_many(keys(&["k"])).await) != "none" {}
    assert_eq!(value(store, "k").await.as_deref(), Some("1"));
    let applied = connection.apply("m".into(), vec![put("a", "2")]).await;
    assert!(matches!(applied, Applied::Broken { made: 0, .. }), "{applied:?}");
    assert_eq!(connected(store).await.marker().await, Ok(Some("m".into())));
}
