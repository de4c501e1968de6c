//! Settings of storages (fts3-rest 3.5, 9).

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::fields::{NAME_BYTES_MAX, small_count, storage, unknown};
use crate::{Refusal, Storage, body};

/// Copies at the same time into or out of a storage of which nothing is said.
const ACTIVE_MAX: u32 = 60;

/// Bytes of a MiB, in which FTS3 counts rates.
const MIB: f64 = 1024.0 * 1024.0;

/// Ways of third-party copy that a storage offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TpcSupport {
    /// It pulls and pushes.
    #[default]
    Full,
    /// It pulls.
    Pull,
    /// It pushes.
    Push,
    /// Neither.
    None,
}

/// Settings of a storage, or of all that have none of their own. What is `None` is not said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StorageRule {
    /// Copies to it at the same time.
    pub inbound_max_active: Option<u32>,
    /// Bytes per second to it, in MiB/s.
    #[serde(rename = "inbound_max_throughput")]
    pub inbound_max_mib_per_s: Option<f64>,
    /// Copies from it at the same time.
    pub outbound_max_active: Option<u32>,
    /// Bytes per second from it, in MiB/s.
    #[serde(rename = "outbound_max_throughput")]
    pub outbound_max_mib_per_s: Option<f64>,
    /// FTS3's flag for a protocol of GridFTP, kept for its clients.
    pub udt: Option<u32>,
    /// FTS3's flag for IPv6.
    pub ipv6: Option<u32>,
    /// Words of its operator.
    pub se_metadata: Option<String>,
    /// The name of its site.
    pub site: Option<String>,
    /// FTS3's number of how much is logged.
    pub debug_level: Option<u32>,
    /// Files that were brought from tape stay on disk.
    pub skip_eviction: Option<u32>,
    /// The opposite, as older clients say it.
    pub eviction: Option<u32>,
    /// Ways of third-party copy.
    pub tpc_support: Option<TpcSupport>,
    /// Existing files are replaced while they are on disk only.
    pub overwrite_disk_enabled: Option<u32>,
    /// Where its tape system is asked.
    pub tape_endpoint: Option<String>,
    /// Requests to tape at the same time, by VO and operation (`staging`, `delete`).
    pub operations: BTreeMap<String, BTreeMap<String, u32>>,
}

impl StorageRule {
    /// The settings that are shipped, for all storages: 200 copies in, 200 out.
    pub fn shipped() -> StorageRule {
        StorageRule {
            inbound_max_active: Some(200),
            outbound_max_active: Some(200),
            ..StorageRule::default()
        }
    }

    /// Reads a request that changes settings of storages: each with its settings from then on, which `before` has as they are.
    ///
    /// # Errors
    /// 400, in FTS3's words.
    pub fn asked(
        fields: &Map<String, Value>,
        before: &dyn Fn(&Storage) -> Option<StorageRule>,
    ) -> Result<Vec<(Storage, StorageRule)>, Refusal> {
        let malformed = || Refusal::bad("Malformed configuration");
        let mut changed: Vec<(Storage, StorageRule)> = Vec::new();
        for (text, config) in fields {
            let storage = storage(text).ok_or_else(malformed)?;
            let config = config.as_object().ok_or_else(malformed)?;
            let earlier = changed.iter().position(|(changed, _)| *changed == storage);
            let mut rule = match earlier {
                Some(place) => changed.swap_remove(place).1,
                None => before(&storage).unwrap_or_default(),
            };
            match config.get("se_info") {
                None | Some(Value::Null) => {}
                Some(info) => rule.take_info(info.as_object().ok_or_else(malformed)?)?,
            }
            match config.get("operations") {
                None | Some(Value::Null) => {}
                Some(operations) => rule.take_operations(operations.as_object().ok_or_else(malformed)?)?,
            }
            changed.push((storage, rule));
        }
        Ok(changed)
    }

    fn take_info(&mut self, info: &Map<String, Value>) -> Result<(), Refusal> {
        for (field, value) in info {
            if value.is_null() {
                continue;
            }
            let number = || small_count(field, value).map(Some);
            let text = || match value {
                Value::String(_) => body::text(field, Some(value), NAME_BYTES_MAX),
                _ => Err(Refusal::bad(format!("Field {field} is expected to be str"))),
            };
            match field.as_str() {
                "inbound_max_active" => self.inbound_max_active = number()?,
                "outbound_max_active" => self.outbound_max_active = number()?,
                "inbound_max_throughput" => self.inbound_max_mib_per_s = Some(rate(field, value)?),
                "outbound_max_throughput" => self.outbound_max_mib_per_s = Some(rate(field, value)?),
                "udt" => self.udt = number()?,
                "ipv6" => self.ipv6 = number()?,
                "debug_level" => self.debug_level = number()?,
                "skip_eviction" => self.skip_eviction = number()?,
                "eviction" => self.eviction = number()?,
                "overwrite_disk_enabled" => self.overwrite_disk_enabled = number()?,
                "site" => self.site = text()?,
                "se_metadata" => self.se_metadata = text()?,
                "tape_endpoint" => self.tape_endpoint = text()?,
                "tpc_support" => self.tpc_support = Some(tpc_support(value)?),
                // Clients send back what they were answered.
                "storage" => {}
                _ => return Err(unknown(field)),
            }
        }
        Ok(())
    }

