//! Users, and what each may do (fts3-rest 2).
//!
//! Roles come from VOMS, levels from the configuration of roles and from grants. What is asked is [`Identity::may`]; what a user is told of
//! itself is [`Identity::whoami`].

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::config::Grant;
use crate::id::BASE;
use crate::names::first_digits;
use crate::{Owner, Refusal};

/// Time that what a user has lent has to last for a job to be taken, in seconds.
const DELEGATION_LEFT_S: i64 = 3600;

/// The kind of credentials by which a user is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// A certificate, or a proxy of one.
    Certificate,
    /// A token.
    Token,
    /// Neither.
    #[default]
    None,
}

impl Method {
    /// Its name, as FTS3's clients know it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Certificate => "certificate",
            Method::Token => "oauth2",
            Method::None => "unauthenticated",
        }
    }
}

/// Something that a user may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Lend credentials.
    Deleg,
    /// Submit jobs, look at them, cancel them.
    Transfer,
    /// Change settings.
    Config,
    /// Everything.
    Admin,
    /// List, make and remove files of storages.
    DataManagement,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 5] = [
        Operation::Deleg,
        Operation::Transfer,
        Operation::Config,
        Operation::Admin,
        Operation::DataManagement,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Deleg => "deleg",
            Operation::Transfer => "transfer",
            Operation::Config => "config",
            Operation::Admin => "admin",
            Operation::DataManagement => "datamanagement",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Operation {
    type Err = ();

    fn from_str(text: &str) -> Result<Operation, ()> {
        Operation::ALL.into_iter().find(|operation| operation.name() == text).ok_or(())
    }
}

/// The things on which a user may do an operation; a greater one has all of a lesser one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// None.
    #[default]
    #[serde(rename = "")]
    None,
    /// Its own.
    Private,
    /// Those of its VO.
    Vo,
    /// All.
    All,
}

impl FromStr for Level {
    type Err = ();

    fn from_str(text: &str) -> Result<Level, ()> {
        match text {
            "" => Ok(Level::None),
            "private" => Ok(Level::Private),
            "vo" => Ok(Level::Vo),
            "all" => Ok(Level::All),
            _ => Err(()),
        }
    }
}

/// Levels by operation.
pub type Levels = BTreeMap<Operation, Level>;

/// Levels by role, of which `public` is that of all users; names are in small letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles(BTreeMap<String, Levels>);

impl Roles {
    /// Reads roles as a configuration has them: to each a list of `level:operation`.
    ///
    /// # Errors
    /// The word that is not one.
    pub fn read<'a>(roles: impl IntoIterator<Item = (&'a str, &'a [String])>) -> Result<Roles, String> {
        let mut read = BTreeMap::new();
        for (role, granted) in roles {
            let levels: &mut Levels = read.entry(role.to_lowercase()).or_default();
            for word in granted {
                let lower = word.trim().to_lowercase();
                let (level, operation) = lower.split_once(':').unwrap_or(("", &lower));
                let level = level.parse().map_err(|()| word.clone())?;
                levels.insert(operation.parse().map_err(|()| word.clone())?, level);
            }
        }
        Ok(Roles(read))
    }

    /// The roles that are shipped: all users see and submit jobs of their VO and may use storages, `production` changes settings.
    pub fn shipped() -> Roles {
        let public = [(Operation::Transfer, Level::Vo), (Operation::DataManagement, Level::All)];
        let production = [(Operation::Config, Level::All)];
        Roles(BTreeMap::from([
            ("public".to_owned(), Levels::from(public)),
            ("production".to_owned(), Levels::from(production)),
        ]))
    }

    /// The levels of a user with these roles and grants. A role takes the place of what all users have.
    fn levels(&self, roles: &[String], grants: &[Operation]) -> Levels {
        let public = std::iter::once("public".to_owned());
        let named = public.chain(roles.iter().map(|role| role.to_lowercase()));
        let mut levels: Levels =
            named.filter_map(|role| self.0.get(&role)).flatten().map(|(op, level)| (*op, *level)).collect();
        levels.extend(grants.iter().map(|operation| (*operation, Level::All)));
        if levels.get(&Operation::Admin) == Some(&Level::All) {
            levels.insert(Operation::Config, Level::All);
        }
        levels
    }
}

/// A user, by its credentials.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Their kind.
    pub method: Method,
    /// Subjects: of certificates the one of the certificate itself first, of tokens the token's.
    pub dns: Vec<String>,
    /// Attributes from VOMS as they are written, in order; of tokens, their scopes.
    pub fqans: Vec<String>,
    /// VOs with their groups, in order; the first is the one of the request.
    pub vos: Vec<String>,
    /// Roles, in order.
    pub roles: Vec<String>,
    /// Its levels.
    pub levels: Levels,
    /// The name of what it lends.
    pub delegation_id: String,
    /// It is this service itself.
    pub is_root: bool,
    /// Of tokens: their scopes as they are written.
    pub scope: Option<String>,
    /// Of tokens: they follow the WLCG profile.
    pub is_wlcg: bool,
}

