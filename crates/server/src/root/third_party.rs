//! Third-party copies over root://: what opens and `sync` ask for.
//!
//! At the source a client lets another server read a file ([`meetings`](super::meetings)). At the destination the open remembers
//! the copy, the first `sync` begins it, and the next ones are answered when it has ended ([`pull`](super::pull)). The file is
//! seen when all of it is there, as with COPY over HTTP, whose copies these are ([`third_party`](crate::third_party)). Closing
//! the file before, or the end of the session, ends the copy, and nothing of it stays.

use std::time::{Duration, Instant};

use gridlane_auth::Operation;
use gridlane_core::{Error, Secret, Url, limits};
use gridlane_dav::ResourcePath;
use gridlane_engine::Options;
use gridlane_net::tls::ClientIdentity;
use gridlane_peer::{Certificate, Credentials};
use gridlane_store::{Completion, Expectation, StoreError};
use gridlane_xrd::flags::OpenOptions;
use gridlane_xrd::request::Open;
use gridlane_xrd::third_party::{Destination, Host, Origin, Role, parse};
use gridlane_xrd::{ErrorCode, PathArg};

use super::meetings::Spoken;
use super::places::{Context, Places as _, allowed, denied};
use super::pull::Pull;
use crate::export::{MayStore, Place, Spot};
use crate::mkcol::missing_that_may_not_be_made;
use crate::origin;
use crate::third_party::ends::{self, Landing};
use crate::third_party::refusal;
use crate::third_party::running::{Asked, Goal, Job};
use gridlane_front::root::answer::{Failure, printable_path};
use gridlane_front::root::identity;
use gridlane_front::root::rounds::LoginProof;

/// The place of a path, which a server that comes for the file there may ask about as well.
pub(crate) async fn spot_to_compare(
    context: &Context,
    about: &PathArg,
    act: &str,
    operation: Operation,
) -> Result<Spot, Failure> {
    let may_anyway = |place| matches!(place, Ok(Place::Inside(spot)) if Spot::may(&spot, operation));
    match parse(&about.cgi, false) {
        Ok(Some(Role::Fetch { key, origin })) if !may_anyway(context.place(about)) => {
            fetch(context, about, &key, &origin).await
        }
        _ => context.spot(about, act, operation),
    }
}

/// The verb of messages.
const ACT: &str = "create";

/// True if a server comes for a file, which may have to wait for the client's word.
pub(crate) fn is_fetch(about: &PathArg) -> bool {
    matches!(parse(&about.cgi, false), Ok(Some(Role::Fetch { .. })))
}

/// Takes a client's word that another server may read a file that it has opened.
pub(crate) async fn register(
    context: &Context,
    spot: &Spot,
    key: &Secret,
    destination: &Host,
    ttl: Duration,
) -> Result<Spoken, Failure> {
    let session = &context.session;
    let client = Origin::of_login(&session.user, session.process, Host::of(spot.client.address));
    context.service().meetings.register(spot, client.login, key, destination, ttl).await
}

/// The place of a file that another server comes for.
pub(crate) async fn fetch(
    context: &Context,
    about: &PathArg,
    key: &Secret,
    origin: &Origin,
) -> Result<Spot, Failure> {
    let place = context.place(about)?;
    context.service().meetings.fetch(&context.client, &place, key, origin).await
}

/// Remembers a copy to a place, if it may be made there. The caller holds the lock of the path.
pub(crate) async fn open(
    context: &Context,
    request: &Open,
    spot: &Spot,
    destination: &Destination,
) -> Result<Pull, Failure> {
    let about = &request.about;
    let failed = |error: &StoreError| Failure::of_store(ACT, &about.path, error);
    let Some(third_party) = &context.service().third_party else {
        let path = printable_path(&about.path);
        let what =
            format!("Unable to {ACT} {path}; tpc not supported: this server makes no third-party copies");
        return Err(Failure::new(ErrorCode::UNSUPPORTED, what));
    };
    let bytes_max = spot.export.upload_bytes_max;
    if destination.size_bytes.is_some_and(|bytes| bytes > bytes_max) {
        return Err(Failure::of_size(ACT, &about.path, bytes_max));
    }
    let parents = request.options.makes_parents();
    let current = match spot.storage().look(&spot.object).await {
        Ok(_) if request.options.has(OpenOptions::NEW) => return Err(failed(&StoreError::Unexpected)),
        Ok(metadata) if metadata.is_directory() => return Err(failed(&StoreError::NotAFile)),
        Ok(metadata) => Some(metadata),
        Err(StoreError::NotFound) => None,
        Err(StoreError::ParentMissing) if parents => None,
        Err(error) => return Err(failed(&error)),
    };
    if current.is_none() && !request.options.creates() {
        return Err(failed(&StoreError::NotFound));
    }
    let may = spot.may_store(current.is_some()).map_err(|denial| denied(spot, about, ACT, denial))?;
    let expectation = match (&current, may) {
        (None, MayStore::New) => Expectation::Absent,
        _ if request.options.has(OpenOptions::NEW) => Expectation::Absent,
        (Some(current), MayStore::Instead) => Expectation::Tag(current.tag.clone()),
        _ => Expectation::Anything,
    };
    if let Some((parent, _)) = spot.object.split_last().filter(|_| current.is_none()) {
        if parents {
            let missing = missing_that_may_not_be_made(spot, &parent).await;
            if let Some(refused) = missing.map_err(|error| failed(&error))? {
                allowed(&refused, about, ACT, Operation::Mkdir)?;
            }
        } else {
            spot.storage().look(&parent).await.map_err(|error| failed(&error))?;
        }
    }
    let keys = third_party.journal_keys(&spot.client.identity);
    let landing = Landing::new(spot, Completion::from(expectation), keys);
    let landing = landing.making(parents, destination.size_bytes);
    Ok(Pull::new(third_party, destination, spot, landing, request.mode))
}

