//! Exports, the paths that lead into them, and the decisions about those paths.

use std::fmt;
use std::sync::Arc;

use gridlane_auth::policy::{Principal, Reason, Template};
use gridlane_auth::{Decision, Grants, Operation, Policy, Rule};
use gridlane_core::{Error, ErrorKind, Fault, Result, Url, limits};
use gridlane_dav::ResourcePath;
use gridlane_share::Turns;
use gridlane_store::{ObjectPath, Storage};

use gridlane_front::auth::challenge::AuthMethods;
use gridlane_front::client::Client;
use gridlane_front::reply::Reply;

/// A storage, under the path where clients find it.
#[derive(Clone)]
pub struct Export {
    /// The path of its root: `/` for a server with one export.
    pub path: ResourcePath,
    /// The files.
    pub storage: Arc<dyn Storage>,
    /// True if anything may be stored, changed and removed at all; the rules say by which clients.
    pub allow_write: bool,
    /// Bytes of one upload: beyond it the answer is 413.
    pub upload_bytes_max: u64,
    /// Departures from RFC 4918 that its clients expect.
    pub compat: Compat,
    /// Origins (`https://site.example`) whose pages' scripts may read what any client may read here; `*` is all of
    /// them.
    pub cors_origins: Vec<String>,
    /// Other roots with the same files below them, the best first: clients are told of them.
    pub mirrors: Vec<Url>,
}

/// Departures from RFC 4918 that an operator chooses for clients that expect them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compat {
    /// PUT, MKCOL, MOVE and COPY make the directories that lead to their target (XRootD, EOS), instead of answering
    /// 409.
    pub create_parents: bool,
    /// DELETE of a directory that is not empty is 409: davix and gfal2 send the same request for `rmdir` as
    /// others do for a whole tree.
    pub refuse_recursive_delete: bool,
}

impl Export {
    /// `storage` at the root, read-only, without departures.
    pub fn new(storage: Arc<dyn Storage>) -> Export {
        Export {
            path: ResourcePath::root(),
            storage,
            allow_write: false,
            upload_bytes_max: limits::UPLOAD_BYTES_MAX,
            compat: Compat::default(),
            cors_origins: Vec::new(),
            mirrors: Vec::new(),
        }
    }
}

/// The rule of a server without others: every client may read and list what is under `path` and, with `allow_write`,
/// change it.
pub fn open_to_anyone(name: impl Into<String>, path: &ResourcePath, allow_write: bool) -> Rule {
    let reads = Grants::READ.with(Grants::LIST).with(Grants::STAGE);
    let may = if allow_write { reads.with(Grants::WRITE).with(Grants::DELETE) } else { reads };
    Rule { name: name.into(), who: Principal::anyone(), may, under: Template::default().below(path) }
}

/// A path inside of an export, as a client sees it.
pub(crate) struct Spot {
    pub(crate) export: Arc<Export>,
    pub(crate) object: ObjectPath,
    /// The client.
    pub(crate) client: Client,
    rules: Arc<Rules>,
}

/// The rules of the server. In one piece: a pointer that all connections count is counted once less for each request.
struct Rules {
    policy: Arc<Policy>,
    /// The methods by which clients could authenticate.
    auth_methods: Arc<AuthMethods>,
}

/// The reason for which nothing may be changed in an export that is read-only, in words.
const READ_ONLY: &str = "this export is read-only; its operator can change that";

/// The reason why a client may not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The export is read-only.
    ReadOnly,
    /// The rules do not allow it.
    ByRules(Reason),
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denial::ReadOnly => f.write_str(READ_ONLY),
            Denial::ByRules(reason) => fmt::Display::fmt(reason, f),
        }
    }
}

/// The ways in which a client may store something under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayStore {
    /// Something new.
    New,
    /// Something else instead of what is there.
    Instead,
    /// Either.
    Any,
}

impl Spot {
    /// The storage of its export.
    pub(crate) fn storage(&self) -> &dyn Storage {
        self.export.storage.as_ref()
    }

    /// The same for another path of its export.
    pub(crate) fn at(&self, object: ObjectPath) -> Spot {
        Spot {
            export: Arc::clone(&self.export),
            object,
            client: self.client.clone(),
            rules: Arc::clone(&self.rules),
        }
    }

