//! A service beside storage: names, and a word about each, over HTTP and as `query` over root://. All that is its own is
//! here; whatever else the tests see is the front's.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gridlane_auth::Operation;
use gridlane_auth::policy::Reason;
use gridlane_core::Result;
use gridlane_dav::{Method, ResourcePath, Status};
use gridlane_front::client::Client;
use gridlane_front::front::Front;
use gridlane_front::reply::{Payload, Reply};
use gridlane_front::root::answer::{Answer, Failure, Outcome};
use gridlane_front::root::context::Context;
use gridlane_front::root::sink::NoData;
use gridlane_front::service::{Exchange, Service};
use gridlane_xrd::{ErrorCode, PathArg, QueryKind, Request, RequestHead};
use tokio::sync::Semaphore;

use crate::later::Later;

/// The entries.
#[derive(Clone)]
pub(crate) struct Entries {
    pub(crate) words: HashMap<&'static str, &'static str>,
    /// Without a permit nothing is answered.
    pub(crate) open: Arc<Semaphore>,
    /// A permit for each end of an answer that waits.
    pub(crate) ends: Arc<Semaphore>,
    /// Clients that have left an answer that waited.
    pub(crate) left: Arc<AtomicUsize>,
    /// Requests that have asked for one.
    pub(crate) asked: Arc<AtomicUsize>,
}

/// The service.
pub(crate) struct Book {
    front: Arc<Front>,
    entries: Entries,
}

impl Book {
    async fn look_up(&self, client: &Client, path: &str) -> std::result::Result<Option<&str>, Reason> {
        let place = ResourcePath::parse(path).unwrap_or(ResourcePath::root());
        self.front.decide(client, Operation::Read, place.names())?;
        self.entries.asked.fetch_add(1, Ordering::SeqCst);
        let _permit = self.entries.open.acquire().await;
        Ok(self.entries.words.get(path).copied())
    }
}

impl Service for Book {
    type Settings = Entries;
    type Kept = ();
    type Files = ();
    type Sink = NoData;

    fn new(entries: Entries, front: &Arc<Front>, _before: Option<&Book>) -> Result<Book> {
        Ok(Book { front: Arc::clone(front), entries })
    }

    async fn answer(&self, exchange: Exchange<'_, ()>) -> Reply {
        let (Method::Get, Some(path)) = (&exchange.head.method, exchange.head.path()) else {
            return Reply::failure(Status::METHOD_NOT_ALLOWED, "names are only looked up");
        };
        match self.look_up(exchange.client, &path.to_string()).await {
            Ok(Some(word)) if path.is_directory_form() => {
                let Entries { ends, left, .. } = &self.entries;
                let rest = Box::new(Later { ends: Arc::clone(ends), left: Arc::clone(left) });
                Reply::new(Status::OK).payload(Payload::Stream { first: word.into(), rest })
            }
            Ok(Some(word)) => Reply::new(Status::OK).payload(Payload::Bytes(word.into())),
            Ok(None) => Reply::failure(Status::NOT_FOUND, "there is no such name"),
            Err(reason) => self.front.auth_methods.denied(exchange.client, reason, true),
        }
    }

    async fn answer_root(context: &Context<Book>, request: &Request) -> Outcome {
        let Request::Query(query) = request else {
            return Err(Failure::new(ErrorCode::UNSUPPORTED, "names are only looked up"));
        };
        if query.kind != QueryKind::XATTR {
            return Err(Failure::new(ErrorCode::ARG_INVALID, "names are facts of their own"));
        }
        let path = String::from_utf8_lossy(&PathArg::parse(&query.argument).path).into_owned();
        match context.service().look_up(&context.client, &path).await {
            Ok(Some(word)) => Ok(Answer::text(word)),
            Ok(None) => Err(Failure::new(ErrorCode::NOT_FOUND, "there is no such name")),
            Err(reason) => Err(Failure::new(ErrorCode::NOT_AUTHORIZED, reason.to_string())),
        }
    }

    fn take(_context: &Context<Book>, head: &RequestHead) -> NoData {
        NoData::new(head)
    }
}