impl Identity {
    /// A user with a certificate: the subjects of its chain, its own first, and its VOMS attributes. Without any of these its VO is
    /// `mapped`, by a map of users; or else it is alone in one by the name of what it lends. `host_dn` is the subject of this service.
    pub fn of_certificate(
        dns: Vec<String>,
        fqans: Vec<String>,
        mapped: Option<&str>,
        host_dn: Option<&str>,
        roles: &Roles,
        grants: &[Grant],
    ) -> Identity {
        let user_dn = dns.first().cloned().unwrap_or_default();
        let delegation_id = delegation_id_of_certificate(&user_dn, &fqans);
        let mut vos: Vec<String> = Vec::new();
        for vo in fqans.iter().map(|fqan| vo_of_fqan(fqan)) {
            if !vo.is_empty() && !vos.contains(&vo) {
                vos.push(vo);
            }
        }
        if vos.is_empty() {
            vos.push(mapped.unwrap_or(&delegation_id).to_owned());
        }
        let named: Vec<String> = fqans.iter().filter_map(|fqan| role_of_fqan(fqan)).collect();
        let is_root = host_dn.is_some_and(|host_dn| !host_dn.is_empty() && host_dn == user_dn);
        let levels = match is_root {
            true => everything(),
            false => roles.levels(&named, &granted(grants, &user_dn)),
        };
        let method = Method::Certificate;
        Identity {
            method,
            dns,
            fqans,
            vos,
            roles: named,
            levels,
            delegation_id,
            is_root,
            ..Identity::default()
        }
    }

    /// A user with a token. Its VO is `mapped`, by a map of users or of issuers; else its groups, without a slash before them; else the
    /// issuer's host. It may do everything that its scope lets it ask for, as in FTS3.
    pub fn of_token(
        issuer: &str,
        user: &str,
        mapped: Option<&str>,
        groups: &[String],
        scope: Option<&str>,
        is_wlcg: bool,
    ) -> Identity {
        let mut vos: Vec<String> = mapped.map(str::to_owned).into_iter().collect();
        if mapped.is_none() {
            for group in groups.iter().map(|group| group.strip_prefix('/').unwrap_or(group)) {
                if !group.is_empty() && !vos.iter().any(|vo| vo == group) {
                    vos.push(group.to_owned());
                }
            }
        }
        if vos.is_empty() {
            let host = crate::place::host_of(issuer);
            vos.push(if host.is_empty() { issuer.to_owned() } else { host });
        }
        Identity {
            method: Method::Token,
            dns: vec![user.to_owned()],
            fqans: scope.unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
            vos,
            levels: everything(),
            delegation_id: first_digits(&[issuer, user]),
            scope: scope.map(str::to_owned),
            is_wlcg,
            ..Identity::default()
        }
    }

    /// Its own subject.
    pub fn user_dn(&self) -> &str {
        self.dns.first().map_or("anon", String::as_str)
    }

    /// The VO of its requests.
    pub fn vo(&self) -> &str {
        self.vos.first().map_or("", String::as_str)
    }

    /// The owner of its jobs.
    pub fn owner(&self) -> Owner {
        Owner {
            user_dn: self.user_dn().to_owned(),
            vo: self.vo().to_owned(),
            delegation_id: self.delegation_id.clone(),
        }
    }

    /// The things that it may do an operation on.
    pub fn level(&self, operation: Operation) -> Level {
        self.levels.get(&operation).copied().unwrap_or_default()
    }

    /// True if it may do an operation on what is this one's.
    pub fn may(&self, operation: Operation, owner: &Owner) -> bool {
        let is_own = owner.user_dn == self.user_dn();
        match self.level(operation) {
            Level::None => false,
            Level::Private => is_own,
            Level::Vo => is_own || self.vos.contains(&owner.vo),
            Level::All => true,
        }
    }

    /// Refuses an operation that it may do on nothing.
    ///
    /// # Errors
    /// 401 for one without credentials, 403 for one that may not.
    pub fn need(&self, operation: Operation) -> Result<(), Refusal> {
        match (self.method, self.level(operation)) {
            (Method::None, _) => Err(Refusal::new(401, "A valid X509 certificate or proxy is needed")),
            (_, Level::None) => Err(Refusal::forbidden("Not enough permissions")),
            _ => Ok(()),
        }
    }