    /// The same for another client, with its own rights.
    pub(crate) fn of_client(&self, client: &Client) -> Spot {
        Spot { client: client.clone(), ..self.at(self.object.clone()) }
    }

    /// Checks that its client may do it: the answer if not. Every method asks here before it looks at the storage.
    pub(crate) fn check(&self, operation: Operation) -> std::result::Result<(), Reply> {
        self.decide(operation).map_err(|denial| self.denied(denial))
    }

    /// The answer to a client that is denied something.
    pub(crate) fn denied(&self, denial: Denial) -> Reply {
        self.rules.auth_methods.denied(&self.client, denial, matches!(denial, Denial::ByRules(_)))
    }

    /// Checks that its client may do one of these: the answer about the first if not.
    pub(crate) fn check_any(&self, operations: &[Operation]) -> std::result::Result<(), Reply> {
        match operations {
            [first, others @ ..] if !others.iter().any(|other| self.may(*other)) => self.check(*first),
            _ => Ok(()),
        }
    }

    /// True if its client may do it. For parts of an answer; a request as a whole is [checked](Spot::check).
    pub(crate) fn may(&self, operation: Operation) -> bool {
        self.decision(operation).is_ok()
    }

    /// The ways in which its client may store something here, where something is or nothing; the reason if in none.
    ///
    /// What is there may change until something is stored. For a client that may only do one of the two, the storage
    /// has to be told what to expect: [`MayStore`] says which.
    pub(crate) fn may_store(&self, is_taken: bool) -> std::result::Result<MayStore, Denial> {
        let (needed, other, only) = match is_taken {
            true => (Operation::Overwrite, Operation::Create, MayStore::Instead),
            false => (Operation::Create, Operation::Overwrite, MayStore::New),
        };
        self.decide(needed)?;
        Ok(if self.may(other) { MayStore::Any } else { only })
    }

    /// True if its client may do it here, or to anything that could be below.
    pub(crate) fn reaches(&self, operation: Operation) -> bool {
        let is_refused = Grants::of(operation).changes() && !self.export.allow_write;
        !is_refused && self.rules.policy.reaches(self.client.requester(), operation, self.names())
    }

    /// True if its client may do it everywhere in the export.
    pub(crate) fn may_everywhere(&self, operation: Operation) -> bool {
        let is_refused = Grants::of(operation).changes() && !self.export.allow_write;
        let names = somewhere_below(&self.export.path);
        !is_refused && self.rules.policy.decide(self.client.requester(), operation, names).is_granted()
    }

    /// Decides if its client may do it; the outcome is noted for the log.
    pub(crate) fn decide(&self, operation: Operation) -> std::result::Result<(), Denial> {
        match self.decision(operation) {
            Ok(decision) => {
                self.client.decided(operation, self.names(), decision, false);
                Ok(())
            }
            Err(denial) => {
                self.client.decided(operation, self.names(), denial, true);
                Err(denial)
            }
        }
    }

    /// The reason why its client may not do it, if so: for each piece of something that was decided before as a whole.
    pub(crate) fn refusal(&self, operation: Operation) -> Option<Denial> {
        self.decision(operation).err()
    }

    fn decision(&self, operation: Operation) -> std::result::Result<Decision<'_>, Denial> {
        if Grants::of(operation).changes() && !self.export.allow_write {
            return Err(Denial::ReadOnly);
        }
        match self.rules.policy.decide(self.client.requester(), operation, self.names()) {
            Decision::Refused(reason) => Err(Denial::ByRules(reason)),
            granted => Ok(granted),
        }
    }

    /// The names of its path, from the server's root.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.export.path.names().chain(self.object.names())
    }
}

/// The place that a path leads to.
pub(crate) enum Place {
    /// Into an export.
    Inside(Spot),
    /// To a directory that exists only because exports are below it: the names in it that lead to something that the client
    /// may look at.
    Above(Vec<Vec<u8>>),
    /// To nothing, ever: there is no export, or the name is the server's own.
    Nowhere,
}

/// The exports of a server.
#[derive(Clone)]
pub(crate) struct Exports {
    all: Vec<Arc<Export>>,
    rules: Arc<Rules>,
}

