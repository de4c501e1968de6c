//! What blocks, as what may wait: every [`BlockingStorage`] is a [`Storage`] with [extras](PosixExtras).
//!
//! Each call takes one turn at the device, on the thread that it is on. What can be told without the device is told without a
//! turn. What is dropped and has still something to undo does that in a turn as well, in a task of its own: a request that is
//! cancelled stalls no thread of the runtime.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridlane_core::{Checksum, ChecksumKind, limits};
use gridlane_share::Turns;

use crate::blocking::{BlockingFile, BlockingObject, BlockingStorage, BlockingUpload, Read};
use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::posix_extras::PosixExtras;
use crate::storage::{
    BoxFuture, Committed, Completion, Entries, Expectation, Listing, Metadata, Names, Object, Opened,
    Overwrite, Pages, Part, Space, Storage, Upload,
};
use crate::target::{Found, Target, TargetOptions, Targets};
use crate::writable::{Whole, WritableFile, WriteOptions};

impl<O: BlockingObject> Object for O {
    fn turns(&self) -> &Arc<Turns> {
        BlockingObject::turns(self)
    }

    fn metadata(&self) -> &Metadata {
        BlockingObject::metadata(self)
    }

    fn as_file(&self) -> Option<&File> {
        BlockingObject::as_file(self)
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        BlockingObject::read_at_nowait(self, target, offset)
    }

    fn read_vectored_at_nowait(
        &self,
        targets: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> io::Result<Option<usize>> {
        BlockingObject::read_vectored_at_nowait(self, targets, offset)
    }

    fn never_waits(&self) -> bool {
        BlockingObject::never_waits(self)
    }

    fn read_at<'a>(&'a self, target: &'a mut [u8], offset: u64) -> BoxFuture<'a, io::Result<usize>> {
        Box::pin(BlockingObject::turns(self).run(move || BlockingObject::read_at(self, target, offset)))
    }

    fn read_parts<'a, 'b: 'a>(&'a self, parts: &'a mut [Part<'b>]) -> BoxFuture<'a, io::Result<usize>> {
        let read = move || {
            let mut done = 0;
            for part in parts {
                let mut of_this = 0;
                while of_this < part.target.len() {
                    let at = part.offset + of_this as u64;
                    match BlockingObject::read_at(self, &mut part.target[of_this..], at)? {
                        0 => return Ok(done + of_this),
                        count => of_this += count,
                    }
                }
                done += of_this;
            }
            Ok(done)
        };
        Box::pin(BlockingObject::turns(self).run(read))
    }

    fn is_unchanged_nowait(&self) -> Option<bool> {
        Some(BlockingObject::is_unchanged(self))
    }

    fn is_unchanged(&self) -> BoxFuture<'_, bool> {
        Box::pin(BlockingObject::turns(self).run(|| BlockingObject::is_unchanged(self)))
    }

    fn settles_in(&self, now: SystemTime) -> Option<Duration> {
        BlockingObject::settles_in(self, now)
    }

    fn settle(&self) -> BoxFuture<'_, bool> {
        Box::pin(BlockingObject::turns(self).run(|| BlockingObject::settle(self)))
    }

    fn can_be_found_again(&self) -> bool {
        BlockingObject::can_be_found_again(self)
    }

    fn is_still_at(&self, path: &ObjectPath) -> bool {
        BlockingObject::is_still_at(self, path)
    }

    fn kept_checksums<'a>(&'a self, kinds: &'a [ChecksumKind]) -> BoxFuture<'a, Vec<Checksum>> {
        let find = || kinds.iter().filter_map(|kind| self.kept_checksum(*kind)).collect();
        Box::pin(BlockingObject::turns(self).run(find))
    }

    fn keep_checksum<'a>(&'a self, checksum: &'a Checksum) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(BlockingObject::turns(self).run(|| BlockingObject::keep_checksum(self, checksum)))
    }
}

