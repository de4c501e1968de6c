//! From a COPY to a copy that runs, or to the answer that refuses it.

use std::sync::Arc;

use gridlane_auth::Operation;
use gridlane_core::limits::{THIRD_PARTY_EARLY, THIRD_PARTY_METALINK_MAX, THIRD_PARTY_PATIENCE};
use gridlane_core::{Scheme, Secret, Url};
use gridlane_dav::request::RequestHead;
use gridlane_dav::third_party::{CopyRequest, Direction, MEDIA_TYPE, Remote, SOURCES_FIELD, is_third_party};
use gridlane_dav::webdav::{Destination, overwrites};
use gridlane_dav::{Method, ResourcePath, Status, timestamp};
use gridlane_engine::{Options, StoredSource};
use gridlane_front::PhaseWatch;
use gridlane_front::access_log::loggable;
use gridlane_front::reply::{Payload, Reply};
use gridlane_net::Stream;
use gridlane_peer::{Client, Credentials, Forwarded};
use gridlane_share::Lease;
use gridlane_store::Completion;

use crate::conditions::{self, refused};
use crate::export::{Place, Spot};
use crate::mkcol::prepare_parent;
use crate::origin::Origin;
use crate::put::{MODIFIED, Target};
use crate::storage_service::StorageService;
use crate::third_party::ends::{Landing, kept, name_of, source};
use crate::third_party::running::{Asked, Goal, Job, Phase, Running};
use crate::third_party::stream::Markers;
use crate::third_party::{Context, ThirdParty, refusal};

/// A request in hand.
pub(crate) struct Request<'a> {
    pub(crate) service: &'a StorageService,
    pub(crate) head: &'a RequestHead,
    pub(crate) path: &'a ResourcePath,
    /// The place of the path.
    pub(crate) spot: &'a Spot,
    pub(crate) origin: &'a Origin<'a>,
    pub(crate) stream: &'a Stream,
    pub(crate) id: &'a str,
    pub(crate) phase: &'a PhaseWatch,
}

/// True if a request brings a file here from another server.
pub(crate) fn is_pull(head: &RequestHead) -> bool {
    head.method == Method::Copy && head.headers.contains("source")
}

/// Answers a COPY from or to another server, or one within this one whose client expects markers; `None`: it is a plain copy
/// within the server (RFC 4918).
pub(crate) async fn answer(request: Request<'_>) -> Option<Reply> {
    let head = request.head;
    if !is_pull(head) && !is_third_party(&head.headers) {
        let is_ours = |destination: Destination| request.origin.is_ours(request.service, &destination);
        // Without a Destination, or with a wrong one, the plain copy says what is wrong.
        let is_offered = request.service.third_party.is_some();
        if !is_offered || Destination::parse(&head.headers).map_or(true, is_ours) {
            return None;
        }
    }
    Some(request.answer().await.unwrap_or_else(|refused| refused))
}

/// The ends of a copy, and what it does.
struct Ends {
    sources: Vec<Url>,
    stored: Option<StoredSource>,
    goal: Goal,
    copy: &'static str,
    options: Options,
    /// Of the checksums of pieces among them.
    room: Option<Lease>,
}

