//! Files of shared keys, as `xrdsssadmin` writes them.
//!
//! One key a line, in words that begin with `0` and are told apart by their first letter:
//!
//! ```text
//! 0 u:ada g:users n:site N:7012345678901234567 c:1764000000 e:0 f:0 k:0123…
//! ```
//!
//! `u` user, `g` group, `n` name, `N` number, `c` made and `e` expires in seconds since 1970 (0: never), `f` flags, which have
//! no meaning, `k` the key in hexadecimal digits. A name that ends in `+` is a key whose credentials may come from
//! another address than they state.

use std::fmt;

use gridlane_core::limits::{
    SSS_KEY_BYTES_MAX, SSS_KEY_BYTES_MIN, SSS_KEY_NAME_BYTES_MAX, SSS_KEYS_MAX, SSS_USER_BYTES_MAX,
};
use gridlane_core::{Error, ErrorKind, Fault, Result};

/// One shared key. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// Its number.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Whom it stands for.
    pub user: KeyUser,
    /// The group that it stands for; rules know nothing of it.
    pub group: String,
    /// When it was made, in seconds since 1970.
    pub made_s: i64,
    /// When it ends, in seconds since 1970; 0: never.
    pub expires_s: i64,
    pub(super) bytes: Vec<u8>,
}

/// The user that a key stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyUser {
    /// This one.
    Named(String),
    /// Whom the client says (`anybody`, `allusers`).
    AsClientSays,
}

impl Key {
    /// True if its time is over.
    pub fn is_expired(&self, now_s: i64) -> bool {
        self.expires_s != 0 && self.expires_s <= now_s
    }

    /// True if credentials by it may come from another address than they state.
    pub fn is_for_any_address(&self) -> bool {
        self.name.ends_with('+')
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("user", &self.user)
            .field("expires_s", &self.expires_s)
            .finish_non_exhaustive()
    }
}

/// The keys of a file, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keytab(Vec<Key>);

impl Keytab {
    /// Reads a file. A line that is no key is an error with its number, and never with what is in it.
    pub fn parse(text: &str) -> Result<Keytab> {
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let fault = |what: &str| {
                let message = format!("line {} is no shared key: {what}", index + 1);
                Error::new(ErrorKind::Usage, message)
                    .fault(Fault::Caller)
                    .hint("make keys with `xrdsssadmin -k NAME -u USER -g GROUP add FILE`")
            };
            if keys.len() == SSS_KEYS_MAX {
                return Err(fault(&format!("a file has up to {SSS_KEYS_MAX} of them")));
            }
            keys.push(key(line).map_err(fault)?);
        }
        match keys.is_empty() {
            true => Err(Error::new(ErrorKind::Usage, "there is no shared key in it").fault(Fault::Caller)),
            false => Ok(Keytab(keys)),
        }
    }

    /// The keys.
    pub fn keys(&self) -> &[Key] {
        &self.0
    }

    /// The key for credentials that are made: the newest that is valid of the name that comes first, as XRootD's clients have
    /// it, or else the first valid one.
    pub fn to_show(&self, now_s: i64) -> Option<&Key> {
        let valid = || self.0.iter().filter(|key| !key.is_expired(now_s));
        let name = &self.0.first()?.name;
        // Of keys that were made in the same second the first one, which is the newest.
        let newest = valid().rev().filter(|key| key.name == *name).max_by_key(|key| key.made_s);
        newest.or_else(|| valid().next())
    }

    /// The key of a number; where several have it, that of this name.
    pub fn find(&self, id: i64, name: &[u8]) -> Option<&Key> {
        let with_id = || self.0.iter().filter(|key| key.id == id);
        with_id().find(|key| key.name.as_bytes() == name).or_else(|| with_id().next())
    }
}

fn key(line: &str) -> std::result::Result<Key, &'static str> {
    let mut words = line.split_ascii_whitespace();
    if words.next() != Some("0") {
        return Err("it does not begin with the word 0");
    }
    let (mut id, mut name, mut user, mut group) = (None, "nowhere", "nobody", "nogroup");
    let (mut made_s, mut expires_s, mut bytes) = (0, 0, None);
    let number = |text: &str| text.parse::<i64>().map_err(|_| "a number in it is none");
    for word in words {
        let Some((letter, value)) = word.split_once(':') else { return Err("a word in it has no letter") };
        match letter {
            "u" => user = value,
            "g" => group = value,
            "n" => name = value,
            "N" => id = Some(number(value)?),
            "c" => made_s = number(value)?,
            "e" => expires_s = number(value)?,
            "k" => bytes = Some(digits(value)?),
            // Flags have no meaning, and what is new has none here.
            _ => {}
        }
    }
    if name.is_empty() || name.len() >= SSS_KEY_NAME_BYTES_MAX {
        return Err("its name has no letter, or too many");
    }
    let user = match user {
        "anybody" | "allusers" => KeyUser::AsClientSays,
        user if is_user(user.as_bytes()) => KeyUser::Named(user.to_owned()),
        _ => return Err("its user has a name that no user has"),
    };
    let id = id.filter(|id| *id >= 0).ok_or("it has no number (N:)")?;
    let bytes = bytes.ok_or("it has no key (k:)")?;
    Ok(Key { id, name: name.to_owned(), user, group: group.to_owned(), made_s, expires_s, bytes })
}

