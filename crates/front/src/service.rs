//! What a server is about: all that the front does not know.

use std::sync::Arc;
use std::time::Instant;

use gridlane_core::{Result, Secret};
use gridlane_dav::request::RequestHead;
use gridlane_share::budget::Budget;
use gridlane_xrd::{PathArg, QueryKind, Request};

use crate::body::{Body, Wire};
use crate::client::Client;
use crate::front::Front;
use crate::metrics::Page;
use crate::reply::Reply;
use crate::root::answer::Outcome;
use crate::root::context::Context;
use crate::root::session_files::SessionFiles;
use crate::root::sink::Sink;

/// A request over HTTP that was admitted: its client is known, and within its limits.
pub struct Exchange<'a, K> {
    /// What came.
    pub head: &'a RequestHead,
    /// Its body, of which nothing was read.
    pub body: &'a mut Body,
    /// The connection, from which the body is read.
    pub wire: &'a mut Wire,
    /// Who asks.
    pub client: &'a Client,
    /// The macaroon by which the client has proved who it is, if it did so by one.
    pub macaroon: Option<&'a Secret>,
    /// When its first byte came.
    pub began: Instant,
    /// What is kept for the next request of the connection.
    pub kept: &'a mut K,
}

/// A service, by one generation of settings.
///
/// Everything but [`new`](Service::new) and [`answer`](Service::answer) has a meaning for a service that does without.
pub trait Service: Sized + Send + Sync + 'static {
    /// What an operator decides about it.
    type Settings: Send + 'static;
    /// What it keeps of a connection between two requests over HTTP; an idle connection keeps none.
    type Kept: Default + Send;
    /// What it keeps of a session of root://: the files that are open.
    type Files: SessionFiles;
    /// Takes the data of a request over root://.
    type Sink: Sink;

    /// By these settings, after another generation if there was one. Fails without having changed anything.
    fn new(settings: Self::Settings, front: &Arc<Front>, before: Option<&Self>) -> Result<Self>;

    /// Before the first connection. A server that fails here does not start. What a reload asks for is done by
    /// [`tidy`](Service::tidy).
    fn begin(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Done now and then ([`Deadlines::tidy`](crate::Deadlines::tidy)), and after a reload.
    fn tidy(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// What clients share of it.
    fn budgets(&self) -> Vec<Arc<Budget>> {
        Vec::new()
    }

    /// Adds what it counts to the page of metrics.
    fn metrics(&self, _page: &mut Page) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Why it cannot serve at the moment, if it cannot.
    fn ails(&self) -> impl Future<Output = Option<String>> + Send {
        async { None }
    }

    /// Answers a request over HTTP.
    fn answer(&self, exchange: Exchange<'_, Self::Kept>) -> impl Future<Output = Reply> + Send;

    /// Adds to any answer over HTTP what belongs to it, also to that of the front for a request that was not admitted.
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

    /// Whether an answer over root:// may take longer than clients wait for one: they are told when it comes later.
    fn may_take_long(request: &Request) -> bool {
        match request {
            Request::Query(query) => query.kind == QueryKind::CHECKSUM,
            Request::Sync(_) | Request::Locate(_) => true,
            _ => false,
        }
    }

    /// What stands in one line with others: requests that change names there are done one after the other.
    fn line(_context: &Context<Self>, _path: &PathArg) -> Option<usize> {
        None
    }

    /// Takes what follows the head of a request that brings data.
    fn take(context: &Context<Self>, head: &gridlane_xrd::RequestHead) -> Self::Sink;

    /// A session is over: lets go of its files, after the requests that use them.
    fn end_session(_context: &Context<Self>) -> impl Future<Output = ()> + Send {
        async {}
    }
}