    /// Refuses a submission of a user whose credentials, lent until `ends_s`, are not there, are over, or have less than an hour left
    /// (fts3-rest 1, 2.5). A token comes with what is needed.
    ///
    /// # Errors
    /// 419, at which clients lend them and try again.
    pub fn need_delegation(&self, ends_s: Option<i64>, now_s: i64) -> Result<(), Refusal> {
        if self.method != Method::Certificate {
            return Ok(());
        }
        let id = &self.delegation_id;
        match ends_s.map(|ends_s| ends_s.saturating_sub(now_s)) {
            None => Err(Refusal::not_delegated(format!("No delegation found for \"{}\"", self.user_dn()))),
            Some(left_s) if left_s <= 0 => Err(Refusal::not_delegated(format!(
                "The delegated credentials expired {} seconds ago ({id})",
                left_s.saturating_neg()
            ))),
            Some(..DELEGATION_LEFT_S) => Err(Refusal::not_delegated(format!(
                "The delegated credentials has less than one hour left ({id})"
            ))),
            Some(_) => Ok(()),
        }
    }

    /// The answer to a user that asks for itself (fts3-rest 2.4).
    pub fn whoami(&self) -> Value {
        let vo_ids: Vec<String> =
            self.vos.iter().map(|vo| Uuid::new_v5(&BASE, vo.as_bytes()).to_string()).collect();
        let levels: Levels = self
            .levels
            .iter()
            .filter(|(_, level)| **level > Level::None)
            .map(|(op, level)| (*op, *level))
            .collect();
        let mut told = json!({
            "user_dn": self.user_dn(), "dn": self.dns, "method": self.method.name(), "voms_cred": self.fqans,
            "vos": self.vos, "vos_id": vo_ids, "roles": self.roles, "level": levels,
            "delegation_id": self.delegation_id, "base_id": BASE.to_string(), "is_root": self.is_root,
        });
        if self.method == Method::Token {
            told["oauth2_scope"] = json!(self.scope);
            told["wlcg_profile"] = json!(self.is_wlcg);
        }
        told
    }
}

/// The name of what a user with a certificate lends: the first 16 digits of the SHA-1 of its subject and its VOMS attributes.
pub fn delegation_id_of_certificate(user_dn: &str, fqans: &[String]) -> String {
    let mut texts = vec![user_dn];
    texts.extend(fqans.iter().map(String::as_str));
    first_digits(&texts)
}

/// A user's own grants.
fn granted(grants: &[Grant], user_dn: &str) -> Vec<Operation> {
    grants.iter().filter(|grant| grant.dn == user_dn).map(|grant| grant.operation).collect()
}

fn everything() -> Levels {
    Operation::ALL.into_iter().map(|operation| (operation, Level::All)).collect()
}

/// The VO and groups of an attribute, without the slash before them and without the role: `dteam/cern`.
fn vo_of_fqan(fqan: &str) -> String {
    let is_group = |part: &&str| !part.to_ascii_lowercase().starts_with("role=");
    fqan.split('/').skip(1).take_while(is_group).collect::<Vec<&str>>().join("/")
}

