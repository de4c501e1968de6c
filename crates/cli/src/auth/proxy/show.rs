//! What a proxy says, as `voms-proxy-info -all` shows it.

use std::fs;
use std::path::Path;

use gridlane_auth::make::{Contents, ProxyPolicy, VOMS_EXTENSION, pem};
use gridlane_auth::voms::{self, Claim};
use gridlane_core::{Error, Fault, Result};
use serde_json::{Value, json};

use crate::args::Global;
use crate::pki::{now_s, tell, usage};

pub(super) fn run(file: &Path, global: &Global) -> Result<()> {
    let text = fs::read(file).map_err(|cause| {
        Error::local_io(format!("cannot read {}", file.display()), &cause)
            .fault(Fault::Caller)
            .hint("make one: gridlane auth proxy, or name it: --show FILE")
    })?;
    let shown = Shown::read(&text).map_err(|error| error.endpoint(file.display()))?;
    let now_s = now_s();
    match global.json {
        true => tell("proxy", shown.fields(file, now_s)),
        false => crate::output::print(shown.text(file, now_s).as_bytes()).map(drop),
    }
}

struct Shown {
    first: Contents,
    /// The subject, all proxies left out.
    identity: String,
    kind: &'static str,
    strength: (&'static str, usize),
    /// When the first of the chain ends.
    not_after_s: i64,
    /// The attributes by virtual organisations, or why they cannot be read.
    claims: std::result::Result<Vec<Claim>, String>,
}

impl Shown {
    fn read(text: &[u8]) -> Result<Shown> {
        let chain =
            pem::certificates(text)?.iter().map(|der| Contents::read(der)).collect::<Result<Vec<_>>>()?;
        let first = chain.first().cloned().ok_or_else(|| usage("there is no certificate in it".into()))?;
        let mut identity = None;
        let mut not_after_s = i64::MAX;
        for contents in &chain {
            not_after_s = not_after_s.min(contents.validity.not_after_s);
            if contents.proxy_policy()?.is_none() {
                identity = Some(contents.subject.to_string());
                break;
            }
        }
        // A chain of proxies alone: what the last of them was made of.
        let identity = identity.or_else(|| chain.last().map(|last| last.issuer.to_string()));
        // Of the proxy nearest to the first that has any: it speaks for those behind it.
        let said = chain.iter().find_map(|contents| contents.extension(VOMS_EXTENSION));
        let claims = said.map_or(Ok(Vec::new()), voms::claims).map_err(|refusal| refusal.to_string());
        Ok(Shown {
            claims,
            identity: identity.unwrap_or_default(),
            kind: match first.proxy_policy()? {
                Some(ProxyPolicy::InheritAll) => "RFC 3820 proxy",
                Some(ProxyPolicy::Limited) => "RFC 3820 limited proxy",
                Some(ProxyPolicy::Independent) => "RFC 3820 independent proxy",
                Some(ProxyPolicy::Other(_)) => "RFC 3820 restricted proxy",
                None => "end-entity certificate, not a proxy",
            },
            strength: first.key_strength()?,
            not_after_s,
            first,
        })
    }

    fn text(&self, file: &Path, now_s: i64) -> String {
        let mut out = String::new();
        let mut line = |name: &str, text: String| out += &format!("{:<10} {text}\n", format!("{name}:"));
        line("subject", self.first.subject.to_string());
        line("issuer", self.first.issuer.to_string());
        line("identity", self.identity.clone());
        line("type", self.kind.into());
        line("strength", format!("{} bits ({})", self.strength.1, self.strength.0));
        line("path", file.display().to_string());
        line("time left", time_left(self.not_after_s, now_s));
        match &self.claims {
            Ok(claims) => claims.iter().for_each(|claim| {
                line("vo", format!("{}, says {}", claim.vo, claim.host));
                claim.fqans.iter().for_each(|fqan| line("attribute", fqan.to_string()));
                line("time left", time_left(claim.not_after_s, now_s));
            }),
            Err(why) => line("vo", format!("cannot be read: {why}")),
        }
        out
    }

    fn fields(&self, file: &Path, now_s: i64) -> Value {
        let claim = |claim: &Claim| {
            json!({
                "vo": claim.vo, "host": claim.host, "fqans": claim.fqans, "not_after_s": claim.not_after_s,
            })
        };
        let claims = self.claims.as_ref().map(|claims| claims.iter().map(claim).collect::<Vec<_>>());
        json!({
            "vos": claims.as_ref().ok(),
            "vos_error": claims.as_ref().err(),
            "subject": self.first.subject.to_string(),
            "issuer": self.first.issuer.to_string(),
            "identity": self.identity,
            "kind": self.kind,
            "key": self.strength.0,
            "key_bits": self.strength.1,
            "path": file,
            "not_after_s": self.not_after_s,
            "left_s": (self.not_after_s - now_s).max(0),
        })
    }
}

fn time_left(not_after_s: i64, now_s: i64) -> String {
    match not_after_s - now_s {
        left_s @ 0.. => format!("{}:{:02}:{:02}", left_s / 3600, left_s / 60 % 60, left_s % 60),
        _ => format!("none: it expired {}", crate::pki::moment(not_after_s)),
    }
}
