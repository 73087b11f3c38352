//! Tests that apply to every embedded kind of store, with real files and a clock that only the test
//! moves.

use std::pin::pin;
use std::sync::{Mutex, mpsc};
use std::task::{Context, Poll, Waker};

use sherwood_model::Instant;
use tempfile::TempDir;

use super::*;
use crate::pool::tests::DrivenClock;
use crate::{Fault, KvOptions, Loader, SqliteOptions};

const VALUE: &[u8] = b"a value";

/// Options of each kind of embedded store, with files in `directory`, one thread and a long queue.
fn every_kind(directory: &TempDir) -> [StoreOptions; 3] {
    [
        StoreOptions::Kv(KvOptions { threads: 1, queued_calls_max: 100_000, ..kv_at(directory) }),
        StoreOptions::Sqlite(SqliteOptions { threads: 1, queued_calls_max: 100_000, ..sqlite_at(directory) }),
        StoreOptions::Compute(ComputeOptions {
            n: 4,
            threads: 1,
            queued_calls_max: 100_000,
            ..Default::default()
        }),
    ]
}

fn kv_at(directory: &TempDir) -> KvOptions {
    KvOptions::new(directory.path().join("kv"))
}

fn sqlite_at(directory: &TempDir) -> SqliteOptions {
    SqliteOptions::new(directory.path().join("items.db"))
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Sends `calls` gets of `keys_per_call` keys to a store under `limit`, moves its clock by ten
/// seconds, and returns the number of calls answered.
fn answered_in_ten_seconds(
    options: &StoreOptions,
    limit: Limit,
    calls: usize,
    keys_per_call: usize,
) -> usize {
    let clock = Arc::new(DrivenClock::default());
    let store = Embedded::open("driven", options, Arc::<DrivenClock>::clone(&clock)).unwrap();
    store.set_limit(limit).unwrap();
    let keys: Vec<Bytes> = (0..keys_per_call).map(|i| Bytes::from(format!("k{i}"))).collect();
    let send = |_| {
        let (reply, answer) = oneshot::channel();
        store.pool().submit(Job::Get { keys: keys.clone(), reply }).unwrap();
        answer
    };
    let answers: Vec<_> = (0..calls).map(send).collect();
    while clock.step(store.pool(), Instant::from_secs(10)) {}
    drop(store);
    answers.into_iter().filter_map(|answer| answer.blocking_recv().unwrap().ok()).count()
}

#[test]
fn throughput_of_a_store_at_its_limit_is_the_operations_per_second() {
    let directory = tempfile::tempdir().unwrap();
    for options in every_kind(&directory) {
        // 1000 operations in calls of 4, and one call that may exceed the rate.
        let answered = answered_in_ten_seconds(&options, Limit::OpsPerS(Some(100.0)), 1000, 4);
        assert!((250..=251).contains(&answered), "{}: {answered}", options.kind());
    }
}

#[test]
fn processor_use_of_a_store_at_its_limit_is_the_share() {
    let directory = tempfile::tempdir().unwrap();
    for options in every_kind(&directory) {
        // The test's clock charges 1 ms at each reading: after every key, before and after the
        // call. A call of 8 keys takes 10 ms, so half a processor serves 50 calls per second.
        let answered = answered_in_ten_seconds(&options, Limit::CpuRatio(Some(0.5)), 1000, 8);
        assert!((498..=503).contains(&answered), "{}: {answered}", options.kind());
    }
}

#[test]
fn limits_of_a_store_are_read_changed_and_lifted() {
    let store = open("limited", &StoreOptions::Compute(ComputeOptions::default())).unwrap();
    assert_eq!(store.limits(), Limits::default());
    store.set_limit(Limit::Slots(Some(3))).unwrap();
    store.set_limit(Limit::OpsPerS(Some(5.0))).unwrap();
    assert_eq!(store.limits(), Limits { slots: Some(3), ops_per_s: Some(5.0), cpu_ratio: None });
    store.set_limit(Limit::OpsPerS(None)).unwrap();
    assert!(store.set_limit(Limit::Slots(Some(0))).is_err());
    assert_eq!(store.limits(), Limits { slots: Some(3), ops_per_s: None, cpu_ratio: None });
}

#[test]
fn values_are_in_the_order_of_the_requested_keys_and_absent_keys_are_none() {
    let directory = tempfile::tempdir().unwrap();
    let [kv, sqlite, _] = every_kind(&directory);
    for options in [kv, sqlite] {
        let store = open("ordered", &options).unwrap();
        wait(async {
            for key in ["a", "b", "c"] {
                store.put(key.into(), format!("value of {key}").into()).await.unwrap();
            }
            store.put("b".into(), "second value of b".into()).await.unwrap();
            store.delete("c".into()).await.unwrap();
            store.delete("never there".into()).await.unwrap();
            let long = Bytes::from(vec![b'k'; 70_000]);
            let keys = vec!["c".into(), "b".into(), "x".into(), "a".into(), "b".into(), Bytes::new(), long];
            let values = store.get_many(keys).await.unwrap();
            let value = |text: &'static str| Some(Found::from(Bytes::from(text)));
            let b = value("second value of b");
            assert_eq!(
                values,
                [None, b.clone(), None, value("value of a"), b, None, None],
                "{}",
                options.kind()
            );
            assert_eq!(store.get_many(Vec::new()).await.unwrap(), []);
        });
    }
}

#[test]
fn call_without_keys_waits_for_a_thread_of_the_store() {
    let (begun, began) = mpsc::channel();
    let (may_end, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let stuck = ValueBytes::ByKey(Arc::new(move |_| {
        begun.send(()).unwrap();
        ended.lock().unwrap().recv().ok().map(|()| 1)
    }));
    let store = open_compute("stuck", &ComputeOptions { threads: 1, ..Default::default() }, stuck).unwrap();
    let mut context = Context::from_waker(Waker::noop());

    let mut working = pin!(store.get_many(vec!["a".into()]));
    assert!(working.as_mut().poll(&mut context).is_pending());
    began.recv().unwrap();
    let mut probe = pin!(store.get_many(Vec::new()));
    let unanswered = probe.as_mut().poll(&mut context).is_pending();
    may_end.send(()).unwrap();
    assert!(unanswered, "its only thread was stuck");
    assert_eq!(wait(probe).unwrap(), []);
    assert_eq!(wait(working).unwrap().len(), 1);
}

#[test]
fn acknowledged_put_is_in_the_files_of_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let [kv, sqlite, _] = every_kind(&directory);
    let [kv_copy, sqlite_copy, _] = every_kind(&copy);
    for (options, copied) in [(kv, kv_copy), (sqlite, sqlite_copy)] {
        let store = open("killed", &options).unwrap();
        wait(store.put("key".into(), VALUE.into())).unwrap();
        // The copy has the files that a killed process would leave: nothing is closed or flushed
        // before.
        copy_all(directory.path(), copy.path());
        let reopened = open("reopened", &copied).unwrap();
        assert_eq!(
            wait(reopened.get_many(vec!["key".into()])).unwrap(),
            [Some(Bytes::from(VALUE).into())],
            "{}",
            options.kind()
        );
        drop(store);
        let reopened = open("reopened", &options).unwrap();
        assert_eq!(
            wait(reopened.get_many(vec!["key".into()])).unwrap(),
            [Some(Bytes::from(VALUE).into())],
            "{}",
            options.kind()
        );
    }
}

fn copy_all(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, to) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        if from.is_dir() {
            std::fs::create_dir_all(&to).unwrap();
            copy_all(&from, &to);
        } else {
            std::fs::copy(from, to).unwrap();
        }
    }
}

