//! The identity of a client, as far as a credential has proved it.

use gridlane_dav::ResourcePath;
use serde::{Deserialize, Serialize};

use crate::fqan::Fqan;
use crate::operation::Grants;

/// The identity of a client. What is here is proved; what is merely said (a user's name over root://) is not here.
///
/// It is also what the logs have of a client, and what `gridlane auth explain` reads back from them: no secret is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Identity {
    /// A client without an identity.
    #[default]
    Anonymous,
    /// The holder of a certificate, or of a proxy.
    Certificate(CertificateIdentity),
    /// The bearer of a JSON Web Token.
    Token(TokenIdentity),
    /// The bearer of a macaroon of this site.
    Macaroon(MacaroonIdentity),
    /// A user of this site, by a password, a shared key, or the word of a machine that is trusted.
    User(UserIdentity),
}

/// The holder of a certificate, or of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateIdentity {
    /// Subject of the end-entity certificate as OpenSSL prints it on one line, in the [normal](crate::dn::normal) form:
    /// `/DC=org/DC=example/CN=Ada`.
    pub dn: String,
    /// The user that it is mapped to (gridmap), if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Attributes by VOMS, the primary one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fqans: Vec<Fqan>,
    /// When the first part of the chain expires, in seconds since 1970.
    pub expires_s: i64,
}

/// The bearer of a JSON Web Token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenIdentity {
    /// `iss`, as it is written.
    pub issuer: String,
    /// `sub`.
    pub subject: String,
    /// `jti`, for audits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// All scopes, as they are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Rights by the scopes about storage; below the issuer's base path, and within what the issuer may allow at all.
    /// When there are any, nothing else is allowed, and groups do not count (WLCG profile).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
    /// True if any scope was about storage, also one that allows nothing here, or about computing.
    #[serde(default)]
    pub is_capability: bool,
    /// `wlcg.groups`; roles are not known there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Fqan>,
    /// The virtual organisation that the issuer speaks for, if the operator has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vo: Option<String>,
    /// `exp`, in seconds since 1970.
    pub expires_s: i64,
}

/// The bearer of a macaroon of this site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacaroonIdentity {
    /// The user that it was made for.
    pub name: String,
    /// Its identifier, for audits and for revoking it.
    pub id: String,
    /// The rights that its caveats leave.
    pub capability: Capability,
    /// When it ends, in seconds since 1970.
    pub expires_s: i64,
}

/// A user of this site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserIdentity {
    /// The name.
    pub name: String,
    /// By what it was proved.
    #[serde(default, skip_serializing_if = "UserProof::is_password")]
    pub by: UserProof,
}

/// The proof of a user's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserProof {
    /// The user's password.
    #[default]
    Password,
    /// A key that hosts of the site share ([`crate::sss`]).
    SharedKey,
    /// The word of a machine that the operator trusts.
    MachineSays,
}

impl UserProof {
    fn is_password(&self) -> bool {
        *self == UserProof::Password
    }
}

impl UserIdentity {
    /// One with a password.
    pub fn by_password(name: impl Into<String>) -> UserIdentity {
        UserIdentity { name: name.into(), by: UserProof::Password }
    }
}

/// Something that may be done below a path of the server, whatever the rules say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// The operations.
    pub may: Grants,
    /// Where: this path of the server, and everything below it.
    #[serde(with = "path_text")]
    pub under: ResourcePath,
}

impl Identity {
    /// True if it is anonymous.
    pub fn is_anonymous(&self) -> bool {
        matches!(self, Identity::Anonymous)
    }

    /// By which kind of credential, in one word, for logs and metrics.
    pub fn method(&self) -> &'static str {
        match self {
            Identity::Anonymous => "anonymous",
            Identity::Certificate(_) => "x509",
            Identity::Token(_) => "token",
            Identity::Macaroon(_) => "macaroon",
            Identity::User(user) => match user.by {
                UserProof::Password => "password",
                UserProof::SharedKey => "sss",
                UserProof::MachineSays => "unix",
            },
        }
    }

    /// The name of a client: a DN, a subject, a name. Not unique among issuers.
    pub fn name(&self) -> &str {
        match self {
            Identity::Anonymous => "anonymous",
            Identity::Certificate(certificate) => &certificate.dn,
            Identity::Token(token) => &token.subject,
            Identity::Macaroon(macaroon) => &macaroon.name,
            Identity::User(user) => &user.name,
        }
    }

    /// The user of this site that it is: by its password or shared key, by the word of its machine, or by the gridmap.
    pub fn user(&self) -> Option<&str> {
        match self {
            Identity::Certificate(certificate) => certificate.user.as_deref(),
            Identity::User(user) => Some(&user.name),
            Identity::Anonymous | Identity::Token(_) | Identity::Macaroon(_) => None,
        }
    }

    /// Groups and roles, the primary one first.
    pub fn fqans(&self) -> &[Fqan] {
        match self {
            Identity::Certificate(certificate) => &certificate.fqans,
            Identity::Token(token) => &token.groups,
            Identity::Anonymous | Identity::Macaroon(_) | Identity::User(_) => &[],
        }
    }

    /// The virtual organisation that what is done counts for: the primary one.
    pub fn vo(&self) -> Option<&str> {
        let of_issuer = match self {
            Identity::Token(token) => token.vo.as_deref(),
            _ => None,
        };
        of_issuer.or_else(|| self.fqans().first().map(Fqan::vo))
    }

    /// Rights that it has by itself, whatever the rules say; `None` for those that have to be granted something by a
    /// rule.
    pub fn capabilities(&self) -> Option<&[Capability]> {
        match self {
            Identity::Token(token) if token.is_capability => Some(&token.capabilities),
            Identity::Macaroon(macaroon) => Some(std::slice::from_ref(&macaroon.capability)),
            _ => None,
        }
    }

    /// When it has to be proved again, in seconds since 1970; `None` for those that do not expire.
    pub fn expires_s(&self) -> Option<i64> {
        match self {
            Identity::Anonymous | Identity::User(_) => None,
            Identity::Certificate(certificate) => Some(certificate.expires_s),
            Identity::Token(token) => Some(token.expires_s),
            Identity::Macaroon(macaroon) => Some(macaroon.expires_s),
        }
    }
}

mod path_text {
    use gridlane_dav::ResourcePath;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &ResourcePath, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(path)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ResourcePath, D::Error> {
        let text = String::deserialize(from)?;
        ResourcePath::parse(&text).map_err(|rejection| D::Error::custom(rejection.message))
    }
}
