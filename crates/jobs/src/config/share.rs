//! Shares of VOs in a link, and of activities in a VO (fts3-rest 3.5, 9).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::fields::{name, storage_field, switch};
use crate::{Refusal, Storage, body};

/// The VO that stands for all that have no share of their own.
const PUBLIC: &str = "public";

/// The activity that stands for all that have no share of their own.
const DEFAULT: &str = "default";

/// The share of a VO in a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The source, or `*`.
    pub source: Storage,
    /// The destination, or `*`.
    pub destination: Storage,
    /// The VO, or `public`: for those that are not listed.
    pub vo: String,
    /// The weight, 1 or more.
    pub share: u32,
}

impl Share {
    /// Reads a request that sets a share. The link has to have settings, which the caller looks for.
    ///
    /// # Errors
    /// 400, in FTS3's words.
    pub fn asked(fields: &Map<String, Value>) -> Result<Share, Refusal> {
        let share = body::integer(fields.get("share")).ok().flatten();
        let share = share
            .and_then(|share| u32::try_from(share).ok())
            .ok_or_else(|| Refusal::bad("Bad share value"))?;
        let (source, destination, vo) = Share::key_fields(fields)?;
        match (source, destination, vo, share) {
            (Some(source), Some(destination), Some(vo), 1..) => Ok(Share { source, destination, vo, share }),
            _ => Err(Refusal::bad("Missing source, destination, vo and/or share")),
        }
    }

    /// The name in a store of the share that a request takes away.
    ///
    /// # Errors
    /// 400, in FTS3's words.
    pub fn key_asked(fields: &Map<String, Value>) -> Result<String, Refusal> {
        match Share::key_fields(fields)? {
            (Some(source), Some(destination), Some(vo)) => Ok(key(&source, &destination, &vo)),
            _ => Err(Refusal::bad("Missing source, destination and/or vo")),
        }
    }

    #[allow(clippy::type_complexity)]
    fn key_fields(
        fields: &Map<String, Value>,
    ) -> Result<(Option<Storage>, Option<Storage>, Option<String>), Refusal> {
        Ok((storage_field(fields, "source")?, storage_field(fields, "destination")?, name(fields, "vo")?))
    }

    /// Its name in a store: there may be one for each link and VO.
    pub fn key(&self) -> String {
        key(&self.source, &self.destination, &self.vo)
    }
}

fn key(source: &Storage, destination: &Storage, vo: &str) -> String {
    format!("{source}|{destination}|{vo}")
}

/// The weight of a VO in a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weight {
    /// Its part, beside those of the others.
    Of(f64),
    /// None: its files fail with EPERM, and [`Weight::NONE_REASON`].
    None,
}

impl Weight {
    /// The reason for files of a VO without a share.
    pub const NONE_REASON: &str = "No share configured for this VO";
}

/// The weight of a VO among those that have files for a link. `shares` are those of the link, by VO. Without any, all are equal; with
/// some, those that are not listed divide the weight of `public` among them.
pub fn weight_of_vo(shares: &BTreeMap<String, u32>, vo: &str, vos: &[&str]) -> Weight {
    if shares.is_empty() {
        return Weight::Of(1.0);
    }
    if let Some(share) = shares.get(vo).filter(|_| vo != PUBLIC) {
        return Weight::Of(f64::from(*share));
    }
    let is_unlisted = |vo: &&&str| !shares.contains_key(**vo) || **vo == PUBLIC;
    let unlisted = vos.iter().filter(is_unlisted).count().max(1);
    match shares.get(PUBLIC) {
        Some(share) => Weight::Of(f64::from(*share) / unlisted as f64),
        None => Weight::None,
    }
}

/// Shares of the activities of a VO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActivityShare {
    /// The VO.
    pub vo: String,
    /// Weights by activity.
    pub share: BTreeMap<String, f64>,
    /// False: as if there were none.
    pub active: bool,
}

impl ActivityShare {
    /// Reads a request that sets them.
    ///
    /// # Errors
    /// 400, in FTS3's words.
    pub fn asked(fields: &Map<String, Value>) -> Result<ActivityShare, Refusal> {
        let vo = name(fields, "vo")?.ok_or_else(|| Refusal::bad("Missing VO"))?;
        let form = || {
            Refusal::bad(
                "share is expected to be a single JSON object with activity names and respective weights",
            )
        };
        let mut share = BTreeMap::new();
        match fields.get("share") {
            Some(Value::Object(weights)) => add(&mut share, weights)?,
            Some(Value::Array(items)) => {
                for item in items {
                    add(&mut share, item.as_object().ok_or_else(form)?)?;
                }
            }
            None | Some(Value::Null) => {}
            Some(_) => return Err(form()),
        }
        if share.is_empty() {
            return Err(Refusal::bad("Missing share"));
        }
        let active = fields.get("active").filter(|active| !active.is_null());
        let active = active.map_or(Ok(true), |active| switch("active", active))?;
        Ok(ActivityShare { vo, share, active })
    }

    /// The weight of an activity; names are compared in small letters, and one that has none has that of `default`. `None`: neither has.
    pub fn weight(&self, activity: &str) -> Option<f64> {
        let of = |asked: &str| {
            let same = |(name, _): &(&String, &f64)| name.to_lowercase() == asked.to_lowercase();
            self.share.iter().find(same).map(|(_, weight)| *weight)
        };
        of(activity).or_else(|| of(DEFAULT))
    }

    /// The answer to a client that asks for those of a VO.
    pub fn answer(&self) -> Value {
        json!({"share": self.share, "active": self.active})
    }
}

fn add(share: &mut BTreeMap<String, f64>, weights: &Map<String, Value>) -> Result<(), Refusal> {
    for (activity, weight) in weights {
        let weight = weight.as_f64().filter(|weight| weight.is_finite() && *weight >= 0.0);
        let weight = weight.ok_or_else(|| Refusal::bad("Share weight must be a number"))?;
        share.insert(activity.clone(), weight);
    }
    Ok(())
}
