//! The files that a session has open.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridlane_store::{Metadata, Object, Opened};
use gridlane_xrd::answer::OpenAnswer;
use gridlane_xrd::request::{Close, Open};
use gridlane_xrd::{ErrorCode, Handle};

use super::answer::{Answer, Failure, Outcome};
use super::context::Context;
use crate::rules::Operation;

/// The open files of a session, by handle.
#[derive(Default)]
pub(crate) struct Files {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    open: HashMap<Handle, Arc<OpenFile>>,
    next: u32,
}

/// An open file. Requests that run keep it while they need it, also when it is closed meanwhile.
pub(crate) struct OpenFile {
    /// As the client named it, for messages and logs.
    pub(crate) path: Vec<u8>,
    object: Arc<dyn Object>,
}

impl OpenFile {
    /// Its bytes, for reading.
    pub(crate) fn object(&self) -> &Arc<dyn Object> {
        &self.object
    }

    /// What is known of it now.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        Ok(self.object.metadata().clone())
    }
}

impl Files {
    /// The file that a request means.
    pub(crate) fn get(&self, handle: Handle) -> Result<Arc<OpenFile>, Failure> {
        self.lock().open.get(&handle).cloned().ok_or_else(not_open)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere leaves nothing half-done here.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a file. May wait for the disk.
pub(crate) fn open(context: &Context, request: &Open) -> Outcome {
    let spot = context.spot(&request.about, "open", Operation::Read)?;
    let failed = |error| Failure::of_store("open", &request.about.path, &error);
    let object = match spot.storage().open(&spot.object).map_err(failed)? {
        Opened::File(object) => object,
        Opened::Directory => return Err(failed(gridlane_store::StoreError::NotAFile)),
    };
    let file = Arc::new(OpenFile { path: request.about.path.clone(), object });
    let mut inner = context.session.files.lock();
    inner.next = inner.next.wrapping_add(1);
    let handle = Handle(inner.next.to_be_bytes());
    inner.open.insert(handle, file);
    drop(inner);
    let mut body = Vec::new();
    OpenAnswer { handle, stat: None }.encode(&mut body);
    Ok(Answer::Ok(body))
}

/// Closes a file. May wait for the disk.
pub(crate) fn close(context: &Context, request: &Close) -> Outcome {
    match context.session.files.lock().open.remove(&request.handle) {
        Some(_) => Ok(Answer::done()),
        None => Err(not_open()),
    }
}

fn not_open() -> Failure {
    Failure::new(ErrorCode::FILE_NOT_OPEN, "the request does not refer to an open file")
}

/// Ends all files of a session that is over.
pub(crate) async fn end_all(shared: &crate::shared::Shared, files: &Files) {
    let open = std::mem::take(&mut files.lock().open);
    shared.disk.run(|| drop(open)).await;
}
