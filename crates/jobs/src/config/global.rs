//! Settings of all jobs of a VO, or of all (fts3-rest 3.5, 9).

use std::collections::BTreeMap;

use gridlane_core::limits::JOB_RETRIES_MAX;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fields::{name, small_count, switch, unknown};
use crate::Refusal;

/// The VO that stands for all.
const ANY: &str = "*";

/// Settings of all jobs of a VO. 0 means that nothing is said, and that what holds for all holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Global {
    /// The VO, or `*`.
    pub vo_name: String,
    /// Attempts after the first, for jobs that do not say.
    pub retry: u32,
    /// Hours after which files that wait are cancelled.
    #[serde(rename = "max_time_queue")]
    pub queue_max_hours: u32,
    /// Time for one copy, in seconds.
    #[serde(rename = "global_timeout")]
    pub timeout_s: u32,
    /// Time for each MiB of a copy, in seconds.
    #[serde(rename = "sec_per_mb")]
    pub s_per_mib: u32,
    /// No copy goes through this service.
    pub no_streaming: bool,
    /// Users' names are in messages.
    pub show_user_dn: bool,
}

impl Global {
    /// Reads the VO of a request that changes them.
    ///
    /// # Errors
    /// 400 for what is no name.
    pub fn vo_asked(fields: &Map<String, Value>) -> Result<String, Refusal> {
        Ok(name(fields, "vo_name")?.unwrap_or_else(|| ANY.to_owned()))
    }

    /// The VO of a request that takes them away, which is not all.
    ///
    /// # Errors
    /// 400: there is none.
    pub fn vo_deleted(fields: &Map<String, Value>) -> Result<String, Refusal> {
        let vo = name(fields, "vo_name")?.filter(|vo| vo != ANY);
        vo.ok_or_else(|| Refusal::bad("Missing VO name"))
    }

    /// Reads a request that makes the settings of a VO, or changes those of `before`.
    ///
    /// # Errors
    /// 400, in FTS3's words.
    pub fn asked(fields: &Map<String, Value>, before: Option<&Global>) -> Result<Global, Refusal> {
        let mut global = before.cloned().unwrap_or_default();
        global.vo_name = Global::vo_asked(fields)?;
        for (field, value) in fields {
            match field.as_str() {
                "vo_name" => {}
                "retry" => global.retry = small_count(field, value)?.min(JOB_RETRIES_MAX.unsigned_abs()),
                "max_time_queue" => global.queue_max_hours = small_count(field, value)?,
                "global_timeout" => global.timeout_s = small_count(field, value)?,
                "sec_per_mb" => global.s_per_mib = small_count(field, value)?,
                "no_streaming" => global.no_streaming = switch(field, value)?,
                "show_user_dn" => global.show_user_dn = switch(field, value)?,
                _ => return Err(unknown(field)),
            }
        }
        Ok(global)
    }
}

/// All settings of VOs.
#[derive(Clone, Debug, Default)]
pub struct Globals(BTreeMap<String, Global>);

impl Globals {
    /// Of these; those for all are there even if they say nothing.
    pub fn new(globals: impl IntoIterator<Item = Global>) -> Globals {
        let mut all =
            BTreeMap::from([(ANY.to_owned(), Global { vo_name: ANY.to_owned(), ..Global::default() })]);
        all.extend(globals.into_iter().map(|global| (global.vo_name.clone(), global)));
        Globals(all)
    }

    /// The settings that hold for a VO: what its own do not say, those for all do.
    pub fn of(&self, vo: &str) -> Global {
        let any = self.0.get(ANY).cloned().unwrap_or_default();
        let Some(own) = self.0.get(vo) else { return Global { vo_name: vo.to_owned(), ..any } };
        let said = |own: u32, any: u32| if own > 0 { own } else { any };
        Global {
            vo_name: vo.to_owned(),
            retry: said(own.retry, any.retry),
            queue_max_hours: said(own.queue_max_hours, any.queue_max_hours),
            timeout_s: said(own.timeout_s, any.timeout_s),
            s_per_mib: said(own.s_per_mib, any.s_per_mib),
            no_streaming: own.no_streaming || any.no_streaming,
            show_user_dn: own.show_user_dn || any.show_user_dn,
        }
    }

    /// The answer to a client: by VO.
    pub fn answer(&self) -> Value {
        serde_json::to_value(&self.0).unwrap_or_default()
    }
}
