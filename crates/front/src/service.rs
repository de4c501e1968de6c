//! The interface of a service: all that the front does not know.

use std::sync::Arc;
use std::time::Instant;

use gridlane_core::{Result, Secret};
use gridlane_dav::request::RequestHead;
use gridlane_share::budget::Budget;
use gridlane_xrd::{PathArg, QueryKind, Request};

use crate::body::{Body, Wire};
use crate::client::Client;
use crate::front::Front;
use crate::idle::PhaseWatch;
use crate::metrics::Page;
use crate::reply::Reply;
use crate::root::answer::Outcome;
use crate::root::context::Context;
use crate::root::session_files::SessionFiles;
use crate::root::sink::Sink;

/// A request over HTTP that was admitted: its client is known, and within its limits.
pub struct Exchange<'a, K> {
    /// The head of the request.
    pub head: &'a RequestHead,
    /// Its body, of which nothing was read.
    pub body: &'a mut Body,
    /// The connection, from which the body is read.
    pub wire: &'a mut Wire,
    /// The client.
    pub client: &'a Client,
    /// The macaroon by which the client has authenticated, if it did so by one.
    pub macaroon: Option<&'a Secret>,
    /// The time of the request's first byte.
    pub began: Instant,
    /// The request's id in the logs and in its answer.
    pub id: &'a str,
    /// The phase of the server's life.
    pub phase: &'a PhaseWatch,
    /// State that is kept for the next request of the connection.
    pub kept: &'a mut K,
}

/// A service, by one generation of settings.
///
/// Everything has a default, for services without it, but [`new`](Service::new), the answers
/// ([`answer`](Service::answer), [`answer_root`](Service::answer_root)) and [`take`](Service::take).
pub trait Service: Sized + Send + Sync + 'static {
    /// An operator's settings for it.
    type Settings: Send + 'static;
    /// State that it keeps of a connection between two requests over HTTP; an idle connection keeps none.
    type Kept: Default + Send;
    /// State that it keeps of a session of root://: the files that are open.
    type Files: SessionFiles;
    /// Takes the data of a request over root://.
    type Sink: Sink;

    /// Makes it by these settings, after another generation if there was one. Fails without having changed anything.
    fn new(settings: Self::Settings, front: &Arc<Front>, before: Option<&Self>) -> Result<Self>;

    /// Runs before the first connection. A server that fails here does not start. What a reload asks for is done by
    /// [`tidy`](Service::tidy).
    fn begin(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Runs now and then ([`Deadlines::tidy`](crate::Deadlines::tidy)), and after a reload.
    fn tidy(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Its budgets, which clients share.
    fn budgets(&self) -> Vec<Arc<Budget>> {
        Vec::new()
    }

    /// Adds its counters to the page of metrics.
    fn metrics(&self, _page: &mut Page) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The reason why it cannot serve at the moment, if it cannot.
    fn fault(&self) -> impl Future<Output = Option<String>> + Send {
        async { None }
    }

    /// Answers a request over HTTP.
    fn answer(&self, exchange: Exchange<'_, Self::Kept>) -> impl Future<Output = Reply> + Send;

    /// Adds its fields to any answer over HTTP, also to that of the front for a request that was not admitted.
    fn finish(&self, _head: &RequestHead, _client: &Client, reply: Reply) -> Reply {
        reply
    }

    /// Answers a request over root://, whose client is known and within its limits. Those of logins and sessions, and reads
    /// of open files, do not come here.
    fn answer_root(context: &Context<Self>, request: &Request) -> impl Future<Output = Outcome> + Send;

    /// The same at once, where that needs no wait.
    fn answer_root_nowait(_context: &Context<Self>, _request: &Request) -> Option<Outcome> {
        None
    }

    /// True if an answer over root:// may take longer than clients wait for one: they are told that it comes later.
    fn may_take_long(request: &Request) -> bool {
        match request {
            Request::Query(query) => query.kind == QueryKind::CHECKSUM,
            Request::Sync(_) | Request::Locate(_) => true,
            _ => false,
        }
    }

    /// The queue of a request that changes names: requests of one queue are done one after the other.
    fn change_queue(_context: &Context<Self>, _path: &PathArg) -> Option<usize> {
        None
    }

    /// Takes what follows the head of a request that brings data.
    fn take(context: &Context<Self>, head: &gridlane_xrd::RequestHead) -> Self::Sink;

    /// Closes the files of a session that is over, after the requests that use them.
    fn end_session(_context: &Context<Self>) -> impl Future<Output = ()> + Send {
        async {}
    }
}
