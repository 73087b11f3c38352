//! The files of a log on disk: which one a frame is written to, and which may be removed.

use std::collections::VecDeque;

use super::record::{LogRecord, encode_frame, read_frames};

/// The files of a log on disk, which are numbered in their order. Each begins with a
/// [`LogRecord::Begin`], so that those before it can be removed.
///
/// All of them together have the entries that the log keeps, at most as many bytes of those that it
/// does not as one file, and the last frame. A start of a process adds 42 bytes.
#[derive(Clone, Debug)]
pub struct LogFiles {
    /// Number of each file, and of the entry before its first one.
    files: VecDeque<(u64, u64)>,
    /// Length of the last file, bytes.
    length: u64,
    file_bytes_max: u64,
    epoch: u64,
    /// Number of the last entry.
    last: u64,
    /// The first entry of this process that takes no effect, and that a duplicate may have made.
    contested: Option<u64>,
}

/// A frame to write and sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameWrite {
    /// Number of the file to append to; it is created if the frame is its first.
    pub file: u64,
    /// Length of the file before.
    pub offset: u64,
    /// The frame.
    pub frame: Vec<u8>,
    /// Files to remove, in this order, once the frame is synced.
    pub removed: Vec<u64>,
}

/// Least and greatest length at which a file is followed by another one.
const FILE_BYTES_MIN: u64 = 64 << 10;
const FILE_BYTES_MAX: u64 = 16 << 20;

impl LogFiles {
    /// Creates the state of a log without files that keeps this many bytes of keys and values: each
    /// file has an eighth of that, and 64 KiB to 16 MiB.
    #[must_use]
    pub fn of_log(bytes_max: u64) -> Self {
        Self::new((bytes_max / 8).clamp(FILE_BYTES_MIN, FILE_BYTES_MAX))
    }

    /// Creates the state of a log without files. A file is followed by another one when it has this
    /// many bytes.
    #[must_use]
    pub fn new(file_bytes_max: u64) -> Self {
        Self { files: VecDeque::new(), length: 0, file_bytes_max, epoch: 0, last: 0, contested: None }
    }

    /// Adds a file that was found at the start, in the order of the numbers, and passes its records
    /// to `take`, which returns false if they cannot follow those before. Returns the length to
    /// which the file has to be cut, since what follows was not completely written.
    ///
    /// # Errors
    /// The offset of a frame that is damaged or cannot follow those before it. Only the last file
    /// may end with an incomplete one.
    pub fn read(
        &mut self,
        number: u64,
        is_last: bool,
        file: &[u8],
        mut take: impl FnMut(LogRecord<&[u8], Option<&[u8]>>) -> bool,
    ) -> Result<u64, u64> {
        let mut before = None;
        let length = read_frames(file, |record| {
            self.note(&record);
            before.get_or_insert(self.last);
            take(record)
        });
        let length = length.map_err(|damaged| damaged as u64)? as u64;
        if !is_last && length < file.len() as u64 {
            return Err(length);
        }
        self.files.push_back((number, before.unwrap_or(self.last)));
        self.length = length;
        Ok(length)
    }

    /// Returns the frame of these records, and the files after it was written and synced. Entries
    /// before `first` are not needed any more.
    #[must_use]
    pub fn write<K: AsRef<[u8]>, E>(
        &self,
        mut records: Vec<LogRecord<K, E>>,
        first: u64,
        value: impl Fn(&E) -> Option<&[u8]>,
    ) -> (FrameWrite, Self) {
        let mut after = self.clone();
        let begins = matches!(records.first(), Some(LogRecord::Begin { .. }));
        let begins_anew = matches!(records.first(), Some(LogRecord::Begin { continues: false, .. }));
        if self.files.is_empty() || begins_anew || self.length >= self.file_bytes_max {
            let number = self.files.back().map_or(1, |(number, _)| number + 1);
            after.length = 0;
            after.files.push_back((number, self.last));
            if !begins {
                let begin = LogRecord::Begin { epoch: self.epoch, last: self.last, continues: true };
                let void = self.contested.map(|number| LogRecord::Void { number, may_be_made: true });
                records.splice(0..0, [begin].into_iter().chain(void));
            }
        }
        records.iter().for_each(|record| after.note(record));
        let mut removed = Vec::new();
        while let Some((_, before)) = after.files.get(1).copied()
            && (begins_anew || before < first)
        {
            removed.extend(after.files.pop_front().map(|(number, _)| number));
        }
        let (file, offset) = (after.files.back().map_or(1, |(number, _)| *number), after.length);
        let mut frame = Vec::new();
        encode_frame(&mut frame, offset, &records, value);
        after.length += frame.len() as u64;
        (FrameWrite { file, offset, frame, removed }, after)
    }

