//! Files that are no files: bytes that are in memory, or are made as they are needed, as the source of a copy.

use std::future::ready;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::storage::{BoxFuture, FileIdentity, Metadata, NodeKind, Object};

/// Bytes that are there without waiting, and do not change.
pub trait Content: Send + Sync {
    /// Their number.
    fn size_bytes(&self) -> u64;

    /// Fills `into` with those from `offset` on; returns how many there are, 0 behind the end.
    fn fill(&self, into: &mut [u8], offset: u64) -> usize;
}

/// Such bytes as an object.
#[derive(Clone, Debug)]
pub struct ContentObject<C> {
    content: C,
    metadata: Metadata,
}

impl<C: Content> ContentObject<C> {
    /// `tag` is the version, and differs where the bytes do.
    pub fn new(content: C, tag: String, modified: SystemTime) -> ContentObject<C> {
        let metadata = Metadata {
            kind: NodeKind::File,
            size_bytes: content.size_bytes(),
            modified,
            changed: UNIX_EPOCH,
            created: None,
            tag,
            identity: FileIdentity { device: 0, number: 0 },
            mode: 0o100_644,
            owner: 0,
            group: 0,
        };
        ContentObject { content, metadata }
    }
}

impl<C: Content> Object for ContentObject<C> {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        Ok(Some(self.content.fill(target, offset)))
    }

    fn never_waits(&self) -> bool {
        true
    }

    fn read_at<'a>(&'a self, target: &'a mut [u8], offset: u64) -> BoxFuture<'a, io::Result<usize>> {
        Box::pin(ready(Ok(self.content.fill(target, offset))))
    }

    fn is_unchanged_nowait(&self) -> Option<bool> {
        Some(true)
    }

    fn is_unchanged(&self) -> BoxFuture<'_, bool> {
        Box::pin(ready(true))
    }
}