impl Request<'_> {
    async fn answer(&self) -> Result<Reply, Reply> {
        conditions::check_no_body(self.head)?;
        let Some(third_party) = &self.service.third_party else {
            let what = "this server makes no third-party copies";
            return Err(Reply::failure(Status::NOT_IMPLEMENTED, what));
        };
        let asked = CopyRequest::parse(&self.head.headers).map_err(refused)?;
        let Some(place) = third_party.place() else {
            let what = "too many third-party copies run and wait on this server";
            return Err(Reply::failure(Status::SERVICE_UNAVAILABLE, what));
        };
        let ends = match &asked {
            None => {
                self.within(&self.destination()?, overwrites(&self.head.headers).map_err(refused)?).await?
            }
            Some(copy) => match copy.direction {
                Direction::Pull => self.pull(third_party, copy).await?,
                Direction::Push => self.push(copy).await?,
            },
        };
        let remotes = asked.as_ref().map_or(&[][..], |asked| &asked.remotes);
        let used = ends.sources.len();
        let mut client = self.client(third_party, remotes, asked.as_ref().and_then(|asked| asked.scitag))?;
        client.http.sends_heads = !asked.as_ref().is_some_and(|asked| asked.no_head);
        let job = Job {
            sources: ends.sources,
            stored: ends.stored,
            goal: ends.goal,
            client,
            options: Options {
                // Of a file that is here already there may be no checksum, and no other server that has one.
                require_verified: ends.copy != "local"
                    && asked.as_ref().is_some_and(|asked| asked.requires_checksum),
                streams: asked.as_ref().and_then(|asked| asked.streams).map(|streams| streams as usize),
                patience: THIRD_PARTY_PATIENCE,
                ..ends.options
            },
            room: ends.room,
            asked: Asked {
                id: self.id.to_owned(),
                client: self.spot.client.clone(),
                copy: ends.copy,
                path: self.path.to_string(),
                client_info: asked.and_then(|asked| asked.client_info).map(|info| loggable(&info)),
                at: std::time::Instant::now(),
            },
        };
        let context =
            Context { front: Arc::clone(&self.service.front), third_party: Arc::clone(third_party) };
        let running = Running::begin(context, job, place, self.phase.stopping());
        let reply = self.first_answer(running).await?;
        Ok(match ends.copy {
            "pull" => reply.field(SOURCES_FIELD, used.to_string()),
            _ => reply,
        })
    }

    /// The answer, once it is known that bytes come, or after a moment: what fails until then is told by a status.
    async fn first_answer(&self, mut running: Running) -> Result<Reply, Reply> {
        tokio::select! {
            biased;
            () = running.settled() => {}
            () = tokio::time::sleep(THIRD_PARTY_EARLY) => {}
            () = self.stream.closed() => {
                running.cancel();
                return Err(gridlane_front::disconnect::client_left());
            }
        }
        if let Phase::Ended(Err(failed)) = running.phase()
            && failed.is_early
        {
            let of_copy = || match failed.is_too_large {
                true => Reply::failure(Status::CONTENT_TOO_LARGE, refusal::cause(&failed.error)),
                false => refusal::reply(&failed.error),
            };
            return Err(running.refused_here().unwrap_or_else(of_copy));
        }
        let (markers, first) = Markers::begin(running);
        Ok(Reply::new(Status::ACCEPTED)
            .field("Content-Type", MEDIA_TYPE)
            .field("Cache-Control", "no-store")
            .payload(Payload::Stream { first, rest: Box::new(markers) }))
    }

    fn destination(&self) -> Result<Destination, Reply> {
        Destination::parse(&self.head.headers).map_err(refused)
    }

    /// A copy within this server.
    async fn within(&self, destination: &Destination, overwrites: bool) -> Result<Ends, Reply> {
        let path = destination.resource_path().map_err(refused)?;
        let to = self.spot_of(&path, "the Destination")?;
        self.spot.check(Operation::Read)?;
        self.local(self.spot, &to, &path, overwrites).await
    }

    async fn local(
        &self,
        from: &Spot,
        to: &Spot,
        path: &ResourcePath,
        overwrites: bool,
    ) -> Result<Ends, Reply> {
        to.check_any(&[Operation::Create, Operation::Overwrite])?;
        let stored =
            source(from, &self.service.digests).await.map_err(|error| Reply::store_failure(&error))?;
        if from.export.path == to.export.path && from.object == to.object {
            return Err(Reply::failure(Status::FORBIDDEN, "a file cannot be copied onto itself"));
        }
        let landing = self.landing(to, path, overwrites).await?;
        let size_bytes_max = Some(to.export.upload_bytes_max);
        let options = Options { size_bytes_max, checksum: kept(&stored), ..Options::default() };
        Ok(Ends {
            sources: vec![name_of(from).map_err(|error| refusal::reply(&error))?],
            stored: Some(stored),
            goal: Goal::Here(landing),
            copy: "local",
            options,
            room: None,
        })
    }

    async fn pull(&self, third_party: &ThirdParty, copy: &CopyRequest) -> Result<Ends, Reply> {
        // One of our own names means a file that is here already.
        let own = |url: &Url| {
            let source = Destination::read(url.as_str()).ok()?;
            self.origin.is_ours(self.service, &source).then_some(source)
        };
        let elsewhere: Vec<&Remote> =
            copy.remotes.iter().filter(|remote| own(&remote.url).is_none()).collect();
        if elsewhere.is_empty()
            && let Some(source) = copy.remotes.first().and_then(|remote| own(&remote.url))
        {
            let from = self.spot_of(&source.resource_path().map_err(refused)?, "the Source")?;
            from.check(Operation::Read)?;
            return self.local(&from, self.spot, self.path, copy.overwrite).await;
        }
        let landing = self.landing(self.spot, self.path, copy.overwrite).await?;
        // A replica that is here is passed by where there are others: this server would have to fetch it from itself.
        let mut sources: Vec<Url> = elsewhere.iter().map(|remote| remote.url.clone()).collect();
        let mut options = Options {
            size_bytes_max: Some(self.spot.export.upload_bytes_max),
            follow_links: true,
            ..Options::default()
        };
        let client = self.client(third_party, &copy.remotes, copy.scitag)?;
        let mut room = None;
        if let [only] = sources.as_slice() {
            let described = third_party.metalinks().describe(&client, only, None);
            // A metalink is small. Clients of the field wait 30 s for an answer, and then give up.
            let described = tokio::select! {
                described = tokio::time::timeout(THIRD_PARTY_METALINK_MAX, described) => described,
                () = self.stream.closed() => return Err(gridlane_front::disconnect::client_left()),
            };
            match described {
                Ok(Ok(Some(replicas))) => {
                    let named = replicas.sources.into_iter().filter(|url| url.scheme() != Scheme::File);
                    let (here, elsewhere): (Vec<Url>, Vec<Url>) = named.partition(|url| own(url).is_some());
                    sources = if elsewhere.is_empty() { here } else { elsewhere };
                    options.known = replicas.known;
                    room = replicas.room;
                }
                Ok(Ok(None)) => {}
                Ok(Err(error)) => return Err(refusal::reply(&error)),
                Err(_) => {
                    let what = "the metalink did not come in time";
                    return Err(Reply::failure(Status::GATEWAY_TIMEOUT, what));
                }
            }
        }
        if sources.is_empty() {
            return Err(Reply::failure(Status::BAD_REQUEST, "the metalink names no source on a server"));
        }
        Ok(Ends { sources, stored: None, goal: Goal::Here(landing), copy: "pull", options, room })
    }

    async fn push(&self, copy: &CopyRequest) -> Result<Ends, Reply> {
        let Some(Remote { url, .. }) = copy.remotes.first() else {
            return Err(Reply::failure(Status::BAD_REQUEST, "the COPY has no Destination"));
        };
        if let Ok(destination) = Destination::read(url.as_str())
            && self.origin.is_ours(self.service, &destination)
        {
            return self.within(&destination, copy.overwrite).await;
        }
        self.spot.check(Operation::Read)?;
        self.check_may_push()?;
        if url.is_directory_form() {
            return Err(Reply::failure(Status::BAD_REQUEST, "the Destination is a directory, not a file"));
        }
        let stored =
            source(self.spot, &self.service.digests).await.map_err(|error| Reply::store_failure(&error))?;
        let metadata = stored.object.metadata();
        // A server that does not know the field ignores it; with a signed URL it would be one that was not signed.
        let modified = (!copy.no_head).then_some(metadata.modified);
        let goal = Goal::Away { url: url.clone(), overwrite: copy.overwrite, modified };
        // The limit of all that this server sends.
        let limit = self.service.front.data.pace.clone();
        let options = Options { checksum: kept(&stored), limit, ..Options::default() };
        let sources = vec![name_of(self.spot).map_err(|error| refusal::reply(&error))?];
        Ok(Ends { sources, stored: Some(stored), goal, copy: "push", options, room: None })
    }

    /// Clients that are not known by a proof could have this server send requests to others in its name: they may only where
    /// they are on this machine, or the operator lets them.
    fn check_may_push(&self) -> Result<(), Reply> {
        let client = &self.spot.client;
        let third_party = self.service.third_party.as_ref();
        let lets_anyone = third_party.is_some_and(|third_party| third_party.settings.pushes_for_anyone);
        if !client.identity.is_anonymous() || client.address.is_loopback() || lets_anyone {
            return Ok(());
        }
        let what = "this server sends files to others only for clients that authenticate; have the other server fetch it";
        let reply = Reply::failure(Status::UNAUTHORIZED, what);
        Err(self.service.front.auth_methods.challenged(reply))
    }

    fn spot_of(&self, path: &ResourcePath, what: &str) -> Result<Spot, Reply> {
        match self.service.exports.find(path, &self.spot.client) {
            Place::Inside(spot) => Ok(spot),
            Place::Above(_) | Place::Nowhere => {
                Err(Reply::failure(Status::FORBIDDEN, format!("no export of this server has {what}")))
            }
        }
    }

    /// The target of a file that comes here, if it may come.
    async fn landing(&self, spot: &Spot, path: &ResourcePath, overwrites: bool) -> Result<Landing, Reply> {
        if path.is_directory_form() {
            return Err(Reply::failure(Status::CONFLICT, "a path that ends with a slash cannot be a file"));
        }
        if !overwrites && conditions::look(spot.storage(), &spot.object).await?.is_some() {
            let what = "something has this name already, and the request does not overwrite";
            return Err(Reply::failure(Status::PRECONDITION_FAILED, what));
        }
        let target = Target::find(spot, self.head, overwrites).await?;
        prepare_parent(spot).await?;
        let modified = self.head.headers.single(MODIFIED).and_then(timestamp::from_seconds);
        let completion = Completion { modified, ..Completion::from(target.expectation) };
        let third_party = self.service.third_party.as_ref();
        let keys = third_party.map(|third_party| third_party.journal_keys(&spot.client.identity));
        Ok(Landing::new(spot, completion, keys.unwrap_or_default()))
    }

    /// The client that reaches the other servers with the fields that were sent for them.
    fn client(
        &self,
        third_party: &ThirdParty,
        remotes: &[Remote],
        scitag: Option<u16>,
    ) -> Result<Client, Reply> {
        let (client, identity) = third_party.client_of(&self.spot.client.identity);
        const ID: &str = "X-Request-Id";
        let given = remotes.iter().map(|remote| {
            // Both logs have the id that this server has made, whatever the client calls it.
            let own = remote.fields.iter().filter(|field| !field.name.eq_ignore_ascii_case(ID));
            let own = own.map(|field| (field.name.clone(), field.value.clone()));
            let id = (ID.to_owned(), Secret::new(self.id));
            let scitag = scitag.map(|scitag| ("SciTag".to_owned(), Secret::new(scitag.to_string())));
            Forwarded { to: remote.url.clone(), fields: own.chain([id]).chain(scitag).collect() }
        });
        let credentials = Credentials::forwarding(identity, given.collect());
        Ok(client.credentials(credentials.map_err(|error| refusal::reply(&error))?))
    }
}