/// The role of an attribute that names one.
fn role_of_fqan(fqan: &str) -> Option<String> {
    let is_role = |part: &&str| part.to_ascii_lowercase().starts_with("role=");
    let role = &fqan.split('/').find(is_role)?["role=".len()..];
    (!role.is_empty() && !role.eq_ignore_ascii_case("NULL")).then(|| role.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: &str = "/DC=org/CN=Ada";

    fn with(fqans: &[&str], grants: &[Grant]) -> Identity {
        let fqans = fqans.iter().map(|fqan| (*fqan).to_owned()).collect();
        let dns = vec![ADA.to_owned(), "/DC=org/CN=CA".to_owned()];
        Identity::of_certificate(dns, fqans, None, Some("/CN=host"), &Roles::shipped(), grants)
    }

    fn owner(user_dn: &str, vo: &str) -> Owner {
        Owner { user_dn: user_dn.to_owned(), vo: vo.to_owned(), delegation_id: String::new() }
    }

    #[test]
    fn a_certificate_with_voms_tells_vo_roles_and_levels() {
        let ada =
            with(&["/dteam/cern/Role=production/Capability=NULL", "/dteam/Role=NULL", "/dteam/cern"], &[]);
        assert_eq!(
            (ada.vos.join(" "), ada.roles.join(" ")),
            ("dteam/cern dteam".to_owned(), "production".to_owned())
        );
        let told = ada.whoami();
        assert_eq!(told["level"], json!({"transfer": "vo", "datamanagement": "all", "config": "all"}));
        assert_eq!(told["base_id"], "01874efb-4735-4595-bc9c-591aef8240c9");
        assert_eq!((told["method"].as_str(), told["is_root"].as_bool()), (Some("certificate"), Some(false)));
        assert_eq!(told.get("oauth2_scope"), None);
        assert!(ada.may(Operation::Transfer, &owner("/CN=Bob", "dteam")));
        assert!(ada.may(Operation::Transfer, &owner(ADA, "atlas")), "its own");
        assert!(!ada.may(Operation::Transfer, &owner("/CN=Bob", "atlas")));
        assert!(!ada.may(Operation::Admin, &owner(ADA, "dteam")));
        assert_eq!(ada.need(Operation::Deleg).unwrap_err().status, 403);
    }

    #[test]
    fn names_of_what_is_lent_are_those_of_fts3() {
        // printf '%s' /DC=org/CN=Ada/dteam | sha1sum
        assert_eq!(delegation_id_of_certificate(ADA, &["/dteam".to_owned()]), "176a41be4efeaa12");
        let token = Identity::of_token(
            "https://iam.example/",
            "ada",
            None,
            &["/wlcg/ops".to_owned()],
            Some("openid fts"),
            true,
        );
        // printf '%s' https://iam.example/ada | sha1sum
        assert_eq!(token.delegation_id, "d7f5b0750da6730c");
        assert_eq!((token.vo(), token.user_dn()), ("wlcg/ops", "ada"));
        let told = token.whoami();
        assert_eq!((&told["oauth2_scope"], &told["wlcg_profile"]), (&json!("openid fts"), &json!(true)));
        assert_eq!(told["voms_cred"], json!(["openid", "fts"]));
        assert_eq!(
            Identity::of_token("https://iam.example/", "ada", None, &[], None, false).vo(),
            "iam.example"
        );
    }

    #[test]
    fn a_user_without_a_vo_is_alone_in_one() {
        let ada = with(&[], &[]);
        assert_eq!(ada.vo(), ada.delegation_id);
        let dns = vec![ADA.to_owned()];
        let mapped = Identity::of_certificate(dns, Vec::new(), Some("atlas"), None, &Roles::shipped(), &[]);
        assert_eq!(mapped.vo(), "atlas");
    }

    #[test]
    fn grants_and_the_service_itself_may_more() {
        let grant = |operation, dn: &str| Grant { dn: dn.to_owned(), operation };
        assert_eq!(with(&[], &[grant(Operation::Admin, ADA)]).level(Operation::Config), Level::All);
        assert_eq!(with(&[], &[grant(Operation::Config, "/CN=Bob")]).level(Operation::Config), Level::None);
        let dns = vec!["/CN=host".to_owned()];
        let host = Identity::of_certificate(dns, Vec::new(), None, Some("/CN=host"), &Roles::shipped(), &[]);
        assert!(host.is_root && host.may(Operation::Admin, &owner(ADA, "x")));
        let none = Identity::of_certificate(Vec::new(), Vec::new(), None, Some(""), &Roles::shipped(), &[]);
        assert!(!none.is_root, "an empty name is not the service");
        assert_eq!(Identity::default().need(Operation::Transfer).unwrap_err().status, 401);
        assert_eq!(Identity::default().whoami()["user_dn"], "anon");
    }

    #[test]
    fn a_user_with_a_certificate_lends_credentials_first() {
        let (ada, now_s) = (with(&[], &[]), 1_800_000_000);
        let refused = |ends_s| ada.need_delegation(ends_s, now_s).unwrap_err();
        assert_eq!(refused(None).status_line(), "419 Authentication Timeout");
        assert_eq!(refused(None).message, format!("No delegation found for \"{ADA}\""));
        assert!(
            refused(Some(now_s - 5)).message.starts_with("The delegated credentials expired 5 seconds ago")
        );
        assert!(
            refused(Some(now_s + 3599))
                .message
                .starts_with("The delegated credentials has less than one hour")
        );
        assert!(refused(Some(i64::MIN)).message.contains("expired"));
        assert_eq!(ada.need_delegation(Some(now_s + 3600), now_s), Ok(()));
        let token = Identity::of_token("https://iam.example/", "ada", None, &[], None, false);
        assert_eq!(token.need_delegation(None, now_s), Ok(()));
    }

    #[test]
    fn roles_are_read_as_a_configuration_has_them() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (public, production) = (words(&["vo:transfer", "all:DataManagement"]), words(&["all:config"]));
        let read = Roles::read([("Public", &*public), ("production", &*production)]).unwrap();
        assert_eq!(read, Roles::shipped());
        assert_eq!(Roles::read([("public", &*words(&["some:transfer"]))]).unwrap_err(), "some:transfer");
        assert_eq!(Roles::read([("public", &*words(&["all:transfers"]))]).unwrap_err(), "all:transfers");
    }
}
