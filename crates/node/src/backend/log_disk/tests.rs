use std::os::unix::fs::PermissionsExt;

use sherwood_path::{Acknowledge, Consistency};

use super::*;

fn options(path: &Path) -> Duplicates {
    Duplicates {
        partitions: 2,
        duplicates: 2,
        consistency: Consistency::ReadYourWrites,
        acknowledge: Acknowledge::First,
        entries_max: 1_000,
        bytes_max: 1 << 20,
        path: Some(path.to_owned()),
    }
}

fn opened(options: &Duplicates) -> OpenedLogs {
    LogDisk::open(Some(options)).expect("it can be opened").expect("it has a path")
}

fn refused(options: &Duplicates) -> String {
    LogDisk::open(Some(options)).err().expect("it is refused").to_string()
}

fn change(number: u64, bytes: usize) -> LogRecord<Bytes, Logged<Found>> {
    let put = Change::Put(Found::from(Bytes::from(vec![7; bytes])));
    LogRecord::Change(LogEntry { number, key: Bytes::from_static(b"k"), change: Logged::recovered(put) })
}

fn begin() -> LogRecord<Bytes, Logged<Found>> {
    LogRecord::Begin { epoch: 3, last: 0, continues: false }
}

/// Creates logs with two frames in the second partition, and returns the path of its file.
fn written(options: &Duplicates) -> PathBuf {
    let OpenedLogs { disk, .. } = opened(options);
    assert_eq!(disk.store("a", 1, vec![begin(), change(1, 10)], 1), StoreEnd::Stored);
    assert_eq!(disk.store("a", 1, vec![change(2, 10)], 1), StoreEnd::Stored);
    options.path.as_ref().expect("it has one").join("2-of-2/0000000000000001.log")
}

fn recovered(options: &Duplicates) -> Vec<usize> {
    opened(options).recovered.iter().map(Recovered::entries).collect()
}

#[test]
fn records_are_found_again_in_files_that_only_their_owner_can_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = options(&directory.path().join("logs/a"));
    assert!(LogDisk::open(None).expect("nothing to open").is_none());
    let file = written(&options);
    assert_eq!(recovered(&options), [0, 2]);
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let partition = file.parent().expect("a directory");
    assert_eq!([&file, partition, &directory.path().join("logs/a")].map(mode), [0o600, 0o700, 0o700]);
}

#[test]
fn torn_end_is_cut_off_and_damage_before_it_is_refused_with_file_and_offset() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = options(directory.path());
    let file = written(&options);
    let whole = fs::read(&file).expect("it is there");
    fs::write(&file, &whole[..whole.len() - 1]).expect("written");
    assert_eq!(recovered(&options), [0, 1]);
    let first = fs::metadata(&file).expect("it is there").len();
    assert!(first < whole.len() as u64 - 1);
    fs::write(&file, &whole).expect("written");
    let mut damaged = whole.clone();
    damaged[30] ^= 1;
    fs::write(&file, damaged).expect("written");
    let error = refused(&options);
    assert!(error.starts_with(&format!("the log {} is damaged at byte 0,", file.display())), "{error}");
    fs::write(&file, whole).expect("written");
    assert_eq!(recovered(&options), [0, 2]);
}

#[test]
fn directory_is_used_once_at_a_time_and_by_one_number_of_partitions() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = options(directory.path());
    let open = opened(&first);
    assert!(refused(&first).contains("are in use"), "{}", refused(&first));
    drop(open);
    opened(&first);
    let error = refused(&Duplicates { partitions: 4, ..first });
    assert!(error.contains("-of-2 is a log of another number of partitions than 4"), "{error}");
}

#[test]
fn files_without_needed_entries_are_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = options(directory.path());
    let OpenedLogs { disk, .. } = opened(&options);
    assert_eq!(disk.store("a", 0, vec![begin()], 1), StoreEnd::Stored);
    for number in 1..=40 {
        let first = number.max(9) - 8;
        assert_eq!(disk.store("a", 0, vec![change(number, 20_000)], first), StoreEnd::Stored);
    }
    drop(disk);
    let files = fs::read_dir(directory.path().join("1-of-2")).expect("it is there").count();
    // Each has seven entries of 20,000 bytes, until it has an eighth of 1 MiB.
    assert!((2..=3).contains(&files), "{files}");
    assert!((8..=21).contains(&recovered(&options)[0]));
}

#[test]
fn frame_that_cannot_be_written_is_not_stored_and_later_ones_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = options(directory.path());
    let OpenedLogs { disk, .. } = opened(&options);
    let partition = directory.path().join("1-of-2");
    fs::remove_dir(&partition).expect("it is empty");
    assert_eq!(disk.store("a", 0, vec![begin()], 1), StoreEnd::NotStored);
    fs::create_dir(&partition).expect("created");
    assert_eq!(disk.store("a", 0, vec![begin(), change(1, 1)], 1), StoreEnd::Stored);
    drop(disk);
    assert_eq!(recovered(&options), [1, 0]);
}
