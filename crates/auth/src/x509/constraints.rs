//! Name constraints: what an authority may make certificates for (RFC 5280, 4.2.1.10).

use super::certificate::{Certificate, shortened, shown};
use super::der::{Der, tag};
use super::name::Name;

/// Where the names below an authority have to lie, and where they must not.
#[derive(Clone, Debug)]
pub(super) struct NameConstraints {
    permitted: Vec<Subtree>,
    excluded: Vec<Subtree>,
}

/// Names of one kind.
#[derive(Clone, Debug)]
enum Subtree {
    Directory(Box<Name>),
    Dns(String),
    Mail(String),
    /// Address and mask, one behind the other.
    Address(Vec<u8>),
    /// Another kind of name, by its tag.
    Unknown(u8),
}

const MAIL: u8 = tag::context(1);
const DNS: u8 = tag::context(2);
const DIRECTORY: u8 = tag::composed(4);
const ADDRESS: u8 = tag::context(7);

impl NameConstraints {
    pub(super) fn read(mut fields: Der<'_>) -> Option<NameConstraints> {
        let mut subtrees = |number| match fields.optional(tag::composed(number))? {
            None => Some(Vec::new()),
            Some(list) => read_subtrees(Der::new(list)),
        };
        let constraints = NameConstraints { permitted: subtrees(0)?, excluded: subtrees(1)? };
        fields.end()?;
        Some(constraints)
    }

    /// Why a certificate below is not within them, if it is not.
    pub(super) fn objection(&self, certificate: &Certificate) -> Option<String> {
        let subject = certificate.subject();
        if !subject.is_empty() && !self.allow(DIRECTORY, subject.der()) {
            return Some(format!("the name {}", shown(subject)));
        }
        let names = &certificate.profile.alternative_names;
        let mails = subject.mail_addresses().into_iter().map(|mail| (MAIL, mail));
        let mut names = names.iter().map(|(tag, contents)| (*tag, &contents[..])).chain(mails);
        let (tag, name) = names.find(|(tag, name)| !self.allow(*tag, name))?;
        Some(match tag {
            MAIL | DNS => format!("the name {:?}", shortened(&String::from_utf8_lossy(name))),
            _ => "one of its alternative names".to_owned(),
        })
    }

    /// A name has to lie in one of the permitted trees of its kind, if there are any, and in none of the excluded ones.
    fn allow(&self, kind: u8, name: &[u8]) -> bool {
        let mut permitted = self.permitted.iter().filter(|tree| tree.kind() == kind).peekable();
        let mut excluded = self.excluded.iter().filter(|tree| tree.kind() == kind);
        (permitted.peek().is_none() || permitted.any(|tree| tree.has(name) == Some(true)))
            && excluded.all(|tree| tree.has(name) == Some(false))
    }
}

fn read_subtrees(mut list: Der<'_>) -> Option<Vec<Subtree>> {
    let mut found = Vec::new();
    while !list.is_empty() {
        let mut fields = list.enter(tag::SEQUENCE)?;
        let (kind, base) = general_name(&mut fields)?;
        // minimum 0 and no maximum: there is nothing else.
        fields.end()?;
        let words = || Some(String::from_utf8(base.to_vec()).ok()?.to_ascii_lowercase());
        found.push(match kind {
            DIRECTORY => Subtree::Directory(Box::new(Name::from_der(base)?)),
            DNS => Subtree::Dns(words()?),
            MAIL => Subtree::Mail(words()?),
            ADDRESS => {
                Some(()).filter(|()| matches!(base.len(), 8 | 32))?;
                Subtree::Address(base.to_vec())
            }
            other => Subtree::Unknown(other),
        });
    }
    (!found.is_empty()).then_some(found)
}

/// The next `GeneralName` (RFC 5280, 4.2.1.6): its tag and contents.
pub(super) fn general_name<'a>(names: &mut Der<'a>) -> Option<(u8, &'a [u8])> {
    const OTHER: [u8; 6] =
        [tag::composed(0), tag::composed(3), tag::composed(5), tag::context(6), tag::context(8), ADDRESS];
    let (kind, contents) = names.any()?;
    let is_one = match kind {
        DIRECTORY => Name::from_der(contents).is_some(),
        MAIL | DNS => contents.is_ascii(),
        _ => OTHER.contains(&kind),
    };
    is_one.then_some((kind, contents))
}

impl Subtree {
    fn kind(&self) -> u8 {
        match self {
            Subtree::Directory(_) => DIRECTORY,
            Subtree::Dns(_) => DNS,
            Subtree::Mail(_) => MAIL,
            Subtree::Address(_) => ADDRESS,
            Subtree::Unknown(kind) => *kind,
        }
    }

    /// True if a name of its kind lies in it; `None` if that cannot be told.
    fn has(&self, name: &[u8]) -> Option<bool> {
        let words = || Some(std::str::from_utf8(name).ok()?.to_ascii_lowercase());
        match self {
            Subtree::Directory(base) => Some(Name::from_der(name)?.is_within(base)),
            Subtree::Dns(base) => Some(is_below(&words()?, base)),
            Subtree::Mail(base) => {
                let mail = words()?;
                let (_, host) = mail.rsplit_once('@')?;
                Some(match base.starts_with('.') {
                    true => host.ends_with(base.as_str()),
                    false if base.contains('@') => mail == *base,
                    false => host == base,
                })
            }
            Subtree::Address(base) => {
                let (address, mask) = base.split_at(base.len() / 2);
                let masked = || name.iter().zip(mask).zip(address);
                Some(
                    name.len() == mask.len() && masked().all(|((own, mask), base)| own & mask == base & mask),
                )
            }
            Subtree::Unknown(_) => None,
        }
    }
}

/// `a.example.org` is below `example.org` and below `.example.org`; `example.org` is below itself.
fn is_below(name: &str, base: &str) -> bool {
    match name.strip_suffix(base) {
        Some(rest) => rest.is_empty() || base.is_empty() || base.starts_with('.') || rest.ends_with('.'),
        None => false,
    }
}