/// Something that is undone when it is dropped, which may take a turn.
struct Undone<T: Send + 'static> {
    /// There until it is dropped.
    value: Option<T>,
    turns: Arc<Turns>,
}

impl<T: Send + 'static> Undone<T> {
    fn new(value: T, turns: &Arc<Turns>) -> Undone<T> {
        Undone { value: Some(value), turns: Arc::clone(turns) }
    }

    /// Does something with it and drops it, in one turn.
    async fn end<R>(mut self, last: impl FnOnce(&T) -> R) -> R {
        let turns = Arc::clone(&self.turns);
        let end = || {
            let done = last(&self);
            drop(self.value.take());
            done
        };
        turns.run(end).await
    }
}

impl<T: Send + 'static> Deref for Undone<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("it is taken out only where it is dropped"),
        }
    }
}

impl<T: Send + 'static> Drop for Undone<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.turns.run_later(move || drop(value));
        }
    }
}

struct UploadInTurns<U: BlockingUpload>(Undone<U>);

impl<U: BlockingUpload> Upload for UploadInTurns<U> {
    fn write_at<'a>(&'a self, bytes: &'a [u8], offset: u64) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(self.0.turns.run(move || self.0.write_at(bytes, offset)))
    }

    fn copy_range<'a>(
        &'a self,
        source: &'a dyn Object,
        offset: u64,
        len: u64,
    ) -> BoxFuture<'a, StoreResult<u64>> {
        Box::pin(async move {
            match source.as_file() {
                Some(file) => self.0.turns.run(|| self.0.copy_range(file, offset, len)).await,
                None => Ok(0),
            }
        })
    }

    fn commit<'a>(self: Box<Self>, completion: &'a Completion) -> BoxFuture<'a, StoreResult<Committed>> {
        Box::pin(async move { self.0.end(|upload| upload.commit(completion)).await })
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.0.end(|_| ()).await })
    }
}

struct FileInTurns<F: BlockingFile>(Undone<F>);

impl<F: BlockingFile> WritableFile for FileInTurns<F> {
    fn turns(&self) -> &Arc<Turns> {
        &self.0.turns
    }

    fn metadata(&self) -> StoreResult<Metadata> {
        self.0.metadata()
    }

    fn look(&self) -> BoxFuture<'_, StoreResult<Metadata>> {
        Box::pin(self.0.turns.run(|| self.0.metadata()))
    }

    fn as_file(&self) -> Option<&File> {
        self.0.as_file()
    }

    fn has_name(&self) -> bool {
        self.0.has_name()
    }

    fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.0.read_at_nowait(target, offset)
    }

    fn read_at<'a>(&'a self, target: &'a mut [u8], offset: u64) -> BoxFuture<'a, io::Result<usize>> {
        Box::pin(self.0.turns.run(move || self.0.read_at(target, offset)))
    }

    fn write_at<'a>(&'a self, bytes: &'a [u8], offset: u64) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(self.0.turns.run(move || self.0.write_at(bytes, offset)))
    }

    fn write_vectored_at<'a>(
        &'a self,
        parts: &'a [IoSlice<'a>],
        offset: u64,
    ) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(self.0.turns.run(move || self.0.write_vectored_at(parts, offset)))
    }

    fn write_parts<'a>(&'a self, parts: &'a [(u64, &'a [u8])]) -> BoxFuture<'a, StoreResult<()>> {
        let write = move || parts.iter().try_for_each(|(offset, bytes)| self.0.write_at(bytes, *offset));
        Box::pin(self.0.turns.run(write))
    }

    fn truncate(&self, size_bytes: u64) -> BoxFuture<'_, StoreResult<()>> {
        Box::pin(self.0.turns.run(move || self.0.truncate(size_bytes)))
    }

    fn sync(&self) -> BoxFuture<'_, StoreResult<()>> {
        Box::pin(self.0.turns.run(|| self.0.sync()))
    }

    fn close<'a>(&'a self, whole: Option<&'a Whole>) -> BoxFuture<'a, StoreResult<Committed>> {
        Box::pin(self.0.turns.run(move || self.0.close(whole)))
    }

    fn discard(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // Of several references, the last one ends it.
            if let Some(file) = Arc::into_inner(self) {
                file.0.end(|_| ()).await;
            }
        })
    }
}