/// True if a user may have that name: it is a name of a directory as well, and a word in logs.
pub fn is_user(name: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-@$".contains(byte);
    name.len() < SSS_USER_BYTES_MAX
        && name.first().is_some_and(|first| first.is_ascii_alphanumeric() || *first == b'_')
        && name.iter().all(is_letter)
}

fn digits(text: &str) -> std::result::Result<Vec<u8>, &'static str> {
    if text.len() < 2 * SSS_KEY_BYTES_MIN {
        return Err("its key is too short to keep a secret");
    }
    if text.len() > 2 * SSS_KEY_BYTES_MAX || !text.len().is_multiple_of(2) {
        return Err("its key is too long, or has an odd number of digits");
    }
    let pairs = text.as_bytes().chunks_exact(2).map(|pair| crate::dn::hex(pair[0], pair[1]));
    pairs.collect::<Option<Vec<u8>>>().ok_or("its key has other letters than hexadecimal digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn the_newest_valid_key_of_the_first_name_is_shown() {
        let text = format!(
            "0 u:ada g:g n:a N:1 c:10 e:50 f:0 k:{KEY}\n\n# old\n0 u:ada g:g n:a N:2 c:30 e:40 k:{KEY}\n\
             0 u:ada n:a N:3 c:20 e:0 k:{KEY}\n0 u:eve n:b N:4 c:99 e:0 k:{KEY}\n"
        );
        let keytab = Keytab::parse(&text).unwrap();
        let shown = |now_s| keytab.to_show(now_s).map(|key| key.id);
        assert_eq!((shown(35), shown(45), shown(60)), (Some(2), Some(3), Some(3)));
        assert_eq!(keytab.find(4, b"").map(|key| key.name.as_str()), Some("b"));
        assert_eq!((keytab.find(4, b"a").map(|key| key.id), keytab.find(5, b"a")), (Some(4), None));
        assert!(!format!("{keytab:?}").contains("112233"));
        let expired = Keytab::parse(&format!("0 N:1 e:5 k:{KEY}\n")).unwrap();
        assert_eq!((expired.to_show(4).is_some(), expired.to_show(5)), (true, None));
    }

    #[test]
    fn lines_that_are_no_keys_are_numbered_and_not_told() {
        for (line, word) in [
            ("1 N:1 k:00112233445566778899", "word 0"),
            ("0 k:00112233445566778899", "number"),
            ("0 N:-1 k:00112233445566778899", "number"),
            ("0 N:x k:00112233445566778899", "number"),
            ("0 N:1", "no key"),
            ("0 N:1 k:0011223344", "too short"),
            ("0 N:1 k:001122334455667788999", "odd"),
            ("0 N:1 k:0011223344556677889g", "hexadecimal"),
            ("0 N:1 u:../etc k:00112233445566778899", "user"),
            ("0 N:1 u: k:00112233445566778899", "user"),
            ("0 N:1 n: k:00112233445566778899", "name"),
            ("0 N:1 what", "letter"),
        ] {
            let error = Keytab::parse(&format!("# a file\n{line}\n")).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("line 2"), "{line}: {error}");
            assert!(!error.contains("0011223344"), "{error}");
        }
        assert!(Keytab::parse("\n").unwrap_err().to_string().contains("no shared key"));
        let long = format!("0 N:1 k:{}", "00".repeat(129));
        assert!(Keytab::parse(&long).is_err());
    }

    #[test]
    fn keys_that_leave_things_to_the_client() {
        let text = format!("0 u:anybody n:any+ N:1 k:{KEY}\n0 u:allusers n:b N:2 k:{KEY}\n");
        let keytab = Keytab::parse(&text).unwrap();
        let [any, all] = keytab.keys() else { panic!() };
        assert_eq!((&any.user, &all.user), (&KeyUser::AsClientSays, &KeyUser::AsClientSays));
        assert_eq!((any.is_for_any_address(), all.is_for_any_address()), (true, false));
    }
}
