use std::fs::{self, File};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tempfile::TempDir;

use super::*;

/// A directory with a file, and the secret in the file as a watched value whose every use checks
/// the file.
struct Bed {
    directory: TempDir,
    path: PathBuf,
    loads: Arc<AtomicUsize>,
    watched: Watched<String>,
}

impl Bed {
    fn new(contents: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        fs::write(&path, contents).unwrap();
        let loads = Arc::new(AtomicUsize::new(0));
        let load = {
            let (path, loads) = (path.clone(), Arc::clone(&loads));
            move |reader: &mut Reader| {
                loads.fetch_add(1, Relaxed);
                reader.secret(&path, Rules::DEFAULT)
            }
        };
        let watched = Watched { interval: Duration::ZERO, ..Watched::open(load).unwrap() };
        Self { directory, path, loads, watched }
    }

    fn write(&self, contents: &str) {
        fs::write(&self.path, contents).unwrap();
    }

    #[track_caller]
    fn assert_is(&self, expected: &str) {
        assert_eq!(*self.watched.current(), expected);
    }

    fn failure(&self) -> Option<String> {
        self.watched.lock().failure.clone().map(|(_, error)| error)
    }

    /// Sets the file's modification time to long ago.
    fn age(&self) {
        let file = File::options().write(true).open(&self.path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
    }
}

#[test]
fn changed_file_is_reread_and_an_unusable_file_leaves_the_value_unchanged() {
    let bed = Bed::new("one");
    bed.assert_is("one");
    for (contents, expected) in [
        ("two\n", "two"),
        ("\u{feff}three\r\n", "three"),
        ("", "three"),
        ("four\nfive\n", "three"),
        ("six", "six"),
    ] {
        bed.write(contents);
        bed.assert_is(expected);
    }
    fs::remove_file(&bed.path).unwrap();
    bed.assert_is("six");
    fs::create_dir(&bed.path).unwrap();
    bed.assert_is("six");
    fs::remove_dir(&bed.path).unwrap();
    bed.write("seven");
    bed.assert_is("seven");
}

#[test]
fn failure_stays_recorded_until_the_file_has_valid_contents() {
    let bed = Bed::new("one");
    bed.write("sesame\nopen\n");
    bed.assert_is("one");
    let failure = bed.failure().unwrap();
    assert!(failure.contains("has 2 lines") && !failure.contains("sesame"), "{failure}");
    bed.assert_is("one");
    assert_eq!(bed.failure(), Some(failure));
    bed.write("one");
    bed.assert_is("one");
    assert_eq!(bed.failure(), None);
}

#[test]
fn file_is_reread_when_a_symbolic_link_to_it_is_replaced() {
    let bed = Bed::new("unused");
    let path = |name: &str| bed.directory.path().join(name);
    // As Kubernetes replaces the files of a secret.
    for version in ["1", "2"] {
        fs::create_dir(path(version)).unwrap();
        fs::write(path(version).join("secret"), version).unwrap();
    }
    let point_to = |version: &str| {
        std::os::unix::fs::symlink(path(version), path("new")).unwrap();
        fs::rename(path("new"), path("data")).unwrap();
    };
    point_to("1");
    let secret = path("data").join("secret");
    let watched = Watched::open(move |reader: &mut Reader| reader.secret(&secret, Rules::DEFAULT)).unwrap();
    let watched = Watched { interval: Duration::ZERO, ..watched };
    assert_eq!(*watched.current(), "1");
    point_to("2");
    assert_eq!(*watched.current(), "2");
}

#[test]
fn recent_change_that_leaves_the_file_metadata_equal_is_noticed() {
    let bed = Bed::new("one");
    bed.write("two");
    // As if both were written within one step of the file system's clock.
    bed.watched.lock().files[0].1 = Stamp::of(&bed.path);
    bed.assert_is("two");
}

#[test]
fn file_with_a_settled_stamp_is_not_read_again_while_unchanged() {
    let bed = Bed::new("one");
    bed.age();
    // Its metadata has changed just now, so it may still change unnoticed.
    bed.assert_is("one");
    bed.watched.lock().is_settled = true;
    let before = bed.loads.load(Relaxed);
    for _ in 0..10 {
        bed.assert_is("one");
    }
    assert_eq!(bed.loads.load(Relaxed), before);
}

#[test]
fn refused_value_is_replaced_by_the_new_value_of_the_files_or_by_the_previous_value() {
    let bed = Bed::new("one");
    // Their metadata are not checked.
    let watched = Watched { interval: Duration::from_secs(3600), ..bed.watched };
    let refused = watched.current();
    fs::write(&bed.path, "two").unwrap();
    assert_eq!(*watched.current(), "one");
    assert_eq!(*watched.newer_than(&refused).unwrap(), "two");
    // Others that were refused with the old value get the new one.
    assert_eq!(*watched.newer_than(&refused).unwrap(), "two");
    let watched = Watched { interval: Duration::ZERO, ..watched };
    for before in ["one", "two", "one"] {
        assert_eq!(*watched.newer_than(&watched.current()).unwrap(), before);
        assert_eq!(*watched.current(), before, "it is in force until it is refused");
    }
    fs::write(&bed.path, "three").unwrap();
    assert_eq!(*watched.current(), "three");
    let never_changed = Bed::new("one").watched;
    assert_eq!(never_changed.newer_than(&never_changed.current()), None);
}

#[test]
fn refusals_reread_the_files_at_most_once_per_interval() {
    let bed = Bed::new("one");
    let watched = Watched { interval: Duration::from_secs(3600), ..bed.watched };
    let refused = watched.current();
    let before = bed.loads.load(Relaxed);
    for _ in 0..1000 {
        assert_eq!(watched.newer_than(&refused), None);
        assert_eq!(*watched.current(), "one");
    }
    assert_eq!(bed.loads.load(Relaxed), before + 1);
}

#[test]
fn value_of_several_files_is_read_again_when_one_of_them_changes() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["cert", "key"].map(|name| directory.path().join(name));
    let write = |index: usize, text: &str| fs::write(&paths[index], text).unwrap();
    write(0, "1");
    write(1, "1");
    let load = {
        let [cert, key] = paths.clone();
        move |reader: &mut Reader| -> Result<String, String> {
            let read = |reader: &mut Reader, path: &Path| {
                reader.secret(path, Rules::DEFAULT).map_err(|error| error.to_string())
            };
            let (cert, key) = (read(reader, &cert)?, read(reader, &key)?);
            if cert == key { Ok(cert) } else { Err("they do not match".to_owned()) }
        }
    };
    let watched = Watched { interval: Duration::ZERO, ..Watched::open(load).unwrap() };
    write(0, "2");
    assert_eq!(*watched.current(), "1", "one of two is replaced");
    write(1, "2");
    assert_eq!(*watched.current(), "2");
}

#[test]
fn value_set_by_a_caller_stays_until_the_next_check_of_the_files() {
    let bed = Bed::new("one");
    let watched = Watched { interval: Duration::from_secs(3600), ..bed.watched };
    watched.set("set".to_owned());
    assert_eq!(*watched.current(), "set");
    let watched = Watched { interval: Duration::ZERO, ..watched };
    assert_eq!(*watched.current(), "one");
}

#[test]
fn change_of_included_contents_makes_a_new_value() {
    let elsewhere = Arc::new(Mutex::new("one".to_owned()));
    let load = {
        let elsewhere = Arc::clone(&elsewhere);
        move |reader: &mut Reader| -> Result<String, String> {
            let now = elsewhere.lock().unwrap().clone();
            reader.include(now.as_bytes());
            Ok(now)
        }
    };
    let watched = Watched { interval: Duration::ZERO, ..Watched::open(load).unwrap() };
    let refused = watched.current();
    assert_eq!(watched.newer_than(&refused), None);
    *elsewhere.lock().unwrap() = "two".to_owned();
    assert_eq!(*watched.newer_than(&refused).unwrap(), "two");
    assert_eq!(format!("{watched:?}"), "Watched { .. }");
}