/// A directory that is read a page at a time.
struct PagesInTurns<T> {
    turns: Arc<Turns>,
    page_items: usize,
    /// Read when the directory was opened.
    first: Vec<T>,
    /// `None` when there is nothing more.
    rest: Option<Read<T>>,
    /// Told behind the last item.
    failure: Option<StoreError>,
}

/// The items that come behind a page.
enum Behind {
    /// More, or nothing.
    Unknown,
    Nothing,
    Failure(StoreError),
}

/// The next items, up to a page of them.
fn page<T>(items: &mut Read<T>, items_max: usize) -> (Vec<T>, Behind) {
    let mut page = Vec::new();
    while page.len() < items_max {
        match items.next() {
            Some(Ok(item)) => page.push(item),
            Some(Err(error)) => return (page, Behind::Failure(error)),
            None => return (page, Behind::Nothing),
        }
    }
    (page, Behind::Unknown)
}

impl<T: Send + 'static> PagesInTurns<T> {
    async fn begin(
        turns: &Arc<Turns>,
        page_items: usize,
        open: impl FnOnce() -> StoreResult<Read<T>>,
    ) -> StoreResult<Box<dyn Pages<T>>> {
        // In the turn in which it is opened: most directories have one.
        let begin = || {
            let mut items = open()?;
            let first = page(&mut items, page_items);
            StoreResult::Ok((first, items))
        };
        let ((first, behind), items) = turns.run(begin).await?;
        let turns = Arc::clone(turns);
        let mut pages = PagesInTurns { turns, page_items, first, rest: Some(items), failure: None };
        pages.ends(behind);
        Ok(Box::new(pages))
    }

    fn ends(&mut self, behind: Behind) {
        match behind {
            Behind::Unknown => return,
            Behind::Nothing => {}
            Behind::Failure(error) => self.failure = Some(error),
        }
        self.rest = None;
    }
}

impl<T: Send + 'static> Pages<T> for PagesInTurns<T> {
    fn next_page(&mut self) -> BoxFuture<'_, StoreResult<Vec<T>>> {
        Box::pin(async move {
            let mut next = std::mem::take(&mut self.first);
            if let (true, Some(items)) = (next.is_empty(), &mut self.rest) {
                let (found, behind) = self.turns.run(|| page(items, self.page_items)).await;
                next = found;
                self.ends(behind);
            }
            match self.failure.take_if(|_| next.is_empty()) {
                Some(failure) => Err(failure),
                None => Ok(next),
            }
        })
    }
}

impl<S: BlockingStorage> Storage for S {
    fn turns(&self) -> &Arc<Turns> {
        BlockingStorage::turns(self)
    }

    fn posix(&self) -> Option<&dyn PosixExtras> {
        Some(self)
    }

    fn targets(&self) -> Option<&dyn Targets> {
        self.has_targets().then_some(self as &dyn Targets)
    }

    fn look<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Metadata>> {
        Box::pin(async move {
            match BlockingStorage::look_nowait(self, path)? {
                Some(found) => Ok(found),
                None => BlockingStorage::turns(self).run(|| BlockingStorage::look(self, path)).await,
            }
        })
    }

    fn look_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Metadata>> {
        BlockingStorage::look_nowait(self, path)
    }

