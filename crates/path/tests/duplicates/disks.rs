//! The disk of the process: files of the logs, writes that are not synced yet, and what a crash
//! leaves of them.

use std::collections::BTreeMap;

use sherwood_dispatch::{FrameWrite, LogEntry, LogFiles, LogRecord, Recovered, StoreEnd};
use sherwood_model::Instant;
use sherwood_path::{Change, Logged};

use crate::events::{Event, Key, Version, ms};
use crate::world::World;

/// Length at which a file is followed by another one, bytes.
const FILE_BYTES_MAX: u64 = 300;

type Records = Vec<LogRecord<Key, Logged<Version>>>;

/// The files of the log of one partition.
#[derive(Clone)]
pub(crate) struct Disk {
    files: LogFiles,
    contents: BTreeMap<u64, Vec<u8>>,
    /// The frame that is being written, and the files and the number of the last entry after that.
    write: Option<(FrameWrite, LogFiles, u64)>,
    /// The number of the last entry.
    last: u64,
    /// The state that a crash leaves, while a driver has reported what is not synced.
    synced: Option<Box<Disk>>,
}

impl Disk {
    pub(crate) fn new() -> Self {
        Self {
            files: LogFiles::new(FILE_BYTES_MAX),
            contents: BTreeMap::new(),
            write: None,
            last: 0,
            synced: None,
        }
    }

    /// Ends the write in flight, if there is one, with everything on disk.
    fn finish(&mut self) {
        let Some((write, files, last)) = self.write.take() else { return };
        self.append(&write, &write.frame);
        write.removed.iter().for_each(|number| drop(self.contents.remove(number)));
        (self.files, self.last) = (files, last);
    }

    /// Appends as much of a frame to its file as reaches the disk.
    fn append(&mut self, write: &FrameWrite, frame: &[u8]) {
        let file = self.contents.entry(write.file).or_default();
        assert_eq!(file.len() as u64, write.offset, "the file is as it was left");
        file.extend(frame);
    }
}

/// Times until which the disk is full and slow, and true if its next write fails for good.
#[derive(Default)]
pub(crate) struct DiskFaults {
    pub(crate) full_until: Instant,
    pub(crate) slow_until: Instant,
    pub(crate) breaks: bool,
}

impl World {
    /// Begins a write. A driver that reports too early says at once that it is stored.
    pub(crate) fn take_store(&mut self, partition: usize, records: Records, first: u64) {
        let disk = &mut self.disks.as_mut().expect("logs are kept on disk")[partition];
        assert!(disk.write.is_none(), "one write at a time");
        let last = records.iter().fold(disk.last, |last, record| match record {
            LogRecord::Begin { last, .. } => *last,
            LogRecord::Change(entry) => entry.number,
            LogRecord::Void { .. } => last,
        });
        let (write, files) =
            disk.files.write(records, first, |logged: &Logged<Version>| match &logged.change {
                Change::Put(Version(bytes)) => Some(bytes),
                Change::Delete => None,
            });
        disk.write = Some((write, files, last));
        let slow = if self.disk_faults.slow_until > self.now { ms(150) } else { ms(2) };
        let delay = self.draw_time(slow);
        let process = self.process;
        let disk = &mut self.disks.as_mut().expect("logs are kept on disk")[partition];
        if !self.reports_early {
            return self.plan(delay, Event::Synced { partition, process });
        }
        let is_synced = disk.synced.is_none();
        let before = disk.synced.take().unwrap_or_else(|| Box::new(disk.clone()));
        disk.finish();
        disk.synced = Some(before);
        if is_synced {
            self.plan(delay, Event::Synced { partition, process });
        }
        self.report_stored(partition, StoreEnd::Stored);
    }

    /// Ends a write, unless the process that began it has ended.
    pub(crate) fn end_store(&mut self, partition: usize, process: u64) {
        let disk = &mut self.disks.as_mut().expect("logs are kept on disk")[partition];
        if process != self.process {
            return;
        }
        if self.reports_early {
            disk.synced = None;
            return;
        }
        let Some((write, ..)) = &disk.write else { return };
        let write = write.clone();
        let end = if self.disk_faults.full_until > self.now {
            disk.write = None;
            self.count("disk full");
            StoreEnd::NotStored
        } else if std::mem::take(&mut self.disk_faults.breaks) {
            disk.write = None;
            self.count("disk failed");
            self.leave_of(partition, &write);
            let restart = self.draw_time(ms(50));
            self.plan(restart, Event::Fail(crate::faults::Fault::Crash));
            StoreEnd::Unknown
        } else {
            disk.finish();
            StoreEnd::Stored
        };
        self.report_stored(partition, end);
    }

