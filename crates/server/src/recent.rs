//! The file of a connection's last GET or HEAD: a client that reads a file in many ranges, one request after the other,
//! asks for the same one again and again.
//!
//! To open and close it each time would be a tenth of the cost of a small answer. So it is kept open, and before it is
//! used again one look at its path tells if that still leads to it, unchanged. Permissions are decided for each
//! request, as ever; and it is opened anew after [`KEPT_MAX`] at the latest. An idle connection keeps none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gridlane_store::{Object, ObjectPath};

use crate::export::{Export, Spot};

/// A file is opened anew after this long: what a look at its path does not tell (a directory on the way that was moved
/// and replaced by a link) is noticed then.
const KEPT_MAX: Duration = Duration::from_secs(1);

/// One file at most.
#[derive(Default)]
pub struct Recent(Option<Kept>);

struct Kept {
    /// Of a generation of settings: after a reload it is another one.
    export: Arc<Export>,
    path: ObjectPath,
    object: Arc<dyn Object>,
    opened: Instant,
}

impl Recent {
    /// The file at `spot`, if it is this one, and was not changed.
    pub(crate) fn find(&self, spot: &Spot, now: Instant) -> Option<Arc<dyn Object>> {
        let kept = self.0.as_ref()?;
        let is_it = kept.path == spot.object
            && Arc::ptr_eq(&kept.export, &spot.export)
            && now.saturating_duration_since(kept.opened) < KEPT_MAX
            && kept.object.is_still_at(&spot.object);
        is_it.then(|| Arc::clone(&kept.object))
    }

    /// Keeps what was opened at `spot`, if it can be found again.
    pub(crate) fn keep(&mut self, spot: &Spot, object: &Arc<dyn Object>, now: Instant) {
        self.0 = object.can_be_found_again().then(|| Kept {
            export: Arc::clone(&spot.export),
            path: spot.object.clone(),
            object: Arc::clone(object),
            opened: now,
        });
    }

    /// Closes it if it has been kept for as long as it may: also if the connection's next request is for something
    /// else, or is refused.
    pub(crate) fn forget_old(&mut self, now: Instant) {
        self.0.take_if(|kept| now.saturating_duration_since(kept.opened) >= KEPT_MAX);
    }

    /// Closes it.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};

    use gridlane_auth::Policy;
    use gridlane_dav::ResourcePath;
    use gridlane_store::{BoxFuture, MemoryStorage, Metadata, Opened, Storage};

    use crate::export::{Exports, Place};
    use gridlane_front::client::Client;

    struct File {
        opened: Arc<dyn Object>,
        is_there: AtomicBool,
        is_quick: bool,
    }

    impl Object for File {
        fn metadata(&self) -> &Metadata {
            self.opened.metadata()
        }

        fn read_at_nowait(&self, target: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
            self.opened.read_at_nowait(target, offset)
        }

        fn read_at<'a>(&'a self, target: &'a mut [u8], offset: u64) -> BoxFuture<'a, io::Result<usize>> {
            self.opened.read_at(target, offset)
        }

        fn is_unchanged(&self) -> BoxFuture<'_, bool> {
            Box::pin(std::future::ready(true))
        }

        fn can_be_found_again(&self) -> bool {
            self.is_quick
        }

        fn is_still_at(&self, _: &ObjectPath) -> bool {
            self.is_there.load(Ordering::Relaxed)
        }
    }

    fn file(is_quick: bool) -> Arc<File> {
        let storage = MemoryStorage::new();
        let path = ObjectPath::new([&b"f"[..]]).unwrap();
        storage.add_file(&path, b"0123".to_vec());
        let Ok(Some(Opened::File(opened))) = Storage::open_nowait(&storage, &path) else { panic!("a file") };
        Arc::new(File { opened, is_there: true.into(), is_quick })
    }

    fn exports() -> Exports {
        let export = Export::new(Arc::new(MemoryStorage::new()));
        Exports::new(vec![export], Arc::new(Policy::default()), Arc::default()).unwrap()
    }

    fn spot(exports: &Exports, path: &str) -> Spot {
        let path = ResourcePath::parse(path).unwrap();
        match exports.find(&path, &Client::anonymous(Client::UNKNOWN)) {
            Place::Inside(spot) => spot,
            Place::Above(_) | Place::Nowhere => panic!("inside"),
        }
    }

    #[test]
    fn a_file_is_kept_for_the_same_path_while_it_is_there_and_not_for_long() {
        let (exports, others, now) = (exports(), exports(), Instant::now());
        let (file, mut recent) = (file(true), Recent::default());
        let kept: Arc<dyn Object> = file.clone();
        let at = spot(&exports, "/f");
        assert!(recent.find(&at, now).is_none());
        recent.keep(&at, &kept, now);
        let soon = now + KEPT_MAX / 2;
        assert!(Arc::ptr_eq(&recent.find(&at, soon).unwrap(), &kept));
        assert!(recent.find(&spot(&exports, "/f/"), soon).is_some(), "the same object");
        assert!(recent.find(&spot(&exports, "/g"), soon).is_none());
        assert!(recent.find(&spot(&others, "/f"), soon).is_none(), "another generation");
        assert!(recent.find(&at, now + KEPT_MAX).is_none());
        file.is_there.store(false, Ordering::Relaxed);
        assert!(recent.find(&at, soon).is_none());
        file.is_there.store(true, Ordering::Relaxed);
        recent.forget_old(soon);
        assert!(recent.find(&at, soon).is_some());
        recent.forget_old(now + KEPT_MAX);
        assert!(recent.find(&at, soon).is_none());
        drop(kept);
        assert_eq!(Arc::strong_count(&file), 1, "closed");
    }

    #[test]
    fn a_file_that_cannot_be_found_again_is_not_kept() {
        let (exports, now) = (exports(), Instant::now());
        let (file, mut recent) = (file(false), Recent::default());
        let kept: Arc<dyn Object> = file.clone();
        recent.keep(&spot(&exports, "/f"), &kept, now);
        drop(kept);
        assert_eq!(Arc::strong_count(&file), 1);
    }
}
