//! Files and directories that were found and wait for their turn.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridlane_core::Error;

use super::report::LeftOut;
use crate::backlog::Record;
use crate::tree_path::TreePath;

/// A file or directory that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// Number of the root that it is below.
    pub(super) root: u32,
    /// Where below it.
    pub(super) path: TreePath,
    /// A file's size, when the listing told.
    pub(super) size_bytes: Option<u64>,
    /// When it was last changed, when the listing told.
    pub(super) modified: Option<SystemTime>,
}

/// Something that was found.
#[derive(Debug)]
pub(super) enum Found {
    File(Job),
    Directory(Job),
    LeftOut { job: Job, why: LeftOut },
    Failed { job: Job, is_directory: bool, error: Error },
}

impl Record for Job {
    fn write(&self, to: &mut Vec<u8>) {
        let since = self.modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        to.extend_from_slice(&self.root.to_le_bytes());
        to.extend_from_slice(&self.size_bytes.unwrap_or(u64::MAX).to_le_bytes());
        to.extend_from_slice(&since.map_or(u64::MAX, |since| since.as_secs()).to_le_bytes());
        to.extend_from_slice(&since.map_or(0, |since| since.subsec_nanos()).to_le_bytes());
        // A path is at most 4095 bytes.
        to.extend_from_slice(&(self.path.as_bytes().len() as u32).to_le_bytes());
        to.extend_from_slice(self.path.as_bytes());
    }

    fn read(from: &mut &[u8]) -> Option<Job> {
        fn number<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
            let (number, rest) = from.split_first_chunk()?;
            *from = rest;
            Some(*number)
        }
        let root = u32::from_le_bytes(number(from)?);
        let size_bytes = Some(u64::from_le_bytes(number(from)?)).filter(|size| *size != u64::MAX);
        let seconds = u64::from_le_bytes(number(from)?);
        let nanos = u32::from_le_bytes(number(from)?);
        let modified = match seconds {
            u64::MAX => None,
            seconds => UNIX_EPOCH.checked_add(Duration::new(seconds, nanos)),
        };
        let length = u32::from_le_bytes(number(from)?) as usize;
        let (path, rest) = from.split_at_checked(length)?;
        *from = rest;
        Some(Job { root, path: TreePath::from_checked(path.to_vec()), size_bytes, modified })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_survive_the_way_through_a_file() {
        let path = TreePath::parse(b"a/\xff\n").unwrap();
        let time = UNIX_EPOCH + Duration::new(1_700_000_000, 5);
        for (size_bytes, modified) in [(None, None), (Some(0), Some(UNIX_EPOCH)), (Some(7 << 40), Some(time))]
        {
            let job = Job { root: 3, path: path.clone(), size_bytes, modified };
            let mut bytes = Vec::new();
            job.write(&mut bytes);
            let mut rest = &bytes[..];
            assert_eq!(Job::read(&mut rest), Some(job));
            assert!(rest.is_empty());
            assert_eq!(Job::read(&mut &bytes[..bytes.len() - 1]), None);
        }
    }
}