impl Exports {
    /// Fails when one lies in another: of two answers to one path, none would be right.
    pub(crate) fn new(
        exports: Vec<Export>,
        policy: Arc<Policy>,
        auth_methods: Arc<AuthMethods>,
    ) -> Result<Exports> {
        for (index, inner) in exports.iter().enumerate() {
            let holds = |(other, outer): (usize, &Export)| {
                other != index && below(&outer.path, &inner.path).is_some()
            };
            if exports.iter().enumerate().any(holds) {
                let message = format!("the export {} lies in another one", inner.path);
                return Err(Error::new(ErrorKind::Usage, message)
                    .fault(Fault::Caller)
                    .hint("give every export a path that is not below another's"));
            }
        }
        let rules = Arc::new(Rules { policy, auth_methods });
        Ok(Exports { all: exports.into_iter().map(Arc::new).collect(), rules })
    }

    /// The turns of the devices that they are on, each once.
    pub(crate) fn turns(&self) -> Vec<&Arc<Turns>> {
        turns_of(self.iter().map(Arc::as_ref))
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Export>> {
        self.all.iter()
    }

    /// True if any lets clients write.
    pub(crate) fn allow_write(&self) -> bool {
        self.all.iter().any(|export| export.allow_write)
    }

    /// Everything that a client may do at a path and everywhere below it: what a macaroon for it can be given.
    pub(crate) fn grants(&self, path: &ResourcePath, client: &Client) -> Grants {
        let grants = self.rules.policy.grants(client.requester(), somewhere_below(path));
        let is_read_only = match self.find(path, client) {
            Place::Inside(spot) => !spot.export.allow_write,
            Place::Above(_) | Place::Nowhere => !self.allow_write(),
        };
        match is_read_only {
            true => grants.and(Grants::READ.with(Grants::LIST).with(Grants::STAGE)),
            false => grants,
        }
    }

    /// The answer to a client that may look at nothing below a directory that leads to exports.
    pub(crate) fn nothing_to_see(&self, path: &ResourcePath, client: &Client) -> Reply {
        let reason = if client.identity.is_anonymous() { Reason::Anonymous } else { Reason::NoRule };
        client.decided(Operation::Stat, path.names(), reason, true);
        self.rules.auth_methods.denied(client, reason, true)
    }

    /// The place that `path` leads a client to.
    pub(crate) fn find(&self, path: &ResourcePath, client: &Client) -> Place {
        for export in &self.all {
            if let Some(rest) = below(&export.path, path) {
                return match ObjectPath::new(rest) {
                    Some(object) => {
                        let (export, client) = (Arc::clone(export), client.clone());
                        Place::Inside(Spot { export, object, client, rules: Arc::clone(&self.rules) })
                    }
                    None => Place::Nowhere,
                };
            }
        }
        let next = |export: &Arc<Export>| Some(below(path, &export.path)?.next()?.to_vec());
        if self.all.iter().all(|export| next(export).is_none()) {
            return Place::Nowhere;
        }
        let is_shown = |export: &&Arc<Export>| {
            self.rules.policy.reaches(client.requester(), Operation::Stat, export.path.names())
        };
        let mut names: Vec<Vec<u8>> = self.all.iter().filter(is_shown).filter_map(next).collect();
        names.sort();
        names.dedup();
        Place::Above(names)
    }
}

/// The turns of the devices that these are on, each once.
pub(crate) fn turns_of<'a>(exports: impl Iterator<Item = &'a Export>) -> Vec<&'a Arc<Turns>> {
    let mut found: Vec<&Arc<Turns>> = Vec::new();
    for export in exports {
        let turns = export.storage.turns();
        if found.iter().all(|known| !Arc::ptr_eq(known, turns)) {
            found.push(turns);
        }
    }
    found
}

/// The names of a file in a directory that no real file has. At the directory itself more may be allowed than below it:
/// a client that may make something deep inside may make the directories that lead there.
fn somewhere_below(directory: &ResourcePath) -> impl Iterator<Item = &[u8]> + Clone {
    directory.names().chain(std::iter::once(&b"\0"[..]))
}

