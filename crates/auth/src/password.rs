//! Users with passwords, for small sites.
//!
//! The file is Apache's: `htpasswd -nB ada` makes a line of it, and so does `gridlane auth password ada`. Only bcrypt
//! counts: it is made to be slow, so that the file alone does not give the passwords away. A server cannot
//! afford that for each request: [`SeenPasswords`] remembers which were right.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use bcrypt::Version;
use gridlane_core::{Error, ErrorKind, Fault, Hint, Result, limits};
use ring::{digest, hmac};

use crate::identity::UserIdentity;
use crate::refusal::{Cause, Refusal};

/// Users and the hashes of their passwords.
#[derive(Clone, Default)]
pub struct Users {
    hashes: HashMap<String, String>,
    /// In the order of the file.
    names: Vec<String>,
}

impl Users {
    /// Reads lines `name:$2y$…`; others may be empty or begin with `#`. Fails for other kinds of hashes, for hashes that
    /// would take too long, and for names that are there twice.
    pub fn parse(text: &str) -> Result<Users> {
        let mut users = Users::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: String| {
                Error::new(ErrorKind::Usage, format!("line {number} of the users: {what}"))
                    .fault(Fault::Caller)
                    .hint(Hint::MakePasswordLine)
            };
            let (name, hash) = line.split_once(':').ok_or_else(|| wrong("there is no colon".to_owned()))?;
            check_name(name).map_err(&wrong)?;
            check_hash(hash).map_err(|why| wrong(format!("the hash of {name} {why}")))?;
            if users.hashes.insert(name.to_owned(), hash.to_owned()).is_some() {
                return Err(wrong(format!("{name} is there twice")));
            }
            users.names.push(name.to_owned());
            if users.names.len() > limits::USERS_MAX {
                return Err(wrong(format!("there are more than {} users", limits::USERS_MAX)));
            }
        }
        Ok(users)
    }

    /// True if there is no user.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// True if it is the user's password. Takes as long as its hash does, up to a second of a processor: to be called
    /// where blocking is allowed, and behind [`SeenPasswords`]. For an unknown name another user's hash is computed, so
    /// that the time does not tell which users there are.
    pub fn verify(&self, name: &str, password: &str) -> std::result::Result<UserIdentity, Refusal> {
        let refused =
            || Refusal::new(Cause::WrongPassword, "there is no such user, or this is not the password");
        let own = self.hashes.get(name);
        let hash = own.or_else(|| self.hashes.get(self.stand_in(name)?)).ok_or_else(refused)?;
        // bcrypt sees no more than that, as does htpasswd; other bytes are no reason to compute longer.
        let is_right = bcrypt::verify(password, hash).unwrap_or(false);
        match own {
            Some(_) if is_right => Ok(UserIdentity::by_password(name)),
            _ => Err(refused()),
        }
    }

    /// The user whose hash is computed for an unknown one: always the same for one name.
    fn stand_in(&self, name: &str) -> Option<&String> {
        let digest = digest::digest(&digest::SHA256, name.as_bytes());
        let number = digest.as_ref().iter().take(4).fold(0, |number, byte| number << 8 | usize::from(*byte));
        self.names.get(number.checked_rem(self.names.len())?)
    }
}

/// Without the hashes.
impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({})", self.names.len())
    }
}

/// Passwords that were seen to be right, as a key of this process makes them unreadable. It serves every generation of
/// [`Users`]: a changed hash is another entry.
pub struct SeenPasswords {
    key: hmac::Key,
    right: Mutex<HashSet<[u8; 32]>>,
}

impl SeenPasswords {
    /// Remembers with a key that no other process has.
    pub fn new(random: &[u8; 32]) -> SeenPasswords {
        let key = hmac::Key::new(hmac::HMAC_SHA256, random);
        SeenPasswords { key, right: Mutex::new(HashSet::new()) }
    }

    /// The user, when this password was seen to be theirs before. Takes microseconds.
    pub fn recall(&self, users: &Users, name: &str, password: &str) -> Option<UserIdentity> {
        let tag = self.tag(users, name, password)?;
        let right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        right.contains(&tag).then(|| UserIdentity::by_password(name))
    }

    /// [`Users::verify`], and remembers what was right. To be called where blocking is allowed.
    pub fn verify(
        &self,
        users: &Users,
        name: &str,
        password: &str,
    ) -> std::result::Result<UserIdentity, Refusal> {
        let user = users.verify(name, password)?;
        if let Some(tag) = self.tag(users, name, password) {
            let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
            if right.len() >= limits::PASSWORDS_SEEN_MAX {
                right.clear();
            }
            right.insert(tag);
        }
        Ok(user)
    }

    fn tag(&self, users: &Users, name: &str, password: &str) -> Option<[u8; 32]> {
        let hash = users.hashes.get(name)?;
        let mut context = hmac::Context::with_key(&self.key);
        // No name has a colon, and hashes are of one length.
        for part in [name, ":", hash, password] {
            context.update(part.as_bytes());
        }
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        Some(tag)
    }
}

impl fmt::Debug for SeenPasswords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SeenPasswords(…)")
    }
}

