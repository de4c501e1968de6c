//! What a token says, without what makes it one.

use std::process::ExitCode;

use gridlane_auth::macaroon::Macaroon;
use gridlane_client::credentials::{Claims, ThisMachine, TokenKind, Wanted, discover};
use gridlane_core::units::format_seconds;
use gridlane_core::{Error, ErrorKind, Fault, Result, Secret};
use serde_json::json;

use super::read_stdin;
use crate::args::{CredentialArgs, Global};
use crate::output::{print, printable};
use crate::pki::{moment, now_s, tell};

pub(super) fn run(from: Option<&str>, credentials: &CredentialArgs, global: &Global) -> Result<ExitCode> {
    let (secret, place) = match from {
        Some("-") => (read_stdin()?, "standard input".to_owned()),
        Some(file) => found(&Wanted { token_file: Some(file.into()), ..Wanted::default() })?,
        None => found(&credentials.wanted())?,
    };
    let shown = Shown::read(&secret, place);
    match global.json {
        true => tell("token", shown.fields()).map(|()| ExitCode::SUCCESS),
        false => print(shown.text(now_s()).as_bytes()),
    }
}

/// The token that commands would show, and where it is.
fn found(wanted: &Wanted) -> Result<(Secret, String)> {
    match discover(wanted, &ThisMachine)?.token {
        Some(token) => Ok((token.secret, token.origin.to_string())),
        None => Err(Error::new(ErrorKind::NotFound, "there is no token where programs look for one")
            .fault(Fault::Caller)
            .hint(
                "name it: --show FILE, or --show - for standard input; a proxy: gridlane auth proxy --show",
            )),
    }
}

struct Shown {
    place: String,
    claims: Claims,
    macaroon: Option<Macaroon>,
    /// Of a macaroon that only its server can read: why.
    unread: Option<String>,
}

impl Shown {
    fn read(secret: &Secret, place: String) -> Shown {
        let claims = Claims::read(secret.expose());
        let (macaroon, unread) = match claims.kind {
            TokenKind::Macaroon => match Macaroon::parse(secret.expose()) {
                Ok(macaroon) => (Some(macaroon), None),
                Err(refusal) => (None, Some(refusal.message)),
            },
            TokenKind::Jwt | TokenKind::Opaque => (None, None),
        };
        Shown { place, claims, macaroon, unread }
    }

    fn kind(&self) -> &'static str {
        match self.claims.kind {
            TokenKind::Jwt => "JSON Web Token",
            TokenKind::Macaroon => "macaroon",
            TokenKind::Opaque => "a token that only its issuer can read",
        }
    }

    fn caveats(&self) -> Vec<String> {
        self.macaroon.iter().flat_map(Macaroon::caveats).map(printable).collect()
    }

    fn text(&self, now_s: i64) -> String {
        let mut out = String::new();
        let mut line = |name: &str, text: &str| {
            out += &format!("{:<10} {}\n", format!("{name}:"), printable(text.as_bytes()));
        };
        line("kind", self.kind());
        line("from", &self.place);
        let claims = &self.claims;
        let said = [
            ("issuer", &claims.issuer),
            ("subject", &claims.subject),
            ("audience", &claims.audience),
            ("scopes", &claims.scopes),
        ];
        for (name, text) in said {
            if let Some(text) = text {
                line(name, text);
            }
        }
        if let Some(macaroon) = &self.macaroon {
            line("site", &macaroon.location());
            line("id", &macaroon.id());
        }
        self.caveats().iter().for_each(|caveat| line("caveat", caveat));
        if let Some(why) = &self.unread {
            line("caveats", why);
        }
        let ends = match claims.ends_s {
            None => "it does not say".to_owned(),
            Some(ends_s) if ends_s <= now_s => {
                format!("{}, {} ago", moment(ends_s), format_seconds(now_s.saturating_sub(ends_s) as f64))
            }
            Some(ends_s) => {
                format!("{}, in {}", moment(ends_s), format_seconds(ends_s.saturating_sub(now_s) as f64))
            }
        };
        line("expires", &ends);
        out
    }

    fn fields(&self) -> serde_json::Value {
        let claims = &self.claims;
        let kind = match claims.kind {
            TokenKind::Jwt => "jwt",
            TokenKind::Macaroon => "macaroon",
            TokenKind::Opaque => "opaque",
        };
        json!({
            "kind": kind,
            "from": self.place,
            "issuer": claims.issuer,
            "subject": claims.subject,
            "audience": claims.audience,
            "scopes": claims.scopes,
            "site": self.macaroon.as_ref().map(Macaroon::location),
            "id": self.macaroon.as_ref().map(Macaroon::id),
            "caveats": self.macaroon.as_ref().map(|_| self.caveats()),
            "expires_s": claims.ends_s,
        })
    }
}