    /// Limits by VO and operation: one of 0 or less is taken away.
    fn take_operations(&mut self, operations: &Map<String, Value>) -> Result<(), Refusal> {
        for (vo, limits) in operations {
            let limits = limits.as_object().ok_or_else(|| Refusal::bad("Malformed configuration"))?;
            let of_vo = self.operations.entry(vo.clone()).or_default();
            for (operation, limit) in limits {
                let limit = body::integer(Some(limit)).ok().flatten();
                let expected = || Refusal::bad("Field concurrent_ops is expected to be int");
                match limit.ok_or_else(expected)? {
                    ..=0 => of_vo.remove(operation),
                    limit => of_vo.insert(operation.clone(), u32::try_from(limit).unwrap_or(u32::MAX)),
                };
            }
        }
        self.operations.retain(|_, limits| !limits.is_empty());
        Ok(())
    }

    /// The answer to a client: `{"se_info": …, "operations": …}`.
    pub fn answer(&self) -> Value {
        let mut info = serde_json::to_value(self).unwrap_or_default();
        let operations = info.as_object_mut().and_then(|info| info.remove("operations"));
        let mut answer = json!({"se_info": info});
        if let Some(operations) = operations.filter(|_| !self.operations.is_empty()) {
            answer["operations"] = operations;
        }
        answer
    }
}

/// A rate in MiB/s.
fn rate(field: &str, value: &Value) -> Result<f64, Refusal> {
    let rate = match value {
        Value::Number(rate) => rate.as_f64(),
        Value::String(rate) => rate.trim().parse().ok(),
        _ => None,
    };
    let is_rate = |rate: &f64| rate.is_finite() && *rate >= 0.0;
    rate.filter(is_rate).ok_or_else(|| Refusal::bad(format!("Field {field} is expected to be Number")))
}

fn tpc_support(value: &Value) -> Result<TpcSupport, Refusal> {
    match value.as_str() {
        Some("FULL") => Ok(TpcSupport::Full),
        Some("PULL") => Ok(TpcSupport::Pull),
        Some("PUSH") => Ok(TpcSupport::Push),
        Some("NONE") => Ok(TpcSupport::None),
        _ => Err(Refusal::bad(
            "Field tpc_support is expected to be one of the following: FULL, PULL, PUSH, NONE",
        )),
    }
}

/// Limits of a storage that hold in the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StorageLimits {
    /// Copies to it at the same time.
    pub inbound: u32,
    /// Copies from it at the same time.
    pub outbound: u32,
    /// Bytes per second to it; `None`: no limit.
    pub inbound_bytes_per_s: Option<f64>,
    /// Bytes per second from it; `None`: no limit.
    pub outbound_bytes_per_s: Option<f64>,
}

/// All settings of storages, by storage.
#[derive(Clone, Debug, Default)]
pub struct Storages(HashMap<Storage, StorageRule>);

impl Storages {
    /// Of these.
    pub fn new(rules: impl IntoIterator<Item = (Storage, StorageRule)>) -> Storages {
        Storages(rules.into_iter().collect())
    }

    /// The settings that hold for a storage: its own, which hide those of all as a whole; else those of all.
    pub fn of(&self, storage: &Storage) -> Option<&StorageRule> {
        self.0.get(storage).or_else(|| self.0.get(&Storage::from(Storage::ANY)))
    }

    /// The limits that hold for a storage: 60 copies where nothing is said. A rate of 0 is none.
    pub fn limits(&self, storage: &Storage) -> StorageLimits {
        let rule = self.of(storage);
        let active = |active: fn(&StorageRule) -> Option<u32>| rule.and_then(active).unwrap_or(ACTIVE_MAX);
        let rate = |rate: fn(&StorageRule) -> Option<f64>| {
            rule.and_then(rate).filter(|rate| *rate > 0.0).map(|mib| mib * MIB)
        };
        StorageLimits {
            inbound: active(|rule| rule.inbound_max_active),
            outbound: active(|rule| rule.outbound_max_active),
            inbound_bytes_per_s: rate(|rule| rule.inbound_max_mib_per_s),
            outbound_bytes_per_s: rate(|rule| rule.outbound_max_mib_per_s),
        }
    }

    /// Requests to tape at the same time for a VO; `None`: no limit is set. Those for all storages hold where it has no settings.
    pub fn operations(&self, storage: &Storage, vo: &str, operation: &str) -> Option<u32> {
        self.of(storage)?.operations.get(vo)?.get(operation).copied()
    }
}
