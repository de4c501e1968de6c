//! Settings of links (fts3-rest 3.5, 9).

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fields::{count, name, small_count, storage_field, switch, unknown};
use crate::{Link, Refusal, Storage};

/// Settings of a link, or of all links from, to or between any storages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRule {
    /// The source, or `*`.
    pub source: Storage,
    /// The destination, or `*`.
    pub destination: Storage,
    /// The name by which it is asked for; no two have the same.
    #[serde(rename = "symbolicname")]
    pub name: String,
    /// Copies at the same time that the optimiser goes down to.
    pub min_active: u32,
    /// Copies at the same time that the optimiser goes up to.
    pub max_active: u32,
    /// FTS3's number for how bold the optimiser is: 0 to 3.
    pub optimizer_mode: Option<u32>,
    /// Bytes of a TCP buffer.
    #[serde(rename = "tcp_buffer_size")]
    pub tcp_buffer_bytes: Option<u64>,
    /// Parallel streams of one copy.
    #[serde(rename = "nostreams")]
    pub streams: Option<u32>,
    /// Nothing that its user has lent is handed to the storages.
    pub no_delegation: bool,
}

impl LinkRule {
    /// The settings that are shipped, for all links: 2 to 130 copies.
    pub fn shipped() -> LinkRule {
        LinkRule {
            source: Storage::from(Storage::ANY),
            destination: Storage::from(Storage::ANY),
            name: "*".to_owned(),
            min_active: 2,
            max_active: 130,
            optimizer_mode: Some(2),
            tcp_buffer_bytes: None,
            streams: None,
            no_delegation: false,
        }
    }

    /// The name of the link that a request changes.
    ///
    /// # Errors
    /// 400: there is none.
    pub fn name_asked(fields: &Map<String, Value>) -> Result<String, Refusal> {
        name(fields, "symbolicname")?.ok_or_else(|| Refusal::bad("Missing symbolicname"))
    }

    /// Reads a request that makes a link's settings, or changes those of `before`, which has the same name.
    ///
    /// # Errors
    /// 400, in FTS3's words.
    pub fn asked(fields: &Map<String, Value>, before: Option<&LinkRule>) -> Result<LinkRule, Refusal> {
        let any = || Storage::from(Storage::ANY);
        let mut rule = before.cloned().unwrap_or_else(|| LinkRule {
            source: any(),
            destination: any(),
            name: String::new(),
            min_active: 2,
            max_active: 2,
            optimizer_mode: None,
            tcp_buffer_bytes: None,
            streams: None,
            no_delegation: false,
        });
        rule.name = LinkRule::name_asked(fields)?;
        let missing = || Refusal::bad("Missing source and/or destination");
        let active = |value| {
            small_count("active", value)
                .map_err(|_| Refusal::bad(format!("Active must be an integer ({value})")))
        };
        for (field, value) in fields {
            match field.as_str() {
                "symbolicname" => {}
                "source" => rule.source = storage_field(fields, field)?.ok_or_else(missing)?,
                "destination" => rule.destination = storage_field(fields, field)?.ok_or_else(missing)?,
                "min_active" => rule.min_active = active(value)?,
                "max_active" => rule.max_active = active(value)?,
                "optimizer_mode" => rule.optimizer_mode = optional(value, |value| small_count(field, value))?,
                "tcp_buffer_size" => rule.tcp_buffer_bytes = optional(value, |value| count(field, value))?,
                "nostreams" => rule.streams = optional(value, |value| small_count(field, value))?,
                "no_delegation" => {
                    rule.no_delegation = optional(value, |value| switch(field, value))?.unwrap_or_default();
                }
                _ => return Err(unknown(field)),
            }
        }
        if rule.min_active > rule.max_active {
            return Err(Refusal::bad("max_active is lower than min_active"));
        }
        Ok(rule)
    }

    /// True if it takes the place of another one: it is for the same storages, or has the same name.
    pub fn replaces(&self, other: &LinkRule) -> bool {
        self.name == other.name || (self.source == other.source && self.destination == other.destination)
    }
}

fn optional<T>(value: &Value, read: impl Fn(&Value) -> Result<T, Refusal>) -> Result<Option<T>, Refusal> {
    if value.is_null() { Ok(None) } else { read(value).map(Some) }
}

/// All settings of links, by storages.
#[derive(Clone, Debug, Default)]
pub struct Links(HashMap<Link, LinkRule>);

impl Links {
    /// Of these; a later one takes the place of an earlier one for the same storages.
    pub fn new(rules: impl IntoIterator<Item = LinkRule>) -> Links {
        let keyed = |rule: LinkRule| {
            (Link { source: rule.source.clone(), destination: rule.destination.clone() }, rule)
        };
        Links(rules.into_iter().map(keyed).collect())
    }

    /// The settings that hold for a link: its own; else those of its source; else those of its destination; else those of all.
    pub fn of(&self, link: &Link) -> Option<&LinkRule> {
        let any = || Storage::from(Storage::ANY);
        let source = || link.source.clone();
        let destination = || link.destination.clone();
        let find = |source, destination| self.0.get(&Link { source, destination });
        self.0
            .get(link)
            .or_else(|| find(source(), any()))
            .or_else(|| find(any(), destination()))
            .or_else(|| find(any(), any()))
    }
}
