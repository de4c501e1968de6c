//! `login` (3007): the client's name.
//!
//! ```text
//!  0 process (4)   4 user (8, NUL padded)   12 more abilities (1)   13 abilities (1)   14 version (1)   15 reserved
//!  payload: CGI about the client, perhaps with a token that a redirect gave
//! ```
//!
//! XRootD's server reads the CGI from its second byte on, so that we put a `?` in front; a server of ours leaves a `?` or
//! `&` there out.

use std::fmt;

use crate::Malformed;
use crate::flags::Abilities;
use crate::registry::RequestId;
use crate::request::Call;
use crate::wire::{Body, Reader};

/// "Understands asynchronous answers", and the generation of clients that knows TLS.
const VERSION: u8 = 0x80 | 5;

/// The client's name.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Its process.
    pub process: u32,
    /// Its user: at most 8 bytes, without NULs.
    pub user: Vec<u8>,
    /// Its abilities.
    pub abilities: Abilities,
    /// More of that: 1 is redirects to erasure-coded files.
    pub abilities_more: u8,
    /// Its generation, with 0x80 when it understands asynchronous answers.
    pub version: u8,
    /// Further facts that it tells: `key=value&…`.
    pub cgi: Vec<u8>,
}

/// The CGI may hold a token.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Login { process, user, abilities, version, .. } = self;
        write!(f, "Login({:?} {process} {abilities:?} {version:#x})", String::from_utf8_lossy(user))
    }
}

impl Login {
    /// The login of a client of today.
    pub fn new(process: u32, user: &[u8], abilities: Abilities, cgi: Vec<u8>) -> Login {
        let user = user[..user.len().min(8)].to_vec();
        Login { process, user, abilities, abilities_more: 0, version: VERSION, cgi }
    }

    /// True if it understands answers that come later.
    pub fn is_async(&self) -> bool {
        self.version & 0x80 != 0
    }
}

impl Call for Login {
    const ID: RequestId = RequestId::LOGIN;

    fn parse(body: &[u8; 16], payload: &[u8]) -> Result<Login, Malformed> {
        let mut reader = Reader::new(body);
        let process = reader.u32()?;
        let user: [u8; 8] = reader.array()?;
        let user = user.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        let (abilities_more, abilities, version) = (reader.u8()?, reader.u8()?, reader.u8()?);
        let cgi = payload.strip_prefix(b"?").or(payload.strip_prefix(b"&")).unwrap_or(payload).to_vec();
        Ok(Login { process, user, abilities: Abilities(abilities), abilities_more, version, cgi })
    }

    fn body(&self) -> [u8; 16] {
        let mut user = [0; 8];
        let len = self.user.len().min(8);
        user[..len].copy_from_slice(&self.user[..len]);
        let rest = [self.abilities_more, self.abilities.0, self.version];
        Body::new().put(&self.process.to_be_bytes()).put(&user).put(&rest).done()
    }

    fn payload(&self, out: &mut Vec<u8>) {
        if !self.cgi.is_empty() {
            out.push(b'?');
            out.extend_from_slice(&self.cgi);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::{hex, round_trip};

    #[test]
    fn as_captured() {
        let body: [u8; 16] = hex("00004eff 726f6f7400000000 00 dd 85 00").try_into().unwrap();
        let login = Login::parse(&body, b"xrd.cc=us&xrd.tz=0").unwrap();
        assert_eq!((login.user.as_slice(), login.cgi.as_slice()), (&b"root"[..], &b"xrd.cc=us&xrd.tz=0"[..]));
        assert!(login.is_async() && login.abilities.has(Abilities::FULL_URL | Abilities::REDIRECT_FLAGS));
        assert_eq!(login.body(), body);
        assert_eq!(login.cgi.len(), 18);
        assert!(!format!("{:?}", Login { cgi: b"secret".to_vec(), ..login.clone() }).contains("115"));
        round_trip(login);
        round_trip(Login::new(1, b"somebody.long", Abilities::NONE, Vec::new()));
    }
}
