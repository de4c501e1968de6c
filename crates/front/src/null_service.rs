//! A service for tests of the front, which refuses everything.

use std::sync::Arc;

use gridlane_auth::identity::TokenIdentity;
use gridlane_core::Result;
use gridlane_dav::Status;
use gridlane_store::{MemoryStorage, Object, ObjectPath, Opened, Storage as _, StoreResult};
use gridlane_xrd::{ErrorCode, PathArg, Request, RequestHead};

use crate::front::Front;
use crate::reply::Reply;
use crate::root::answer::{Failure, Outcome};
use crate::root::context::Context;
use crate::root::session_files::Readable;
use crate::root::sink::NoData;
use crate::service::{Exchange, Service};
use crate::settings::Settings;
use crate::testing;

/// A service that refuses everything.
pub(crate) struct NullService;

impl Service for NullService {
    type Settings = ();
    type Kept = ();
    type Files = ();
    type Sink = NoData;

    fn new((): (), _front: &Arc<Front>, _before: Option<&NullService>) -> Result<NullService> {
        Ok(NullService)
    }

    async fn answer(&self, _exchange: Exchange<'_, ()>) -> Reply {
        Reply::failure(Status::NOT_FOUND, "nothing is here")
    }

    async fn answer_root(_context: &Context<NullService>, _request: &Request) -> Outcome {
        Err(Failure::new(ErrorCode::UNSUPPORTED, "nothing is done here"))
    }

    fn take(_context: &Context<NullService>, head: &RequestHead) -> NoData {
        NoData::new(head)
    }
}

/// A session in front of it.
pub(crate) fn context_of(adjust: impl FnOnce(&mut Settings<()>)) -> Context<NullService> {
    let mut settings = Settings::new(Vec::new(), ());
    adjust(&mut settings);
    testing::context(settings).unwrap()
}

/// A path with its CGI.
pub(crate) fn arg(text: &str) -> PathArg {
    PathArg::parse(text.as_bytes())
}

/// The identity of a token that grants nothing by itself.
pub(crate) fn token_of(issuer: &str, subject: &str) -> TokenIdentity {
    TokenIdentity {
        issuer: issuer.to_owned(),
        subject: subject.to_owned(),
        id: None,
        scopes: Vec::new(),
        capabilities: Vec::new(),
        is_capability: false,
        groups: Vec::new(),
        vo: None,
        expires_s: 0,
    }
}

/// An open file that holds these bytes.
pub(crate) fn file_of(bytes: &[u8]) -> Arc<dyn Readable> {
    let (storage, path) = (MemoryStorage::new(), ObjectPath::new([&b"f"[..]]).unwrap());
    storage.add_file(&path, bytes.to_vec());
    let Ok(Some(Opened::File(object))) = storage.open_nowait(&path) else { panic!("a file") };
    Arc::new(File(object))
}

struct File(Arc<dyn Object>);

impl Readable for File {
    fn path(&self) -> &[u8] {
        b"/f"
    }

    fn object(&self) -> std::result::Result<&Arc<dyn Object>, Failure> {
        Ok(&self.0)
    }

    fn size_bytes(&self) -> StoreResult<u64> {
        Ok(self.0.metadata().size_bytes)
    }

    fn is_changing(&self) -> bool {
        false
    }

    fn count_read(&self, _bytes: u64) {}
}
