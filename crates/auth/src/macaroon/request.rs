//! What clients ask for when they ask for a macaroon: the JSON of dCache and XRootD, and XRootD's form of OAuth.

use gridlane_core::{Network, limits};
use gridlane_dav::ResourcePath;
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::caveat::{Caveat, parse_path};
use super::{activity, is_below};
use crate::operation::{Grants, Operation};
use crate::refusal::{Cause, Refusal};

/// The request of a client. What it does not say is as much as it may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The rights that are asked for.
    pub activities: Option<Grants>,
    /// Where: the path that was asked, or one below it.
    pub path: ResourcePath,
    /// For how long, in seconds.
    pub validity_s: Option<u64>,
    /// Until when, in seconds since 1970.
    pub before_s: Option<i64>,
    /// From where: all of these.
    pub networks: Vec<Vec<Network>>,
}

#[derive(Deserialize)]
struct Json {
    #[serde(default)]
    caveats: Vec<String>,
    #[serde(default)]
    validity: Option<String>,
}

impl Request {
    /// All that there is at a path.
    pub fn at(path: &ResourcePath) -> Request {
        Request {
            activities: None,
            path: path.clone(),
            validity_s: None,
            before_s: None,
            networks: Vec::new(),
        }
    }

    /// Reads `{"caveats": ["activity:DOWNLOAD,LIST", "path:sub"], "validity": "PT30M"}`, sent to `path`. Both members may be
    /// missing, as with dCache. Caveats may be about activities, a path, an end and networks; several leave what all of them
    /// allow. A path without a slash in front counts from `path`, others must be below it.
    pub fn parse_json(body: &[u8], path: &ResourcePath) -> Result<Request, Refusal> {
        check_length(body)?;
        let json: Json = serde_json::from_slice(body).map_err(|cause| {
            malformed(format!("the request for a macaroon is not what it should be: {cause}"))
        })?;
        // A list would be taken for the members in their order.
        if !body.trim_ascii_start().starts_with(b"{") {
            return Err(malformed("the request for a macaroon is no JSON object"));
        }
        let mut request = Request::at(path);
        if json.caveats.len() > limits::MACAROON_CAVEATS_MAX {
            return Err(malformed("the request for a macaroon has too many caveats"));
        }
        request.validity_s = json.validity.as_deref().map(parse_duration_s).transpose()?;
        for caveat in &json.caveats {
            request.add(caveat)?;
        }
        Ok(request)
    }

