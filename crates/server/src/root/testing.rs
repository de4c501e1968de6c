//! A session for tests, in front of storages in memory.

use std::sync::Arc;

use gridlane_auth::Policy;
use gridlane_dav::ResourcePath;
use gridlane_store::{MemoryStorage, ObjectPath, Storage};
use gridlane_xrd::answer::StatText;
use gridlane_xrd::request::{About, Stat};
use gridlane_xrd::{ErrorCode, PathArg};
use tokio::runtime::{Builder, Handle};

use super::places::Context;
use super::stat;
use crate::Settings;
use crate::export::{Export, open_to_anyone};
use crate::storage_service::StorageSettings;
use gridlane_front::root::answer::{Answer, Outcome};

/// A session in front of these exports.
pub(super) fn context_of(exports: Vec<Export>, adjust: impl FnOnce(&mut Settings)) -> Context {
    let storage = StorageSettings { exports, ..StorageSettings::default() };
    let mut settings = Settings::new(Vec::new(), storage);
    settings.policy = Arc::new(Policy::new(vec![open_to_anyone("anyone", &ResourcePath::root(), true)]));
    adjust(&mut settings);
    gridlane_front::testing::context(settings).unwrap()
}

/// A session in front of one writable export with `/d/f`, which holds `hello`, and `/d/e`, which is empty.
pub(super) fn context() -> Context {
    let storage = MemoryStorage::new();
    storage.add_directory(&path("d"));
    storage.add_directory(&path("d/e"));
    storage.add_file(&path("d/f"), b"hello".to_vec());
    writable(storage)
}

/// A session in front of this storage, writable.
pub(super) fn writable(storage: impl Storage + 'static) -> Context {
    let export = Export { allow_write: true, ..Export::new(Arc::new(storage)) };
    context_of(vec![export], |_| {})
}

/// An export of a file `f` at a path.
pub(super) fn export_at(place: &str) -> Export {
    let storage = MemoryStorage::new();
    storage.add_file(&path("f"), b"x".to_vec());
    Export { path: ResourcePath::parse(place).unwrap(), ..Export::new(Arc::new(storage)) }
}

pub(super) fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text.split('/').map(str::as_bytes)).unwrap()
}

pub(super) fn arg(text: &str) -> PathArg {
    PathArg::parse(text.as_bytes())
}

/// The result of a future that may wait, in front of a storage that does not.
pub(super) fn wait<T>(task: impl Future<Output = T>) -> T {
    match Handle::try_current() {
        Ok(_) => {
            let waker = &mut std::task::Context::from_waker(std::task::Waker::noop());
            match std::pin::pin!(task).poll(waker) {
                std::task::Poll::Ready(done) => done,
                std::task::Poll::Pending => panic!("it waits"),
            }
        }
        Err(_) => Builder::new_current_thread().build().unwrap().block_on(task),
    }
}

/// The whole answer, all of its pieces.
pub(super) fn bytes(outcome: Outcome) -> Vec<u8> {
    match outcome.unwrap() {
        Answer::Ok(bytes) => bytes,
        Answer::Pieces { first, mut rest } => {
            let mut bytes = first;
            while wait(rest.next(&mut bytes)).unwrap() {}
            bytes
        }
        _ => panic!("neither bytes nor pieces"),
    }
}

pub(super) fn text(outcome: Outcome) -> String {
    String::from_utf8(bytes(outcome)).unwrap()
}

/// The code and text of its failure.
#[track_caller]
pub(super) fn error(outcome: Outcome) -> (ErrorCode, String) {
    match outcome {
        Ok(_) => panic!("it went well"),
        Err(failure) => (failure.code, failure.text),
    }
}

#[track_caller]
pub(super) fn code(outcome: Outcome) -> ErrorCode {
    error(outcome).0
}

/// The stat text of a path; `None` when there is nothing.
pub(super) fn stat_of(context: &Context, path: &str) -> Option<StatText> {
    let request = Stat { about: About::Path(arg(path)), is_vfs: false, wants: 0 };
    match wait(stat::stat(context, &request)) {
        Ok(answer) => Some(StatText::parse(&bytes(Ok(answer))).unwrap()),
        Err(failure) => {
            assert_eq!(failure.code, ErrorCode::NOT_FOUND, "{path}: {}", failure.text);
            None
        }
    }
}

/// The outcome of a request that takes long, and lets other tasks have their turn in between.
pub(super) async fn lets_others_in(request: impl Future<Output = Outcome>) -> Outcome {
    let mut request = std::pin::pin!(request);
    let waker = &mut std::task::Context::from_waker(std::task::Waker::noop());
    assert!(request.as_mut().poll(waker).is_pending());
    request.await
}
