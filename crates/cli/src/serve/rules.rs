//! The tables of rules: `[[rule]]`, and the `rules` of an export, which are the same below its path.

use gridlane_auth::dn::Pattern;
use gridlane_auth::policy::{Class, Principal, Template};
use gridlane_auth::{Fqan, Grants, Rule};
use gridlane_config::value::{Words, wrong};
use gridlane_core::{Network, Result};
use gridlane_dav::ResourcePath;
use serde::Deserialize;

/// One rule as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RuleTable {
    who: Option<ClassWord>,
    dn: Option<String>,
    user: Option<String>,
    vo: Option<String>,
    group: Option<String>,
    role: Option<String>,
    issuer: Option<String>,
    subject: Option<String>,
    scope: Option<String>,
    addresses: Option<Words>,
    may: Vec<May>,
    under: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ClassWord {
    Anyone,
    Authenticated,
    Macaroon,
}

/// The words for what a rule can grant.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum May {
    Read,
    List,
    Create,
    Overwrite,
    /// Both.
    Write,
    Delete,
    Stage,
    Admin,
}

/// The rights that all these words grant together.
pub(super) fn grants(words: &[May]) -> Grants {
    let of = |word: &May| match word {
        May::Read => Grants::READ,
        May::List => Grants::LIST,
        May::Create => Grants::CREATE,
        May::Overwrite => Grants::OVERWRITE,
        May::Write => Grants::WRITE,
        May::Delete => Grants::DELETE,
        May::Stage => Grants::STAGE,
        May::Admin => Grants::ADMIN,
    };
    words.iter().map(of).fold(Grants::NONE, Grants::with)
}

impl RuleTable {
    /// The rule, called `name`, with its path below `base`.
    pub(super) fn rule(self, name: String, base: &ResourcePath) -> Result<Rule> {
        let place = name.clone();
        self.checked(name, base).map_err(|error| {
            let inner = error.endpoint_text().map(str::to_owned);
            error.endpoint(inner.map_or(place.clone(), |inner| format!("{place}: {inner}")))
        })
    }