    /// Checks that an entry that is sent is on disk, if there is one.
    pub(crate) fn check_sent(&self, partition: usize, number: u64) {
        let disk = self.disks.as_ref().filter(|_| !self.reports_early).map(|disks| &disks[partition]);
        assert!(disk.is_none_or(|disk| number <= disk.last), "entry {number} is sent before it is stored");
    }

    fn report_stored(&mut self, partition: usize, end: StoreEnd) {
        self.tell(|| format!("log {partition}: {end:?}"));
        self.drive(|machine, now, cache| machine.handle_stored(now, cache, partition, end));
    }

    /// Leaves as much of an unfinished write on the disk as happens to be there: nothing, a part,
    /// all of it with zeros in between, or all.
    fn leave_of(&mut self, partition: usize, write: &FrameWrite) {
        let mut frame = write.frame.clone();
        let kind = self.draw(4);
        let at = self.draw(frame.len() as u64) as usize;
        match kind {
            0 => return self.count("unsynced write lost"),
            1 => frame.truncate(at),
            2 => frame[at..].iter_mut().take(40).for_each(|byte| *byte = 0),
            _ => {}
        }
        self.count("unsynced write left in part or whole");
        self.disks.as_mut().expect("logs are kept on disk")[partition].append(write, &frame);
    }

    /// Takes in what a crash of the process leaves of the writes in flight.
    pub(crate) fn crash_disks(&mut self) {
        for partition in 0..self.disks.as_ref().map_or(0, Vec::len) {
            let disk = &mut self.disks.as_mut().expect("logs are kept on disk")[partition];
            if let Some(synced) = disk.synced.take() {
                *disk = Disk { write: None, ..*synced };
            } else if let Some((write, ..)) = disk.write.take() {
                self.leave_of(partition, &write);
            }
        }
    }

    /// Reads the files of all logs, as a process does when it starts. The numbers of writes in the
    /// logs that are not there are forgotten.
    pub(crate) fn read_disks(&mut self) -> Option<Vec<Recovered<Key, Logged<Version>>>> {
        let Some(disks) = &mut self.disks else {
            self.numbers.clear();
            return None;
        };
        let (mut all, mut torn) = (Vec::new(), 0);
        for (partition, disk) in disks.iter_mut().enumerate() {
            let mut recovered = Recovered::new(self.duplicates.entries_max, self.duplicates.bytes_max);
            disk.files = LogFiles::new(FILE_BYTES_MAX);
            let last_file = disk.contents.keys().last().copied();
            disk.last = 0;
            for (number, file) in &mut disk.contents {
                let length = disk.files.read(*number, Some(*number) == last_file, file, |record| {
                    let bytes = size(&record);
                    let record = owned(record);
                    if let LogRecord::Change(entry) = &record {
                        disk.last = entry.number;
                    }
                    recovered.take(record, bytes)
                });
                let length = length.expect("only the end of the last file may be torn") as usize;
                torn += u64::from(length < file.len());
                file.truncate(length);
            }
            self.numbers.retain(|(of, number), _| *of != partition || *number <= disk.last);
            all.push(recovered);
        }
        for _ in 0..torn {
            self.count("torn frame cut off");
        }
        if all.iter().any(|recovered| recovered.entries() > 0) {
            self.count("entries found on disk");
        }
        Some(all)
    }
}

fn size(record: &LogRecord<&[u8], Option<&[u8]>>) -> u64 {
    match record {
        LogRecord::Change(entry) => (entry.key.len() + entry.change.map_or(0, <[u8]>::len)) as u64,
        LogRecord::Begin { .. } | LogRecord::Void { .. } => 0,
    }
}

fn owned(record: LogRecord<&[u8], Option<&[u8]>>) -> LogRecord<Key, Logged<Version>> {
    match record {
        LogRecord::Begin { epoch, last, continues } => LogRecord::Begin { epoch, last, continues },
        LogRecord::Void { number, may_be_made } => LogRecord::Void { number, may_be_made },
        LogRecord::Change(LogEntry { number, key, change }) => {
            let version = |bytes: &[u8]| Version(bytes.try_into().expect("eight bytes"));
            let change = change.map_or(Change::Delete, |bytes| Change::Put(version(bytes)));
            let key = key.try_into().expect("four bytes");
            LogRecord::Change(LogEntry { number, key, change: Logged::recovered(change) })
        }
    }
}