/// The names that lead from `outer` to `inner`, if it is there or below.
fn below<'a>(
    outer: &ResourcePath,
    inner: &'a ResourcePath,
) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
    let mut rest = inner.names();
    for name in outer.names() {
        if rest.next() != Some(name) {
            return None;
        }
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_store::MemoryStorage;

    fn exports(paths: &[&str]) -> Result<Exports> {
        let export = |path: &&str| Export {
            path: ResourcePath::parse(path).unwrap(),
            ..Export::new(Arc::new(MemoryStorage::default()))
        };
        let open = Policy::new(vec![open_to_anyone("anyone", &ResourcePath::root(), false)]);
        Exports::new(paths.iter().map(export).collect(), Arc::new(open), Arc::default())
    }

    fn found(exports: &Exports, path: &str) -> String {
        match exports.find(&ResourcePath::parse(path).unwrap(), &Client::anonymous(Client::UNKNOWN)) {
            Place::Inside(spot) => format!("{} {}", spot.export.path, spot.object),
            Place::Above(names) => names
                .iter()
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect::<Vec<_>>()
                .join(","),
            Place::Nowhere => "-".to_owned(),
        }
    }

    #[test]
    fn rights_that_a_macaroon_can_have() {
        use gridlane_auth::identity::TokenIdentity;
        use gridlane_auth::{Capability, Identity};
        let path = |text: &str| ResourcePath::parse(text).unwrap();
        let export = |at: &str, allow_write| Export {
            path: path(at),
            allow_write,
            ..Export::new(Arc::new(MemoryStorage::default()))
        };
        let all = Grants::READ.with(Grants::CREATE);
        let anyone = Rule {
            name: "anyone".to_owned(),
            who: Principal::anyone(),
            may: all,
            under: Template::default().below(&path("/open")),
        };
        let policy = Arc::new(Policy::new(vec![anyone]));
        let both = vec![export("/open", false), export("/in", true)];
        let exports = Exports::new(both, policy, Arc::default()).unwrap();
        let mut client = Client::anonymous(Client::UNKNOWN);
        client.identity = Arc::new(Identity::Token(TokenIdentity {
            issuer: "https://iam.example/".to_owned(),
            subject: "ada".to_owned(),
            id: None,
            scopes: Vec::new(),
            capabilities: vec![Capability { may: all, under: path("/in/a/b") }],
            is_capability: true,
            groups: Vec::new(),
            vo: None,
            expires_s: 0,
        }));
        for (at, expected) in [
            ("/in/a/b", all),
            ("/in/a/b/c", all),
            // She may make these directories, and no others beside them.
            ("/in/a", Grants::NONE),
            ("/in", Grants::NONE),
            ("/in/a/bc", Grants::NONE),
            // A right to what cannot be done there is of no use.
            ("/open/x", Grants::READ),
        ] {
            assert_eq!(exports.grants(&path(at), &client), expected, "{at}");
        }
    }

    #[test]
    fn a_path_leads_into_an_export_above_it_or_nowhere() {
        let one = exports(&["/"]).unwrap();
        assert_eq!(found(&one, "/"), "/ /");
        assert_eq!(found(&one, "/a/b/"), "/ /a/b");
        assert_eq!(found(&one, "/.gridlane/x"), "-");
        let many = exports(&["/data/atlas", "/data/cms", "/scratch"]).unwrap();
        for (path, expected) in [
            ("/", "data,scratch"),
            ("/data", "atlas,cms"),
            ("/data/", "atlas,cms"),
            ("/data/cms", "/data/cms /"),
            ("/data/cmsx", "-"),
            ("/data/cms/.gridlane", "-"),
            ("/scratch/a%20b", "/scratch /a b"),
            ("/other", "-"),
        ] {
            assert_eq!(found(&many, path), expected, "{path}");
        }
    }

    #[test]
    fn only_names_that_lead_to_visible_files_are_listed() {
        let mut all = exports(&["/data/atlas", "/data/cms", "/private"]).unwrap();
        let path = |text: &str| ResourcePath::parse(text).unwrap();
        let public = open_to_anyone("anyone", &path("/data/cms/public"), false);
        let by = |policy| Arc::new(Rules { policy, auth_methods: Arc::default() });
        all.rules = by(Arc::new(Policy::new(vec![public])));
        for (at, expected) in [("/", "data"), ("/data", "cms"), ("/private", "/private /"), ("/other", "-")] {
            assert_eq!(found(&all, at), expected, "{at}");
        }
        all.rules = by(Arc::default());
        assert_eq!(found(&all, "/"), "");
    }

    #[test]
    fn an_export_cannot_lie_in_another() {
        for paths in [&["/", "/a"][..], &["/a/b", "/a"], &["/a", "/a"], &["/a", "/a/"]] {
            let error = exports(paths).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{paths:?}");
        }
        assert!(exports(&["/a", "/ab"]).is_ok());
    }
}