    fn checked(self, name: String, base: &ResourcePath) -> Result<Rule> {
        let said = [
            ("dn", &self.dn),
            ("user", &self.user),
            ("vo", &self.vo),
            ("group", &self.group),
            ("role", &self.role),
            ("issuer", &self.issuer),
            ("subject", &self.subject),
            ("scope", &self.scope),
        ];
        if let Some((key, _)) = said.iter().find(|(_, value)| value.as_deref() == Some("")) {
            return Err(wrong(format!("`{key}` is empty")));
        }
        let named = said.iter().find(|(_, value)| value.is_some()).map(|(key, _)| *key);
        let class = match (self.who, named) {
            (Some(ClassWord::Anyone), None) => Class::Anyone,
            (Some(ClassWord::Macaroon), None) => Class::Macaroons,
            (Some(who @ (ClassWord::Anyone | ClassWord::Macaroon)), Some(key)) => {
                let who = if who == ClassWord::Anyone { "anyone" } else { "macaroon" };
                return Err(wrong(format!("who = \"{who}\" and `{key}` contradict each other")));
            }
            (Some(ClassWord::Authenticated), _) | (None, Some(_)) => Class::Authenticated,
            (None, None) if self.addresses.is_some() => Class::Anyone,
            (None, None) => {
                let what = "a rule says whom it is about: by `who`, `dn`, `user`, `vo`, `group`, `role`, `issuer`, `subject`, `scope` or `addresses`";
                return Err(wrong(what.to_owned())
                    .hint("who = \"anyone\" is everybody, with or without a credential"));
            }
        };
        if let Some(dn) = self.dn.as_deref().filter(|dn| !dn.starts_with('/') && *dn != "*") {
            return Err(wrong(format!(
                "{dn:?} is no subject: it is written as \"/DC=org/DC=example/CN=Ada\""
            )));
        }
        if let Some(group) = &self.group {
            let plain = group.strip_suffix("/*").unwrap_or(group);
            let is_group = plain.parse::<Fqan>().is_ok_and(|fqan| fqan.group() == plain);
            if !is_group {
                return Err(wrong(format!(
                    "{group:?} is no group: it is written as \"/atlas/production\", or \"/atlas/*\""
                )));
            }
        }
        if self.subject.is_some() && self.issuer.is_none() {
            let what =
                "`subject` without `issuer`: another issuer may give the same subject to somebody else";
            return Err(wrong(what.to_owned()).hint("add `issuer`, as it stands in [[auth.issuer]]"));
        }
        let networks = match self.addresses.map(Words::all) {
            Some(none) if none.is_empty() => {
                return Err(wrong(
                    "a rule with no addresses is about nobody: write \"any\" for all".to_owned(),
                ));
            }
            Some(addresses) => Network::parse_list(addresses.iter().map(String::as_str))?,
            None => Vec::new(),
        };
        let who = Principal {
            class,
            networks,
            dn: self.dn.as_deref().map(Pattern::new),
            user: self.user,
            vo: self.vo,
            group: self.group,
            role: self.role,
            issuer: self.issuer,
            subject: self.subject,
            scope: self.scope,
        };
        let under = Template::parse(self.under.as_deref().unwrap_or("/"))?.below(base);
        Ok(Rule { name, who, may: grants(&self.may), under })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Rule> {
        let table: RuleTable = toml::from_str(text).map_err(|cause| wrong(cause.to_string()))?;
        table.rule("[[rule]] 1".to_owned(), &ResourcePath::parse("/data").unwrap())
    }

    #[test]
    fn whom_a_rule_is_about() {
        for (text, class) in [
            ("who = \"anyone\"\nmay = []", Class::Anyone),
            ("addresses = \"10.0.0.0/8\"\nmay = []", Class::Anyone),
            ("who = \"authenticated\"\naddresses = [\"loopback\"]\nmay = []", Class::Authenticated),
            ("dn = \"/DC=org/*\"\nmay = []", Class::Authenticated),
            ("vo = \"atlas\"\nrole = \"production\"\nmay = []", Class::Authenticated),
            ("who = \"macaroon\"\nmay = []", Class::Macaroons),
        ] {
            assert_eq!(read(text).unwrap().who.class, class, "{text}");
        }
        let rule = read("group = \"/atlas/*\"\nmay = [\"read\", \"write\"]\nunder = \"/{vo}\"").unwrap();
        assert_eq!(
            (rule.may, rule.under.to_string()),
            (Grants::READ.with(Grants::WRITE), "/data/{vo}".to_owned())
        );
        assert_eq!((rule.name.as_str(), rule.who.group.as_deref()), ("[[rule]] 1", Some("/atlas/*")));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("may = [\"read\"]", "whom"),
            ("who = \"me\"\nmay = []", "me"),
            ("who = \"anyone\"\nvo = \"atlas\"\nmay = []", "contradict"),
            ("who = \"macaroon\"\nuser = \"ada\"\nmay = []", "contradict"),
            ("vo = \"\"\nmay = []", "empty"),
            ("dn = \"CN=Ada\"\nmay = []", "CN=Ada"),
            ("group = \"atlas\"\nmay = []", "group"),
            ("group = \"/atlas/Role=x\"\nmay = []", "group"),
            ("vo = \"atlas\"\nmay = [\"fly\"]", "fly"),
            ("vo = \"atlas\"\nmay = []\nunder = \"/{host}\"", "{host}"),
            ("addresses = \"10.0.0.1/8\"\nmay = []", "10.0.0.1/8"),
            ("addresses = []\nmay = []", "nobody"),
            ("vo = \"atlas\"", "may"),
            ("subject = \"ada\"\nmay = []", "without `issuer`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.to_string().contains(word), "{text}: {error}");
            assert_eq!(error.kind().exit_code(), 2, "{text}");
        }
    }
}