    fn is_in_place(&self) -> BoxFuture<'_, bool> {
        Box::pin(BlockingStorage::turns(self).run(|| BlockingStorage::is_in_place(self)))
    }

    fn open<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Opened>> {
        Box::pin(async move {
            match BlockingStorage::open_nowait(self, path)? {
                Some(opened) => Ok(opened.any()),
                None => {
                    let open = || BlockingStorage::open(self, path);
                    BlockingStorage::turns(self).run(open).await.map(Opened::any)
                }
            }
        })
    }

    fn open_nowait(&self, path: &ObjectPath) -> StoreResult<Option<Opened>> {
        BlockingStorage::open_nowait(self, path).map(|opened| opened.map(Opened::any))
    }

    fn entries<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Entries>> {
        let open = || BlockingStorage::entries(self, path);
        Box::pin(PagesInTurns::begin(BlockingStorage::turns(self), limits::DIRECTORY_PAGE_ENTRIES, open))
    }

    fn names<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Names>> {
        let open = || BlockingStorage::names(self, path);
        Box::pin(PagesInTurns::begin(BlockingStorage::turns(self), limits::DIRECTORY_PAGE_NAMES, open))
    }

    fn list<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Listing>> {
        Box::pin(BlockingStorage::turns(self).run(|| BlockingStorage::list(self, path)))
    }

    fn kept_checksums<'a>(
        &'a self,
        files: &'a [(ObjectPath, Metadata)],
        kinds: &'a [ChecksumKind],
    ) -> BoxFuture<'a, Vec<Vec<Checksum>>> {
        let of_file = |(path, metadata): &(ObjectPath, Metadata)| match BlockingStorage::open(self, path) {
            Ok(Opened::File(object)) if BlockingObject::metadata(object.as_ref()).tag == metadata.tag => {
                kinds.iter().filter_map(|kind| object.kept_checksum(*kind)).collect()
            }
            _ => Vec::new(),
        };
        Box::pin(BlockingStorage::turns(self).run(move || files.iter().map(of_file).collect()))
    }

    fn make_directory<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(BlockingStorage::turns(self).run(|| BlockingStorage::make_directory(self, path)))
    }

    fn make_directories<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            // Mostly they are there.
            match BlockingStorage::look_nowait(self, path) {
                Ok(Some(there)) if there.is_directory() => Ok(()),
                _ => {
                    let make = || BlockingStorage::make_directories(self, path);
                    BlockingStorage::turns(self).run(make).await
                }
            }
        })
    }

    fn remove<'a>(
        &'a self,
        path: &'a ObjectPath,
        expectation: &'a Expectation,
    ) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(BlockingStorage::turns(self).run(|| BlockingStorage::remove(self, path, expectation)))
    }

    fn remove_directory<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(BlockingStorage::turns(self).run(|| BlockingStorage::remove_directory(self, path)))
    }

    fn remove_tree<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(BlockingStorage::turns(self).run(|| BlockingStorage::remove_tree(self, path)))
    }

    fn space<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Space>> {
        Box::pin(BlockingStorage::turns(self).run(|| BlockingStorage::space(self, path)))
    }

    fn create<'a>(
        &'a self,
        path: &'a ObjectPath,
        expected_bytes: Option<u64>,
    ) -> BoxFuture<'a, StoreResult<Box<dyn Upload>>> {
        Box::pin(async move {
            let turns = BlockingStorage::turns(self);
            let create = || {
                let upload = BlockingStorage::create(self, path, expected_bytes)?;
                Ok(Box::new(UploadInTurns(Undone::new(upload, turns))) as Box<dyn Upload>)
            };
            turns.run(create).await
        })
    }

    fn remove_abandoned(&self, age: Duration) -> BoxFuture<'_, StoreResult<usize>> {
        Box::pin(BlockingStorage::turns(self).run(move || BlockingStorage::remove_abandoned(self, age)))
    }
}

impl<S: BlockingStorage> Targets for S {
    fn open_target<'a>(
        &'a self,
        path: &'a ObjectPath,
        options: &'a TargetOptions,
    ) -> BoxFuture<'a, StoreResult<(Arc<dyn Target>, Found)>> {
        let open = move || BlockingStorage::open_target(self, path, options);
        Box::pin(BlockingStorage::turns(self).run(open))
    }

    fn unfinished_bytes<'a>(&'a self, directory: &'a ObjectPath) -> BoxFuture<'a, StoreResult<u64>> {
        Box::pin(BlockingStorage::turns(self).run(|| BlockingStorage::unfinished_bytes(self, directory)))
    }
}

