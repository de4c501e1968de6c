//! Which export a path belongs to, and what may be done there.

use std::sync::Arc;

use gridlane_core::{Error, ErrorKind, Fault, Result, Url, limits};
use gridlane_dav::{ResourcePath, Status};
use gridlane_store::{ObjectPath, Storage};

use crate::reply::Reply;
use crate::rules::{self, Client, Operation, Rule};

/// A storage, under the path where clients find it.
#[derive(Clone)]
pub struct Export {
    /// Where its root is: `/` for a server with one export.
    pub path: ResourcePath,
    /// What is there.
    pub storage: Arc<dyn Storage>,
    /// Whether anything may be stored, changed and removed: by anyone, or by whom the rules say.
    pub allow_write: bool,
    /// Who may do what; `None`: anyone may read and list and, with `allow_write`, everything else.
    pub rules: Option<Vec<Rule>>,
    /// Bytes of one upload: beyond it the answer is 413.
    pub upload_bytes_max: u64,
    /// Where its clients expect something else than RFC 4918 says.
    pub compat: Compat,
    /// Origins (`https://site.example`) whose pages' scripts may read what anyone may read here; `*` is all
    /// of them.
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
            rules: None,
            upload_bytes_max: limits::UPLOAD_BYTES_MAX,
            compat: Compat::default(),
            cors_origins: Vec::new(),
            mirrors: Vec::new(),
        }
    }
}

/// A path inside of an export, as a client sees it.
pub(crate) struct Spot {
    pub(crate) export: Arc<Export>,
    pub(crate) object: ObjectPath,
    /// Who asks.
    pub(crate) client: Client,
}

impl Spot {
    /// The storage of its export.
    pub(crate) fn storage(&self) -> &dyn Storage {
        self.export.storage.as_ref()
    }

    /// Whether its client may do it: the answer if not. Every method asks here before it looks at the storage.
    pub(crate) fn check(&self, operation: Operation) -> std::result::Result<(), Reply> {
        match self.refusal(operation) {
            None => Ok(()),
            Some(why) => Err(Reply::failure(Status::FORBIDDEN, why)),
        }
    }

    /// Why its client may not do it, if so.
    pub(crate) fn refusal(&self, operation: Operation) -> Option<&'static str> {
        let changes = matches!(operation, Operation::Write | Operation::Delete);
        if changes && !self.export.allow_write {
            return Some("this server does not let anyone write here; its operator can with --allow-write");
        }
        let rules = self.export.rules.as_ref();
        let is_granted =
            rules.is_none_or(|rules| rules::are_granting(rules, &self.client, operation, &self.object));
        (!is_granted).then_some("no rule of this export lets this client do that here")
    }
}

/// What a path leads to.
pub(crate) enum Place {
    /// Into an export.
    Inside(Spot),
    /// To a directory that exists only because exports are below it: the names in it.
    Above(Vec<Vec<u8>>),
    /// To nothing, ever: there is no export, or the name is the server's own.
    Nowhere,
}

/// The exports of a server.
#[derive(Clone)]
pub(crate) struct Exports {
    all: Vec<Arc<Export>>,
}

impl Exports {
    /// Fails when one lies in another: of two answers to one path, none would be right.
    pub(crate) fn new(exports: Vec<Export>) -> Result<Exports> {
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
        Ok(Exports { all: exports.into_iter().map(Arc::new).collect() })
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Export>> {
        self.all.iter()
    }

    /// Whether any lets clients write.
    pub(crate) fn allow_write(&self) -> bool {
        self.all.iter().any(|export| export.allow_write)
    }

    /// Where `path` leads a client.
    pub(crate) fn find(&self, path: &ResourcePath, client: Client) -> Place {
        for export in &self.all {
            if let Some(rest) = below(&export.path, path) {
                return match ObjectPath::new(rest) {
                    Some(object) => Place::Inside(Spot { export: Arc::clone(export), object, client }),
                    None => Place::Nowhere,
                };
            }
        }
        let next = |export: &Arc<Export>| Some(below(path, &export.path)?.next()?.to_vec());
        let mut names: Vec<Vec<u8>> = self.all.iter().filter_map(next).collect();
        names.sort();
        names.dedup();
        if names.is_empty() { Place::Nowhere } else { Place::Above(names) }
    }
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
        Exports::new(paths.iter().map(export).collect())
    }

    fn found(exports: &Exports, path: &str) -> String {
        match exports.find(&ResourcePath::parse(path).unwrap(), Client { address: Client::UNKNOWN }) {
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
    fn an_export_cannot_lie_in_another() {
        for paths in [&["/", "/a"][..], &["/a/b", "/a"], &["/a", "/a"], &["/a", "/a/"]] {
            let error = exports(paths).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{paths:?}");
        }
        assert!(exports(&["/a", "/ab"]).is_ok());
    }
}