/// Begins with a copy; when it has begun before, waits until it has ended.
pub(crate) async fn sync(context: &Context, pull: &Pull, path: &[u8]) -> Result<(), Failure> {
    if pull.has_begun() {
        return pull.end(path).await;
    }
    let job = job(context, pull).await?;
    pull.begin(context.front(), job, context.stopping.clone())
}

/// The place of the source, if it is a file of this server that the client may read: then it needs no key, and no connection to
/// an own address, which the rules about addresses refuse.
fn here(context: &Context, pull: &Pull) -> Result<Option<Spot>, Failure> {
    let source = &pull.destination.source;
    if !origin::is_at(context.link.local, context.service(), source) {
        return Ok(None);
    }
    let about = PathArg::new(source.wire_path());
    let Ok(Place::Inside(from)) = context.place(&about) else { return Ok(None) };
    if from.export.path == pull.spot.export.path && from.object == pull.spot.object {
        let what = "Unable to sync; a file cannot be copied onto itself";
        return Err(Failure::new(ErrorCode::ARG_INVALID, what));
    }
    Ok(Some(from).filter(|from| from.may(Operation::Read)))
}

/// The name of a proxy that a client has lent, in messages.
const LENT: &str = "the proxy that the client has lent";

/// The source as it is opened with the proxy that the client has lent, and that proxy. `None`: a copy by key.
///
/// A client that was told that proxies are taken (`tpcdlg`) gives the source no key, though it names one here.
fn lent<'a>(context: &'a Context, pull: &'a Pull) -> Result<Option<(&'a Url, &'a ClientIdentity)>, Failure> {
    let Some(url) = &pull.destination.delegated else { return Ok(None) };
    let refused = |why: &str| Failure::new(ErrorCode::AUTH_FAILED, format!("Unable to sync; {why}"));
    let chain = match &context.proof {
        Some(LoginProof::Chain(chain)) => Some(chain),
        _ => None,
    };
    match chain.and_then(|chain| Some((chain, chain.delegated()?))) {
        Some((chain, Ok(shown))) => match chain.refusal(context.front()) {
            None => Ok(Some((url, shown))),
            Some(refusal) => Err(refused(&format!("the login that lent a proxy counts no more: {refusal}"))),
        },
        _ if pull.destination.key.is_some() && !identity::takes_proxies(context.front()) => Ok(None),
        Some((_, Err(words))) => Err(refused(&format!("this client has lent no proxy: {words}"))),
        None => Err(refused("this client has lent no proxy")),
    }
}

/// Credentials that show the source the proxy; and the server that it redirects to, if that is the one that the client has found
/// there.
fn showing(url: &Url, found: &Url, shown: &ClientIdentity) -> Credentials {
    let certificate = Certificate { shown: shown.clone(), name: LENT.to_owned() };
    let credentials = Credentials::new(None, Some(certificate), Vec::new());
    credentials.name(url);
    credentials.lead(url, found);
    credentials
}

async fn job(context: &Context, pull: &Pull) -> Result<Job, Failure> {
    let wanted = pull.destination.checksum.clone();
    let here = here(context, pull)?;
    let is_here = here.is_some();
    let identity = &pull.spot.client.identity;
    let (client, connections) = pull.third_party.client_of(identity);
    let by_key = || Credentials::forwarding(connections, Vec::new()).map_err(unusable);
    let (source, stored, checksum, credentials) = match here {
        Some(from) => {
            let failed = |error| Failure::of_store("read", &pull.destination.source.wire_path(), &error);
            let stored = ends::source(&from, &context.service().digests).await.map_err(failed)?;
            let checksum = wanted.filter(|(_, value)| value.is_some()).or_else(|| ends::kept(&stored));
            (ends::name_of(&from).map_err(unusable)?, Some(stored), checksum, by_key()?)
        }
        None => match lent(context, pull)? {
            Some((url, shown)) => {
                let credentials = showing(url, &pull.destination.source, shown);
                (url.clone(), None, wanted, credentials)
            }
            None => {
                let host = context.service().meetings.host(context.client.address).await;
                let origin = Origin::of_login(&context.session.user, context.session.process, host);
                let wrong = |wrong| Failure::new(ErrorCode::ARG_INVALID, format!("Unable to sync; {wrong}"));
                (pull.destination.url_for(&origin).map_err(wrong)?, None, wanted, by_key()?)
            }
        },
    };
    let path = ResourcePath::of_names(pull.spot.names()).to_string();
    Ok(Job {
        sources: vec![source],
        stored,
        goal: Goal::Here(pull.landing.clone()),
        client: client.credentials(credentials),
        options: Options {
            size_bytes_max: Some(pull.spot.export.upload_bytes_max),
            // xrdcp says one always.
            streams: pull.destination.streams.filter(|streams| *streams > 1).map(usize::from),
            // Of a file that is here there may be no checksum, and no other server that has one.
            require_verified: pull.destination.checksum.is_some() && !is_here,
            checksum,
            patience: limits::THIRD_PARTY_PATIENCE,
            ..Options::default()
        },
        room: None,
        asked: Asked {
            id: context.front().new_id(),
            client: pull.spot.client.clone(),
            copy: if is_here { "local" } else { "pull" },
            path,
            client_info: None,
            at: Instant::now(),
        },
    })
}

fn unusable(error: Error) -> Failure {
    Failure::new(ErrorCode::SERVER_ERROR, refusal::cause(&error))
}
