//! Grants, providers of tokens, and brokers that take nothing new (fts3-rest 3.5, 13).

use gridlane_core::Secret;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fields::subject;
use crate::names::with_slash;
use crate::{Operation, Refusal};

/// An operation that a user may do, on everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The user.
    pub dn: String,
    /// The operation.
    pub operation: Operation,
}

impl Grant {
    /// Reads a request that grants an operation.
    ///
    /// # Errors
    /// 400, in FTS3's words. The right to do everything is not given by request.
    pub fn asked(fields: &Map<String, Value>) -> Result<Grant, Refusal> {
        let missing = || Refusal::bad("Missing dn and/or operation");
        let dn = subject(fields, "dn")?.ok_or_else(missing)?;
        let operation = operation(fields)?.ok_or_else(missing)?;
        Ok(Grant { dn, operation })
    }

    /// Its name in a store: there may be one for each operation and user.
    pub fn key(&self) -> String {
        format!("{}|{}", self.operation, self.dn)
    }
}

/// A request that takes away an operation of a user, or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The user.
    pub dn: String,
    /// The operation; `None`: all but the right to do everything.
    pub operation: Option<Operation>,
}

impl Revocation {
    /// Reads it.
    ///
    /// # Errors
    /// 400, in FTS3's words.
    pub fn asked(fields: &Map<String, Value>) -> Result<Revocation, Refusal> {
        let dn = subject(fields, "dn")?.ok_or_else(|| Refusal::bad("Missing DN parameter"))?;
        Ok(Revocation { dn, operation: operation(fields)? })
    }

    /// True if it takes this away.
    pub fn is_for(&self, grant: &Grant) -> bool {
        grant.dn == self.dn
            && grant.operation != Operation::Admin
            && self.operation.is_none_or(|operation| operation == grant.operation)
    }
}

fn operation(fields: &Map<String, Value>) -> Result<Option<Operation>, Refusal> {
    let Some(name) = super::fields::name(fields, "operation")? else { return Ok(None) };
    match name.parse() {
        Ok(Operation::Admin) => Err(Refusal::bad("'admin' level can only be changed via database access")),
        Ok(operation) => Ok(Some(operation)),
        Err(()) => Err(Refusal::bad(format!("There is no operation {name}"))),
    }
}

/// A service that issues tokens, and exchanges them for this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenProvider {
    /// The issuer, with a slash at its end.
    pub issuer: String,
    /// The name of this service there.
    pub client_id: String,
    /// Its secret there.
    pub client_secret: Secret,
    /// The scope that a token has to have with which a job is submitted.
    pub required_submission_scope: Option<String>,
    /// The VO of its users; `None`: by the token's groups.
    pub vo: Option<String>,
}

impl TokenProvider {
    /// One of an issuer, which is the same with and without a slash at its end.
    pub fn new(issuer: &str, client_id: &str, client_secret: Secret) -> TokenProvider {
        TokenProvider {
            issuer: with_slash(issuer),
            client_id: client_id.to_owned(),
            client_secret,
            required_submission_scope: None,
            vo: None,
        }
    }

    /// The one of an issuer.
    ///
    /// # Errors
    /// 400: it is none of these.
    pub fn of<'a>(providers: &'a [TokenProvider], issuer: &str) -> Result<&'a TokenProvider, Refusal> {
        let issuer = with_slash(issuer);
        let unknown = || Refusal::bad(format!("Transfer access-token has unknown issuer: issuer={issuer}"));
        providers.iter().find(|provider| provider.issuer == issuer).ok_or_else(unknown)
    }
}

/// A request that has a broker take nothing new, or take again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// The broker.
    pub host: String,
    /// Take nothing new.
    pub is_draining: bool,
}

impl Drain {
    /// Reads it.
    ///
    /// # Errors
    /// 400, in FTS3's words.
    pub fn asked(fields: &Map<String, Value>) -> Result<Drain, Refusal> {
        let invalid = || Refusal::bad("Invalid drain request");
        let host = super::fields::name(fields, "hostname").ok().flatten().ok_or_else(invalid)?;
        let is_draining = match fields.get("drain") {
            None => true,
            Some(drain @ (Value::Bool(_) | Value::String(_))) => super::fields::switch("drain", drain)?,
            Some(_) => return Err(invalid()),
        };
        Ok(Drain { host, is_draining })
    }
}