/// A line for [`Users::parse`] and for Apache. The salt is random. Fails for names and passwords that cannot be.
pub fn make_line(name: &str, password: &str, salt: [u8; 16], cost: u32) -> Result<String> {
    let wrong = |what: String| Error::new(ErrorKind::Usage, what).fault(Fault::Caller);
    check_name(name).map_err(&wrong)?;
    if password.is_empty() || password.len() > limits::PASSWORD_BYTES_MAX || password.contains('\0') {
        let max = limits::PASSWORD_BYTES_MAX;
        return Err(wrong(format!("a password has 1 to {max} bytes, none of them NUL")));
    }
    let parts = bcrypt::hash_with_salt(password, cost, salt).map_err(|cause| wrong(cause.to_string()))?;
    Ok(format!("{name}:{}", parts.format_for_version(Version::TwoY)))
}

fn check_name(name: &str) -> std::result::Result<(), String> {
    let is_name = !name.is_empty()
        && name.len() <= limits::NAME_BYTES_MAX
        && !name.contains(':')
        && name.trim() == name
        && !name.chars().any(char::is_control);
    if is_name { Ok(()) } else { Err(format!("{name:?} is no name of a user")) }
}

fn check_hash(hash: &str) -> std::result::Result<(), String> {
    let rest = ["$2y$", "$2b$", "$2a$"].iter().find_map(|kind| hash.strip_prefix(kind));
    let rest = rest.ok_or("is not of the only kind that counts here, bcrypt")?;
    let (cost, text) = rest.split_once('$').ok_or("is cut off")?;
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"./".contains(&byte);
    if text.len() != 53 || !text.bytes().all(is_base64) {
        return Err("is cut off, or has letters that no hash has".to_owned());
    }
    let cost: u32 = cost.parse().map_err(|_| "has no cost")?;
    let max = limits::PASSWORD_COST_MAX;
    match (4..=max).contains(&cost) {
        true => Ok(()),
        false => Err(format!("has a cost of {cost}, which is not 4 to {max}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        let line = |name: &str, password: &str| make_line(name, password, [7; 16], 4).unwrap();
        Users::parse(&format!("# small site\n\n{}\n{}\n", line("ada", "swordfish"), line("eve", "apple")))
            .unwrap()
    }

    #[test]
    fn passwords() {
        let users = users();
        assert_eq!(users.verify("ada", "swordfish").unwrap().name, "ada");
        for (name, password) in [
            ("ada", "apple"),
            ("ada", ""),
            ("eve", "swordfish"),
            ("bob", "apple"),
            ("", ""),
            ("ada", "swordfishy"),
        ] {
            assert_eq!(users.verify(name, password).unwrap_err().cause, Cause::WrongPassword, "{name}");
        }
        assert!(users.verify("ada", &"x".repeat(100_000)).is_err());
        assert!(Users::default().verify("ada", "swordfish").is_err());
        // A hash is computed for every name, known or not.
        assert!(users.stand_in("bob").is_some() && users.stand_in("bob") == users.stand_in("bob"));
        assert_eq!(format!("{users:?}"), "Users(2)");
    }

    #[test]
    fn what_was_right_is_remembered() {
        let (users, seen) = (users(), SeenPasswords::new(&[1; 32]));
        assert!(seen.recall(&users, "ada", "swordfish").is_none());
        assert!(seen.verify(&users, "ada", "apple").is_err());
        assert!(seen.recall(&users, "ada", "apple").is_none());
        seen.verify(&users, "ada", "swordfish").unwrap();
        assert_eq!(seen.recall(&users, "ada", "swordfish").unwrap().name, "ada");
        assert!(seen.recall(&users, "eve", "swordfish").is_none());
        // With another salt it is another entry, and without the user there is none.
        let other = Users::parse(&make_line("ada", "swordfish", [8; 16], 4).unwrap()).unwrap();
        assert!(seen.recall(&other, "ada", "swordfish").is_none());
        assert!(seen.recall(&Users::default(), "ada", "swordfish").is_none());
        assert_eq!(format!("{seen:?}"), "SeenPasswords(…)");
    }

    #[test]
    fn other_files_are_refused() {
        let good = make_line("ada", "swordfish", [7; 16], 4).unwrap();
        for (text, why) in [
            ("ada", "no colon"),
            ("ada:$apr1$x$y", "only kind that counts here, bcrypt"),
            ("ada:{SHA}x", "bcrypt"),
            ("ada:swordfish", "bcrypt"),
            ("ada:$2x$05$x", "bcrypt"),
            ("ada:$2y$05$short", "cut off"),
            (&good.replace("$04$", "$15$"), "cost of 15"),
            (&good.replace("$04$", "$03$"), "cost of 3"),
            (&format!("{good}\n{good}"), "line 2 of the users: ada is there twice"),
            (&format!(":{good}"), "no name"),
        ] {
            let error = Users::parse(text).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("swordfish"), "{text}: {error}");
        }
        for (name, password) in [("a:b", "x"), ("", "x"), ("a", ""), ("a", "x\0"), ("a", &"x".repeat(73))] {
            assert!(make_line(name, password, [0; 16], 4).is_err(), "{name:?}");
        }
        assert!(Users::parse(&make_line("a", &"x".repeat(72), [0; 16], 4).unwrap()).is_ok());
    }
}