    /// Reads `grant_type=client_credentials&expire_in=3600&scope=DOWNLOAD:/path LIST:/path`. All scopes are about one path.
    /// gfal2 says `scopes`.
    pub fn parse_form(body: &[u8]) -> Result<Request, Refusal> {
        check_length(body)?;
        let text = std::str::from_utf8(body).map_err(|_| malformed("the form is not text"))?;
        let (mut is_known_grant, mut scope, mut validity_s) = (false, None, None);
        for pair in text.trim().split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| malformed("a field of the form has no value"))?;
            let value = value.replace('+', " ");
            let value = percent_decode_str(&value)
                .decode_utf8()
                .map_err(|_| malformed(format!("{key} is not text")))?
                .into_owned();
            match key {
                "grant_type" if value == "client_credentials" => is_known_grant = true,
                "grant_type" => return Err(malformed("grant_type is not client_credentials")),
                "expire_in" => {
                    let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
                    validity_s =
                        Some(seconds.ok_or_else(|| malformed("expire_in is no number of seconds above 0"))?);
                }
                "scope" | "scopes" if scope.is_none() => scope = Some(value),
                "scope" | "scopes" => return Err(malformed("the form has two scopes")),
                // OAuth says to ignore what is not known (RFC 6749, 3.2).
                _ => {}
            }
        }
        if !is_known_grant {
            return Err(malformed("the form does not say grant_type=client_credentials"));
        }
        let scope = scope.ok_or_else(|| malformed("the form has no scope"))?;
        let mut place = None;
        let mut activities = Grants::NONE;
        for part in scope.split_ascii_whitespace() {
            let (word, path) = part
                .split_once(':')
                .ok_or_else(|| malformed(format!("the scope {part:?} is not ACTIVITY:/path")))?;
            let path = if path.is_empty() { "/" } else { path };
            if *place.get_or_insert(path) != path {
                return Err(malformed("the scopes are about several paths, and a macaroon is about one"));
            }
            activities = activities.with(known_activities(word)?);
        }
        let place = place.ok_or_else(|| malformed("the form has no scope"))?;
        let path =
            parse_path(place.as_bytes()).map_err(|why| malformed(format!("the path {place:?} {why}")))?;
        Ok(Request { activities: Some(activities), validity_s, ..Request::at(&path) })
    }

    fn add(&mut self, text: &str) -> Result<(), Refusal> {
        if let Some(words) = text.strip_prefix("activity:") {
            let asked = known_activities(words)?;
            self.activities = Some(self.activities.map_or(asked, |before| before.and(asked)));
            return Ok(());
        }
        if let Some(place) = text.strip_prefix("path:") {
            let whole = match place.starts_with('/') {
                true => place.as_bytes().to_vec(),
                false => {
                    let mut whole = Caveat::Path(self.path.clone()).to_bytes().split_off("path:".len());
                    if !self.path.is_root() {
                        whole.push(b'/');
                    }
                    whole.extend_from_slice(place.as_bytes());
                    whole
                }
            };
            let path = parse_path(&whole).map_err(|why| malformed(format!("the path {place:?} {why}")))?;
            if !is_below(&path, &self.path) {
                let what = format!("the path {place:?} is not below the one that was asked, {}", self.path);
                return Err(malformed(what));
            }
            self.path = path;
            return Ok(());
        }
        match Caveat::parse(text.as_bytes()) {
            Ok(Caveat::Before(end_s)) => {
                self.before_s = Some(self.before_s.map_or(end_s, |before_s| before_s.min(end_s)));
            }
            Ok(Caveat::Ip(networks)) => self.networks.push(networks),
            _ => {
                let kinds = "a request may have activity:, path:, before: and ip:, and they have to be right";
                return Err(malformed(format!("the caveat {text:?} is refused: {kinds}")));
            }
        }
        Ok(())
    }

    /// For how long it is asked from a moment on, in seconds; `None` when it does not say.
    pub fn asked_s(&self, now_s: i64) -> Option<u64> {
        let until = self.before_s.map(|end_s| u64::try_from(end_s.saturating_sub(now_s)).unwrap_or(0));
        match (self.validity_s, until) {
            (Some(validity_s), Some(until)) => Some(validity_s.min(until)),
            (validity_s, until) => validity_s.or(until),
        }
    }

    /// The rest of it for a client that may do this there. `None` for nothing, also for one that may do none of what it
    /// asked for but look: to look is part of everything else.
    pub fn granted(&self, rights: Grants) -> Option<Grants> {
        const STAT: Grants = Grants::of(Operation::Stat);
        if rights.is_empty() {
            return None;
        }
        let rights = rights.with(STAT);
        let asked = self.activities.unwrap_or(rights);
        let left = rights.and(asked);
        (!left.is_empty() && (left != STAT || asked == STAT)).then_some(left)
    }
}

/// A duration of ISO 8601 in seconds: `PT30M`, `P1DT12H`, `P2W`. Without years and months, whose length depends on when.
pub fn parse_duration_s(text: &str) -> Result<u64, Refusal> {
    let wrong = || malformed(format!("{text:?} is no duration such as PT30M, PT2H or P1D"));
    let (days, time) = match text.strip_prefix('P').ok_or_else(wrong)?.split_once('T') {
        Some((days, time)) if !time.is_empty() => (days, time),
        Some(_) => return Err(wrong()),
        None => (&text[1..], ""),
    };
    let days_s = sum_s(days, &[('W', 7 * 86_400), ('D', 86_400)]).ok_or_else(wrong)?;
    let time_s = sum_s(time, &[('H', 3600), ('M', 60), ('S', 1)]).ok_or_else(wrong)?;
    days_s.checked_add(time_s).filter(|seconds| *seconds > 0).ok_or_else(wrong)
}

/// Numbers with units behind them, each unit once and in this order, together.
fn sum_s(text: &str, units: &[(char, u64)]) -> Option<u64> {
    let mut rest = text;
    let mut total_s = 0_u64;
    for (unit, seconds) in units {
        let Some((number, behind)) = rest.split_once(*unit) else { continue };
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        total_s = number.parse::<u64>().ok()?.checked_mul(*seconds)?.checked_add(total_s)?;
        rest = behind;
    }
    rest.is_empty().then_some(total_s)
}

/// The rights that words grant, of which each has to be known: a client that asks for another would be surprised later.
fn known_activities(words: &str) -> Result<Grants, Refusal> {
    match words.split(',').find(|word| !activity::is_known(word)) {
        Some(word) => Err(malformed(format!("there is no activity {word:?}"))),
        None => Ok(activity::grants_of(words)),
    }
}

fn check_length(body: &[u8]) -> Result<(), Refusal> {
    let max = limits::MACAROON_REQUEST_BYTES_MAX;
    match body.len() {
        length if length > max => {
            Err(malformed(format!("the request for a macaroon has more than {max} bytes")))
        }
        _ => Ok(()),
    }
}

fn malformed(what: impl Into<String>) -> Refusal {
    Refusal::new(Cause::Malformed, what)
}
