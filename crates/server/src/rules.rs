//! Who may do what in an export.
//!
//! A rule grants; nothing forbids. What no rule grants is refused. A rule's grant holds for everything below its
//! path, so that whoever may do something to a directory may do it to all that is inside.

use std::net::{IpAddr, Ipv4Addr};

use gridlane_core::Network;
use gridlane_dav::ResourcePath;
use gridlane_store::ObjectPath;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    /// Where it is, as far as can be told: what a trusted proxy says, or else the connection's other end.
    /// [`Client::UNKNOWN`] when a trusted proxy would not say.
    pub(crate) address: IpAddr,
}

impl Client {
    /// Of whom a proxy conceals the address. No host has it, so only rules for everybody apply.
    pub(crate) const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
}

/// What a request does to what is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Asks what is there, before it is known whether it is a file or a directory: for whoever may read or list.
    Look,
    /// Reads the bytes of a file, or asks what is known of it.
    Read,
    /// Asks what is in a directory, or what is known of it.
    List,
    /// Stores or changes a file, makes a directory, changes properties.
    Write,
    /// Removes a file or a tree, or gives it another name.
    Delete,
}

/// A set of what a rule grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// To read files.
    pub read: bool,
    /// To list directories.
    pub list: bool,
    /// To store and change files, to make directories.
    pub write: bool,
    /// To remove and rename.
    pub delete: bool,
}

impl Grants {
    fn includes(self, operation: Operation) -> bool {
        match operation {
            Operation::Look => self.read || self.list,
            Operation::Read => self.read,
            Operation::List => self.list,
            Operation::Write => self.write,
            Operation::Delete => self.delete,
        }
    }
}

/// Whom a rule is about. All that is said here has to be true of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Where clients are: in one of these.
    pub networks: Vec<Network>,
}

impl Who {
    fn includes(&self, client: &Client) -> bool {
        self.networks.iter().any(|network| network.contains(client.address))
    }
}

/// Grants something to somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// To whom.
    pub who: Who,
    /// What.
    pub may: Grants,
    /// Where: this path inside of the export, and everything below it.
    pub under: ResourcePath,
}

/// Whether one of `rules` grants it.
pub(crate) fn are_granting(
    rules: &[Rule],
    client: &Client,
    operation: Operation,
    object: &ObjectPath,
) -> bool {
    rules.iter().any(|rule| {
        rule.may.includes(operation) && rule.who.includes(client) && is_under(object, &rule.under)
    })
}

fn is_under(object: &ObjectPath, base: &ResourcePath) -> bool {
    let mut names = object.names();
    base.names().all(|name| names.next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_rule_grants_is_refused() {
        let rule = |networks: &str, may: Grants, under: &str| Rule {
            who: Who { networks: Network::parse_list([networks]).unwrap() },
            may,
            under: ResourcePath::parse(under).unwrap(),
        };
        let reads = Grants { read: true, ..Grants::default() };
        let rules = [
            rule("any", reads, "/public"),
            rule("10.0.0.0/8", Grants { list: true, ..reads }, "/"),
            rule("loopback", Grants { read: true, list: true, write: true, delete: true }, "/in/box"),
        ];
        let may = |address: &str, operation, path: &str| {
            let client = Client { address: address.parse().unwrap() };
            let object = ObjectPath::new(ResourcePath::parse(path).unwrap().names()).unwrap();
            are_granting(&rules, &client, operation, &object)
        };
        use Operation::{Delete, List, Look, Read, Write};
        for (address, operation, path, expected) in [
            ("192.0.2.1", Read, "/public/f", true),
            ("192.0.2.1", Read, "/public", true),
            ("192.0.2.1", Look, "/public", true),
            ("192.0.2.1", List, "/public", false),
            ("192.0.2.1", Read, "/publicly", false),
            ("192.0.2.1", Read, "/", false),
            ("192.0.2.1", Look, "/f", false),
            ("0.0.0.0", Read, "/public/f", true),
            ("0.0.0.0", Read, "/in/box/f", false),
            ("10.1.1.1", List, "/any/where", true),
            ("10.1.1.1", Write, "/public/f", false),
            ("::ffff:10.1.1.1", Read, "/f", true),
            ("127.0.0.1", Write, "/in/box/f", true),
            ("127.0.0.1", Delete, "/in/box", true),
            ("127.0.0.1", Write, "/in", false),
            ("::1", Delete, "/in/box/a/b", true),
            ("::1", Delete, "/public/f", false),
        ] {
            assert_eq!(may(address, operation, path), expected, "{address} {operation:?} {path}");
        }
    }
}