#[test]
fn values_written_by_the_loader_are_read_after_opening_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let [kv, sqlite, compute] = every_kind(&directory);
    for options in [kv, sqlite] {
        let mut loader = Loader::open("loaded", &options).unwrap();
        for i in 0..100_u8 {
            loader.put(&[b'k', i], &vec![i; 1000 * usize::from(i)]).unwrap();
        }
        loader.finish().unwrap();
        let store = open("loaded", &options).unwrap();
        let values =
            wait(store.get_many(vec![Bytes::from_static(&[b'k', 99]), Bytes::from_static(&[b'k', 200])]));
        assert_eq!(values.unwrap(), [Some(Bytes::from(vec![99; 99_000]).into()), None], "{}", options.kind());
    }
    let error = Loader::open("loaded", &compute).err().unwrap().to_string();
    assert!(error.contains("a compute store has nothing to load"), "{error}");
}

#[test]
fn compute_store_refuses_writes() {
    let store = open("prices", &StoreOptions::Compute(ComputeOptions::default())).unwrap();
    let error = wait(store.put("a".into(), VALUE.into())).unwrap_err();
    assert_eq!(error.fault(), Fault::Rejected);
    assert_eq!(
        error.to_string(),
        "could not put a key on store `prices`: a compute store holds nothing, its values follow from their keys; \
         write to a kv or sqlite store"
    );
    assert!(wait(store.delete("a".into())).is_err());
}

#[test]
fn write_to_a_read_only_store_is_refused_while_its_threads_hang() {
    let options = StoreOptions::Compute(ComputeOptions { n: 1, threads: 1, ..Default::default() });
    let store = Embedded::open("driven", &options, Arc::new(DrivenClock::default())).unwrap();
    store.set_limit(Limit::OpsPerS(Some(0.001))).unwrap();
    let keys = || vec![Bytes::from("k"); 10];
    wait(store.get_many(keys())).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(store.get_many(keys()).as_mut().poll(&mut cx).is_pending(), "the next waits for a long time");
    for mut change in [store.put("k".into(), "v".into()), store.delete("k".into())] {
        let Poll::Ready(Err(error)) = change.as_mut().poll(&mut cx) else { panic!("it waits") };
        assert_eq!(error.cause().label(), "unsupported");
    }
}

#[test]
fn open_error_names_the_store_its_path_and_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(
        &file,
        "not a directory, not a database, and longer than a header of one hundred bytes".repeat(9),
    )
    .unwrap();
    let kv = open("catalog", &StoreOptions::Kv(KvOptions::new(&file))).err().unwrap().to_string();
    assert!(kv.contains("`catalog`") && kv.contains("/file") && kv.contains("choose another `path`"), "{kv}");
    let sqlite = open("catalog", &StoreOptions::Sqlite(SqliteOptions::new(&file))).err().unwrap().to_string();
    assert!(sqlite.contains("/file") && sqlite.contains("not a database"), "{sqlite}");

    let kv = StoreOptions::Kv(kv_at(&directory));
    let _first = open("catalog", &kv).unwrap();
    let second = open("catalog", &kv).err().unwrap();
    assert!(matches!(second.cause, OpenCause::Locked), "{second}");
}