impl<S: BlockingStorage> PosixExtras for S {
    fn is_link<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(BlockingStorage::turns(self).run(|| BlockingStorage::is_link(self, path)))
    }

    fn rename<'a>(
        &'a self,
        from: &'a ObjectPath,
        to: &'a ObjectPath,
        overwrite: Overwrite,
        expectation: &'a Expectation,
    ) -> BoxFuture<'a, StoreResult<bool>> {
        let rename = move || BlockingStorage::rename(self, from, to, overwrite, expectation);
        Box::pin(BlockingStorage::turns(self).run(rename))
    }

    fn set_modified<'a>(
        &'a self,
        path: &'a ObjectPath,
        modified: SystemTime,
    ) -> BoxFuture<'a, StoreResult<()>> {
        let set = move || BlockingStorage::set_modified(self, path, modified);
        Box::pin(BlockingStorage::turns(self).run(set))
    }

    fn open_writable<'a>(
        &'a self,
        path: &'a ObjectPath,
        options: &'a WriteOptions,
    ) -> BoxFuture<'a, StoreResult<Arc<dyn WritableFile>>> {
        Box::pin(async move {
            let turns = BlockingStorage::turns(self);
            let open = || {
                let file = BlockingStorage::open_writable(self, path, options)?;
                Ok(Arc::new(FileInTurns(Undone::new(file, turns))) as Arc<dyn WritableFile>)
            };
            turns.run(open).await
        })
    }

    fn set_mode<'a>(&'a self, path: &'a ObjectPath, mode: u32) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(BlockingStorage::turns(self).run(move || BlockingStorage::set_mode(self, path, mode)))
    }

    fn attribute_names<'a>(&'a self, path: &'a ObjectPath) -> BoxFuture<'a, StoreResult<Vec<Vec<u8>>>> {
        Box::pin(BlockingStorage::turns(self).run(|| BlockingStorage::attribute_names(self, path)))
    }

    fn attribute<'a>(
        &'a self,
        path: &'a ObjectPath,
        name: &'a [u8],
    ) -> BoxFuture<'a, StoreResult<Option<Vec<u8>>>> {
        Box::pin(BlockingStorage::turns(self).run(|| BlockingStorage::attribute(self, path, name)))
    }

    fn set_attribute<'a>(
        &'a self,
        path: &'a ObjectPath,
        name: &'a [u8],
        value: &'a [u8],
        must_be_new: bool,
    ) -> BoxFuture<'a, StoreResult<()>> {
        let set = move || BlockingStorage::set_attribute(self, path, name, value, must_be_new);
        Box::pin(BlockingStorage::turns(self).run(set))
    }

    fn remove_attribute<'a>(
        &'a self,
        path: &'a ObjectPath,
        name: &'a [u8],
    ) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(BlockingStorage::turns(self).run(|| BlockingStorage::remove_attribute(self, path, name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStorage;
    use std::sync::mpsc::{Receiver, channel};

    /// Far longer than anything takes in a test that passes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// An upload whose removal hangs until it is told to go on.
    struct Hanging {
        go_on: std::sync::Mutex<Receiver<()>>,
        gone: Arc<std::sync::Mutex<bool>>,
    }

    impl BlockingUpload for Hanging {
        fn write_at(&self, _: &[u8], _: u64) -> StoreResult<()> {
            Ok(())
        }

        fn commit(&self, _: &Completion) -> StoreResult<Committed> {
            Err(StoreError::NoSpace)
        }
    }

    impl Drop for Hanging {
        fn drop(&mut self) {
            let _ = self.go_on.get_mut().unwrap().recv_timeout(PATIENCE);
            *self.gone.lock().unwrap() = true;
        }
    }

    /// There is one thread: were it to wait for the removal, nothing would tell that to go on.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn whoever_drops_an_upload_does_not_wait_for_its_removal() {
        let (turns, gone) = (Arc::new(Turns::default()), Arc::default());
        let (tell, go_on) = channel();
        let hanging = Hanging { go_on: std::sync::Mutex::new(go_on), gone: Arc::clone(&gone) };
        let upload: Box<dyn Upload> = Box::new(UploadInTurns(Undone::new(hanging, &turns)));
        let dropped = tokio::spawn(async move { drop(upload) });
        dropped.await.unwrap();
        while turns.running() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!*gone.lock().unwrap(), "it hangs, in a turn");
        tell.send(()).unwrap();
        while turns.running() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(*gone.lock().unwrap());
        // An explicit discard waits for it, and so does a commit that fails.
        for commits in [false, true] {
            let (tell, go_on) = channel();
            let gone = Arc::default();
            let hanging = Hanging { go_on: std::sync::Mutex::new(go_on), gone: Arc::clone(&gone) };
            let upload: Box<dyn Upload> = Box::new(UploadInTurns(Undone::new(hanging, &turns)));
            tell.send(()).unwrap();
            match commits {
                false => upload.discard().await,
                true => assert!(upload.commit(&Expectation::Anything.into()).await.is_err()),
            }
            assert!(*gone.lock().unwrap());
        }
    }

    #[tokio::test]
    async fn a_directory_comes_in_pages_and_a_failure_behind_what_was_read() {
        let storage = MemoryStorage::new();
        let count = 2 * limits::DIRECTORY_PAGE_ENTRIES + 1;
        for number in 0..count {
            storage.add_file(&ObjectPath::new([number.to_string().as_bytes()]).unwrap(), Vec::new());
        }
        let mut pages = Storage::entries(&storage, &ObjectPath::root()).await.unwrap();
        for expected in [limits::DIRECTORY_PAGE_ENTRIES, limits::DIRECTORY_PAGE_ENTRIES, 1, 0, 0] {
            assert_eq!(pages.next_page().await.unwrap().len(), expected);
        }
        let turns = Arc::new(Turns::default());
        let failing = || {
            let items = [Ok(1), Ok(2), Ok(3), Err(StoreError::Busy)];
            Ok(Box::new(items.into_iter()) as Read<i32>)
        };
        let mut pages = PagesInTurns::begin(&turns, 2, failing).await.unwrap();
        assert_eq!(pages.next_page().await.unwrap(), [1, 2]);
        assert_eq!(pages.next_page().await.unwrap(), [3]);
        assert!(matches!(pages.next_page().await, Err(StoreError::Busy)));
        assert!(pages.next_page().await.unwrap().is_empty());
        assert!(PagesInTurns::<i32>::begin(&turns, 2, || Err(StoreError::NotFound)).await.is_err());
    }

    /// What needs no device has no turn, and waits for none.
    #[tokio::test]
    async fn what_is_known_without_the_device_takes_no_turn() {
        let storage = MemoryStorage::new();
        let path = ObjectPath::new([&b"f"[..]]).unwrap();
        storage.add_file(&path, *b"bytes");
        let turns = BlockingStorage::turns(&storage);
        let all =
            turns.budget().try_take(gridlane_share::budget::Holder::SERVER, limits::DISK_OPERATIONS_MAX);
        let _all = all.ok().unwrap();
        assert_eq!(Storage::look(&storage, &path).await.unwrap().size_bytes, 5);
        let Opened::File(object) = Storage::open(&storage, &path).await.unwrap() else { panic!("a file") };
        let mut bytes = [0; 5];
        assert_eq!(object.read_at_nowait(&mut bytes, 0).unwrap(), Some(5));
        assert_eq!(object.is_unchanged_nowait(), Some(true));
        Storage::make_directories(&storage, &ObjectPath::root()).await.unwrap();
        // And what does waits for one.
        let waker = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(object.read_at(&mut bytes, 0).as_mut().poll(waker).is_pending());
    }
}
