//! Storages and users that are banned (fts3-rest 3.4).

use gridlane_core::limits::JOB_NAME_BYTES_MAX;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::fields::{subject, switch};
use crate::{Refusal, Storage, body, date};

/// A storage that is banned for a VO.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    /// The storage.
    #[serde(rename = "se")]
    pub storage: Storage,
    /// The VO, or `*`: for all.
    pub vo: String,
    /// The consequences.
    #[serde(rename = "status")]
    pub effect: BanEffect,
    /// When it began, in seconds since 1970.
    pub since_s: i64,
    /// The user that banned it.
    #[serde(rename = "admin_dn")]
    pub by: String,
    /// The words of that user.
    pub message: String,
}

/// Consequences of a ban for files of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BanEffect {
    /// Cancelled; new ones are refused.
    #[serde(rename = "CANCEL")]
    Cancel,
    /// Held; new ones are refused.
    #[serde(rename = "WAIT")]
    Wait,
    /// Held, new ones as well.
    #[serde(rename = "WAIT_AS")]
    WaitButSubmit,
}

impl Ban {
    /// The reason that cancelled files get.
    pub const REASON: &str = "Storage banned";

    /// Reads a request that bans a storage, for the VO of the user that asks for it.
    ///
    /// # Errors
    /// 400, in FTS3's words.
    pub fn asked(fields: &Map<String, Value>, vo: &str, by: &str, now_s: i64) -> Result<Ban, Refusal> {
        let storage = Ban::storage_asked(fields)?;
        let status = body::text("status", fields.get("status"), JOB_NAME_BYTES_MAX)?;
        let may_submit = match fields.get("allow_submit") {
            None | Some(Value::Null) => false,
            Some(value) => switch("allow_submit", value)?,
        };
        let status = status.map_or("CANCEL".to_owned(), |status| status.to_ascii_uppercase());
        let effect = match (status.as_str(), may_submit) {
            ("CANCEL", false) => BanEffect::Cancel,
            ("CANCEL", true) => {
                return Err(Refusal::bad("allow_submit and status = CANCEL can not be combined"));
            }
            ("WAIT", false) => BanEffect::Wait,
            ("WAIT", true) => BanEffect::WaitButSubmit,
            _ => return Err(Refusal::bad("status can only be cancel or wait")),
        };
        let message = body::text("message", fields.get("message"), JOB_NAME_BYTES_MAX)?.unwrap_or_default();
        Ok(Ban { storage, vo: vo.to_owned(), effect, since_s: now_s, by: by.to_owned(), message })
    }

    /// The storage that a request bans, or does not ban any more.
    ///
    /// # Errors
    /// 400: there is none, or it is not one.
    pub fn storage_asked(fields: &Map<String, Value>) -> Result<Storage, Refusal> {
        let storage = super::fields::storage_field(fields, "storage")?;
        storage.ok_or_else(|| Refusal::bad("Missing storage parameter"))
    }

    /// True if it holds for this storage and VO.
    pub fn is_for(&self, storage: &Storage, vo: &str) -> bool {
        (self.vo == "*" || self.vo == vo) && (&self.storage == storage || &*self.storage.0 == Storage::ANY)
    }

    /// Its name in a store: there may be one for each storage and VO.
    pub fn key(&self) -> String {
        format!("{}|{}", self.storage, self.vo)
    }

    /// The words for the audit.
    pub fn action(&self) -> String {
        let status = if self.effect == BanEffect::Cancel { "CANCEL" } else { "WAIT" };
        format!("Storage {} for {} banned ({status})", self.storage, self.vo)
    }

    /// The answer to a client.
    pub fn answer(&self) -> Value {
        json!({
            "se": self.storage, "vo": self.vo, "status": self.effect, "addition_time": date::written(self.since_s),
            "admin_dn": self.by, "message": self.message,
        })
    }
}

/// A user that is banned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserBan {
    /// The user.
    pub dn: String,
    /// When it began, in seconds since 1970.
    pub since_s: i64,
    /// The user that banned it.
    #[serde(rename = "admin_dn")]
    pub by: String,
    /// The words of that user.
    pub message: String,
}

impl UserBan {
    /// The reason that cancelled jobs get.
    pub const REASON: &str = "User banned";

    /// Reads a request that bans a user.
    ///
    /// # Errors
    /// 400: there is none; 409: it is the one that asks for it.
    pub fn asked(fields: &Map<String, Value>, by: &str, now_s: i64) -> Result<UserBan, Refusal> {
        let dn = subject(fields, "user_dn")?.ok_or_else(|| Refusal::bad("Missing dn parameter"))?;
        if dn == by {
            return Err(Refusal::new(409, "The user tried to ban (her|his)self"));
        }
        let message = body::text("message", fields.get("message"), JOB_NAME_BYTES_MAX)?.unwrap_or_default();
        Ok(UserBan { dn, since_s: now_s, by: by.to_owned(), message })
    }

    /// The user that a request does not ban any more.
    ///
    /// # Errors
    /// 400: there is none.
    pub fn lifted(fields: &Map<String, Value>) -> Result<String, Refusal> {
        subject(fields, "user_dn")?.ok_or_else(|| Refusal::bad("Missing user_dn parameter"))
    }

    /// The answer to a client.
    pub fn answer(&self) -> Value {
        json!({
            "dn": self.dn, "addition_time": date::written(self.since_s), "admin_dn": self.by,
            "message": self.message, "status": null,
        })
    }
}