    fn note<K, E>(&mut self, record: &LogRecord<K, E>) {
        match record {
            LogRecord::Begin { epoch, last, .. } => {
                self.contested = self.contested.filter(|_| *epoch == self.epoch);
                (self.epoch, self.last) = (*epoch, *last);
            }
            LogRecord::Change(entry) => self.last = entry.number,
            LogRecord::Void { number, may_be_made: true } => {
                self.contested = Some(self.contested.map_or(*number, |first| first.min(*number)));
            }
            LogRecord::Void { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::LogEntry;
    use super::*;

    type Owned = LogRecord<Vec<u8>, Option<Vec<u8>>>;

    fn change(number: u64) -> Owned {
        LogRecord::Change(LogEntry { number, key: b"key".to_vec(), change: Some(vec![0; 60]) })
    }

    fn begin(epoch: u64, last: u64, continues: bool) -> Owned {
        LogRecord::Begin { epoch, last, continues }
    }

    /// Writes the records of a frame, and returns the numbers of the files.
    fn write(
        (files, disk): &mut (LogFiles, BTreeMap<u64, Vec<u8>>),
        records: Vec<Owned>,
        first: u64,
    ) -> Vec<u64> {
        let (write, after) = files.write(records, first, |value| value.as_deref());
        let file = disk.entry(write.file).or_default();
        assert_eq!(file.len() as u64, write.offset);
        file.extend(write.frame);
        write.removed.iter().for_each(|number| drop(disk.remove(number)));
        *files = after;
        disk.keys().copied().collect()
    }

    fn read(disk: &BTreeMap<u64, Vec<u8>>) -> Vec<Owned> {
        let (mut files, mut records) = (LogFiles::new(200), Vec::new());
        for (number, file) in disk {
            let is_last = Some(number) == disk.keys().last();
            let end = files.read(*number, is_last, file, |record| {
                records.push(match record {
                    LogRecord::Begin { epoch, last, continues } => begin(epoch, last, continues),
                    LogRecord::Change(LogEntry { number, .. }) => change(number),
                    LogRecord::Void { number, may_be_made } => LogRecord::Void { number, may_be_made },
                });
                true
            });
            assert_eq!(end, Ok(file.len() as u64));
        }
        records
    }

    #[test]
    fn files_without_entries_that_are_needed_are_removed() {
        let mut disk = (LogFiles::new(200), BTreeMap::new());
        assert_eq!(write(&mut disk, vec![begin(3, 0, false), change(1)], 1), [1]);
        assert_eq!(write(&mut disk, vec![change(2)], 1), [1]);
        assert_eq!(write(&mut disk, vec![change(3)], 1), [1, 2]);
        assert_eq!(write(&mut disk, vec![change(4)], 2), [1, 2]);
        assert_eq!(write(&mut disk, vec![change(5)], 3), [2, 3]);
        let expected = [begin(3, 2, true), change(3), change(4), begin(3, 4, true), change(5)];
        assert_eq!(read(&disk.1), expected);
        assert_eq!(write(&mut disk, vec![begin(9, 5, false)], 6), [4], "nothing before is used");
        assert_eq!(read(&disk.1), [begin(9, 5, false)]);
    }

    #[test]
    fn file_that_follows_tells_which_entries_may_have_been_made() {
        let mut disk = (LogFiles::new(100), BTreeMap::new());
        let voids = [1, 2].map(|number| LogRecord::Void { number, may_be_made: true });
        let first = [vec![begin(3, 0, false), change(1), change(2)], voids.to_vec()].concat();
        write(&mut disk, first, 1);
        assert_eq!(write(&mut disk, vec![change(3), change(4)], 3), [2]);
        assert_eq!(read(&disk.1)[..2], [begin(3, 2, true), voids[0].clone()]);
        write(&mut disk, vec![begin(4, 4, true)], 3);
        write(&mut disk, vec![change(5), change(6)], 3);
        assert_eq!(write(&mut disk, vec![change(7), change(8)], 7), [4]);
        assert_eq!(read(&disk.1)[..2], [begin(4, 6, true), change(7)], "that was another process");
    }

    #[test]
    fn only_the_last_file_may_be_torn() {
        let mut disk = (LogFiles::new(100), BTreeMap::new());
        write(&mut disk, vec![begin(3, 0, false), change(1)], 1);
        let frame_end = disk.1[&1].len() as u64;
        let torn: Vec<u8> = [&disk.1[&1][..], b"SWL1"].concat();
        let read = |is_last| LogFiles::new(100).read(1, is_last, &torn, |_| true);
        assert_eq!((read(true), read(false)), (Ok(frame_end), Err(frame_end)));
    }
}
