//! Sites and their endpoints, as a person lists them: pure.
//!
//! ```text
//! # site, zone, and one endpoint or several
//! site=Lyon zone=fr davs://se.lyon.example/vo/ root://xrd.lyon.example//vo/
//! https://se.bonn.example:8443/vo/      zone=de
//! ```
//!
//! The URLs of a line are of one site, and so are those of all lines with the same `site=`.

use std::collections::HashMap;
use std::fmt;

use gridlane_core::limits::{PROBE_ENDPOINTS_MAX, PROBE_SITE_NAME_BYTES_MAX};
use gridlane_core::text::is_unprintable;
use gridlane_core::url::encode_name;
use gridlane_core::{Error, ErrorKind, Fault, Result, Scheme, Url};

/// The protocol of an endpoint, spoken here or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// One that is spoken here.
    Spoken(Scheme),
    /// Another one (`gsiftp`), by the scheme of its URLs.
    Other(String),
}

impl Protocol {
    /// The protocol of URLs with this scheme, by any of its names; `None`: that is no scheme, or that of local files.
    pub fn named(scheme: &str) -> Option<Protocol> {
        let name = scheme.to_ascii_lowercase();
        let is_scheme = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        Some(match name.as_str() {
            "http" | "dav" => Protocol::Spoken(Scheme::Http),
            "https" | "davs" => Protocol::Spoken(Scheme::Https),
            "root" | "xroot" => Protocol::Spoken(Scheme::Root),
            "roots" | "xroots" => Protocol::Spoken(Scheme::Roots),
            "file" => return None,
            _ if !is_scheme => return None,
            _ => Protocol::Other(name),
        })
    }

    /// The scheme of its URLs.
    pub fn name(&self) -> &str {
        match self {
            Protocol::Spoken(scheme) => scheme.name(),
            Protocol::Other(name) => name,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A protocol that every site is to be tried over, and its port at sites that state none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wished {
    /// The protocol.
    pub protocol: Protocol,
    /// The port; `None`: the protocol's own.
    pub port: Option<u16>,
}

impl Wished {
    /// Reads `https`, or `root:1095`.
    pub fn parse(text: &str) -> Result<Wished> {
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        };
        let protocol = Protocol::named(name);
        let port = port.map(str::parse).transpose().ok();
        match (protocol, port) {
            (Some(protocol), Some(port)) => Ok(Wished { protocol, port }),
            _ => {
                Err(usage(format!("{text:?} is no protocol")).hint("write https, or root:1095 with its port"))
            }
        }
    }
}

/// The place that a site offers over one protocol: a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The protocol.
    pub protocol: Protocol,
    /// Its URL, of a protocol that is spoken here.
    pub url: Option<Url>,
    /// The URL for messages, without secrets.
    pub shown: String,
    /// The URL with which other protocols' are made: host and path of this one.
    like: Option<Url>,
}

impl Endpoint {
    fn of(url: Url) -> Endpoint {
        let (protocol, shown) = (Protocol::Spoken(url.scheme()), url.to_string());
        Endpoint { protocol, like: Some(url.clone()), url: Some(url), shown }
    }

    /// Reads a URL of any protocol.
    fn parse(text: &str) -> Result<Endpoint> {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        match Protocol::named(scheme) {
            Some(Protocol::Spoken(_)) => Url::parse_absolute(text).map(Endpoint::of),
            Some(Protocol::Other(name)) => {
                // Host and path are written as in https, and a password in it is left out as there.
                let like = Url::parse_absolute(&format!("https://{rest}"))?.without_credentials();
                let shown = like.to_string().replacen("https", &name, 1);
                Ok(Endpoint { protocol: Protocol::Other(name), url: None, shown, like: Some(like) })
            }
            None => Err(usage("an endpoint is a directory of a server, named by its URL".to_owned())),
        }
    }

    /// The endpoint of another protocol at the same host, with the same path. Nothing that is secret goes along.
    fn over(&self, wished: &Wished) -> Result<Endpoint> {
        let Wished { protocol, port } = wished;
        let like = self.like.as_ref().ok_or_else(|| usage("there is no URL to go by".to_owned()))?;
        let mut authority = match like.host() {
            host if host.contains(':') => match like.zone() {
                Some(zone) => format!("[{host}%25{zone}]"),
                None => format!("[{host}]"),
            },
            host => host.to_owned(),
        };
        if let Some(port) = port {
            authority.push_str(&format!(":{port}"));
        }
        let path = like.wire_path();
        let names = || path.split(|byte| *byte == b'/').map(encode_name).collect::<Vec<_>>().join("/");
        match protocol {
            Protocol::Spoken(scheme) if scheme.is_root() => {
                Url::of_root(*scheme, &authority, &path, None).map(Endpoint::of)
            }
            Protocol::Spoken(scheme) => {
                Url::parse_absolute(&format!("{}://{authority}{}", scheme.name(), names())).map(Endpoint::of)
            }
            Protocol::Other(name) => Endpoint::parse(&format!("{name}://{authority}{}", names())),
        }
    }

    /// The host of its URL.
    pub fn host(&self) -> Option<&str> {
        self.like.as_ref().map(Url::host)
    }
}

/// The endpoints that are one storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its name: the one that was given, or that of its host.
    pub name: String,
    /// The zone that it was said to be in.
    pub zone: Option<String>,
    /// Its endpoints, in the order in which they were named.
    pub endpoints: Vec<Endpoint>,
}

/// Sites that are read line by line.
#[derive(Clone, Debug, Default)]
pub struct SiteList {
    sites: Vec<Site>,
    /// Of each site: a name was given.
    named: Vec<bool>,
    endpoints: usize,
}

impl SiteList {
    /// Takes a line: URLs, `site=NAME` and `zone=NAME` in any order, and a comment behind `#`. An error says what is wrong
    /// with it.
    pub fn add(&mut self, line: &str) -> Result<()> {
        let (mut name, mut zone, mut endpoints) = (None, None, Vec::new());
        for word in line.split_whitespace().take_while(|word| !word.starts_with('#')) {
            let given = |prefix: &str| word.strip_prefix(prefix).map(str::to_owned);
            if let Some(given) = given("site=") {
                name = Some(judged(given)?);
            } else if let Some(given) = given("zone=") {
                zone = Some(judged(given)?);
            } else if word.contains("://") {
                endpoints.push(Endpoint::parse(word)?);
            } else {
                // What was to be a URL, or a part of one, may have a secret in it.
                let shown = match word.contains(['@', '=', '?']) {
                    true => "a word".to_owned(),
                    false => format!("{word:?}"),
                };
                return Err(usage(format!("{shown} is no URL, and neither site=NAME nor zone=NAME")));
            }
        }
        if endpoints.is_empty() {
            return match name.is_none() && zone.is_none() {
                true => Ok(()),
                false => Err(usage("there is no URL".to_owned())),
            };
        }
        let at = match &name {
            Some(name) => (0..self.sites.len()).find(|at| self.named[*at] && self.sites[*at].name == *name),
            None => None,
        };
        let at = at.unwrap_or_else(|| {
            let is_named = name.is_some();
            let name = name.unwrap_or_else(|| default_name(&endpoints[0]));
            self.sites.push(Site { name, zone: None, endpoints: Vec::new() });
            self.named.push(is_named);
            self.sites.len() - 1
        });
        let site = &mut self.sites[at];
        if let (Some(zone), Some(other)) = (&zone, &site.zone)
            && zone != other
        {
            return Err(usage(format!("{} is in the zone {other:?} already", site.name)));
        }
        site.zone = site.zone.take().or(zone);
        for endpoint in endpoints {
            if !site.endpoints.contains(&endpoint) {
                site.endpoints.push(endpoint);
                self.endpoints += 1;
            }
        }
        if self.endpoints > PROBE_ENDPOINTS_MAX {
            return Err(usage(format!("there are more than {PROBE_ENDPOINTS_MAX} endpoints")));
        }
        Ok(())
    }

    /// The sites with an endpoint over each protocol that is `wished`: those that were named, and where there is none,
    /// one at the host and path of the first. Others are left out. With no wish, the endpoints that were named.
    pub fn over(self, wished: &[Wished]) -> Result<Vec<Site>> {
        let SiteList { mut sites, named, .. } = self;
        // Two directories of one server that have no names of their own; perhaps over two protocols.
        for longer in [without_scheme, str::to_string as fn(&str) -> String] {
            let mut counts = HashMap::<String, usize>::new();
            sites.iter().for_each(|site| *counts.entry(site.name.clone()).or_default() += 1);
            for (site, named) in sites.iter_mut().zip(&named) {
                if !named && counts[&site.name] > 1 {
                    site.name = longer(&site.endpoints[0].shown);
                }
            }
        }
        if wished.is_empty() {
            return Ok(sites);
        }
        if sites.len().saturating_mul(wished.len()) > PROBE_ENDPOINTS_MAX {
            return Err(usage(format!("there are more than {PROBE_ENDPOINTS_MAX} endpoints")));
        }
        for site in &mut sites {
            let mut over = Vec::new();
            for wish in wished {
                let mut given =
                    site.endpoints.iter().filter(|found| found.protocol == wish.protocol).cloned().peekable();
                match given.peek() {
                    Some(_) => over.extend(given),
                    None => over.push(site.endpoints[0].over(wish)?),
                }
            }
            site.endpoints = over;
        }
        Ok(sites)
    }
}

/// The host and port, as they stand.
fn default_name(endpoint: &Endpoint) -> String {
    without_scheme(&endpoint.shown).split('/').next().unwrap_or_default().to_owned()
}

fn without_scheme(shown: &str) -> String {
    shown.split_once("://").map_or(shown, |(_, rest)| rest).to_owned()
}

/// A name that can be shown.
fn judged(name: String) -> Result<String> {
    if name.len() > PROBE_SITE_NAME_BYTES_MAX {
        let message = format!("the name of a site or a zone has more than {PROBE_SITE_NAME_BYTES_MAX} bytes");
        return Err(usage(message));
    }
    match name.is_empty() || name.chars().any(is_unprintable) {
        true => Err(usage(format!("{name:?} is no name of a site or a zone"))),
        false => Ok(name),
    }
}

fn usage(message: String) -> Error {
    Error::new(ErrorKind::Usage, message).fault(Fault::Caller)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(lines: &[&str]) -> SiteList {
        let mut list = SiteList::default();
        lines.iter().for_each(|line| list.add(line).unwrap());
        list
    }

    fn wished(texts: &[&str]) -> Vec<Wished> {
        texts.iter().map(|text| Wished::parse(text).unwrap()).collect()
    }

    fn shown(sites: &[Site]) -> Vec<(String, Option<String>, Vec<String>)> {
        let urls = |site: &Site| site.endpoints.iter().map(|endpoint| endpoint.shown.clone()).collect();
        sites.iter().map(|site| (site.name.clone(), site.zone.clone(), urls(site))).collect()
    }

    #[test]
    fn lines_become_sites() {
        let sites = list(&[
            "# sites of the VO",
            "",
            "site=Lyon zone=fr davs://se.lyon.example/vo/ # over two protocols",
            "https://se.bonn.example:8443/vo/  zone=de",
            "root://xrd.lyon.example//vo/ site=Lyon",
            "gsiftp://ada:secret@g.example:2811/vo/?x=y",
            "site=Lyon davs://se.lyon.example/vo/",
        ]);
        let text = |text: &str| text.to_owned();
        let expected = [
            (
                text("Lyon"),
                Some(text("fr")),
                vec![text("https://se.lyon.example/vo/"), text("root://xrd.lyon.example//vo/")],
            ),
            (text("se.bonn.example:8443"), Some(text("de")), vec![text("https://se.bonn.example:8443/vo/")]),
            (text("g.example:2811"), None, vec![text("gsiftp://g.example:2811/vo/?…")]),
        ];
        assert_eq!(shown(&sites.over(&[]).unwrap()), expected);
    }

    #[test]
    fn mistakes_are_told() {
        for (line, word) in [
            ("https//h/", "no URL"),
            ("site=a", "no URL"),
            ("site= https://h/", "no name"),
            ("zone=a\u{202e} https://h/", "no name"),
            ("file:///tmp/", "directory of a server"),
            ("://h", "directory of a server"),
            ("https://", "not a URL"),
        ] {
            let error = SiteList::default().add(line).unwrap_err();
            assert!(error.message().contains(word), "{line}: {error}");
            assert_eq!(error.kind(), ErrorKind::Usage, "{line}");
        }
        // What may be a part of a URL is not shown.
        for word in ["ada:secret@h.example", "authz=secret", "/vo/?secret", "https:/ada:secret@h/"] {
            let error = SiteList::default().add(word).unwrap_err();
            assert!(
                error.message().contains("no URL") && !format!("{error:?}").contains("secret"),
                "{error}"
            );
        }
        for prefix in ["site", "zone"] {
            let line = |len: usize| format!("{prefix}={} https://h/", "n".repeat(len));
            SiteList::default().add(&line(255)).unwrap();
            let error = SiteList::default().add(&line(256)).unwrap_err();
            assert!(error.message().contains("more than 255 bytes"), "{error}");
        }
        let mut list = list(&["site=a zone=x https://h/"]);
        assert!(list.add("site=a zone=y https://h/b").unwrap_err().message().contains("in the zone \"x\""));
        for text in ["", "https:", "root:x", "root:99999", "file", "a b"] {
            assert!(Wished::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_site_is_tried_over_every_protocol_that_is_wished() {
        let sites = list(&[
            "davs://u:p@h.example:8443/a%20b/?authz=secret",
            "site=b root://x.example:1095//d/ https://y.example/d/ http://y.example/d/",
            "https://[fe80::1%25eth0]/d/",
        ]);
        let sites = sites.over(&wished(&["davs", "root", "roots:1099", "gsiftp"])).unwrap();
        let urls: Vec<Vec<String>> = shown(&sites).into_iter().map(|(_, _, urls)| urls).collect();
        assert_eq!(
            urls,
            [
                [
                    "https://h.example:8443/a%20b/?…",
                    "root://h.example//a b/",
                    "roots://h.example:1099//a b/",
                    "gsiftp://h.example/a%20b/"
                ],
                [
                    "https://y.example/d/",
                    "root://x.example:1095//d/",
                    "roots://x.example:1099//d/",
                    "gsiftp://x.example/d/"
                ],
                [
                    "https://[fe80::1]/d/",
                    "root://[fe80::1]//d/",
                    "roots://[fe80::1]:1099//d/",
                    "gsiftp://[fe80::1]/d/"
                ],
            ]
        );
        assert_eq!(sites[2].endpoints[1].url.as_ref().unwrap().zone(), Some("eth0"));
        assert!(
            sites[0]
                .endpoints
                .iter()
                .skip(1)
                .all(|made| made.url.as_ref().is_none_or(|url| !url.has_secrets()))
        );
    }

    #[test]
    fn two_directories_of_one_server_have_different_names() {
        let sites = list(&["https://h/a/", "https://h/b/", "https://g/"]).over(&[]).unwrap();
        let names: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
        assert_eq!(names, ["h/a/", "h/b/", "g"]);
    }

    const SECRET: &str = "s3cr3t";

    /// URLs with a secret where one may be, and without; right ones and wrong ones.
    fn urls() -> impl Strategy<Value = String> {
        let scheme = "(http|https|davs|root|xroots|gsiftp|file|1x|)(://|:/|:)";
        let user = prop_oneof![Just(""), Just("ada:s3cr3t@"), Just("s3cr3t@"), Just(":s3cr3t@")];
        let query =
            prop_oneof![Just(""), Just("?s3cr3t"), Just("?authz=s3cr3t"), Just("?a=b&authz=Bearer%20s3cr3t")];
        let path = "[a-z/:%\\[\\]=]{0,8}";
        (scheme, user, "[a-z:\\[\\]%@]{0,5}", path, query)
            .prop_map(|(scheme, user, host, path, query)| format!("{scheme}{user}{host}/{path}{query}"))
    }

    proptest! {
        /// No line makes it panic.
        #[test]
        fn any_line_is_read_or_refused(line in "(site=|zone=|https://|root://|gsiftp://|[ a-z:/@?#=%\\[\\]]){0,12}") {
            let mut list = SiteList::default();
            if list.add(&line).is_ok() {
                let _ = list.over(&[Wished::parse("root").unwrap()]);
            }
        }

        /// Nothing that is secret in a URL is shown, whether it is taken or refused, by its own protocol or by another one.
        #[test]
        fn nothing_secret_is_shown(
            urls in prop::collection::vec(urls(), 1..4),
            more in "( site=[a-z]{0,2}| zone=[a-z]| [a-z]{1,3}|){0,2}",
            protocol in prop_oneof![Just(""), Just("https"), Just("root:1095"), Just("gsiftp")],
        ) {
            // Another site at the same host has the same name, so that both are called by their whole URLs.
            let mut list = SiteList::default();
            let line = format!("{}{more}", urls.join(" "));
            let added = list.add(&line).and_then(|()| list.add(&urls[0]));
            let wished: Vec<Wished> = Wished::parse(protocol).ok().into_iter().collect();
            let shown = match added.and_then(|()| list.over(&wished)) {
                Ok(sites) => sites.iter().fold(String::new(), |text, site| {
                    let Site { name, zone, endpoints } = site;
                    let urls: Vec<&str> = endpoints.iter().map(|endpoint| endpoint.shown.as_str()).collect();
                    text + &format!("{name} {zone:?} {urls:?}; ")
                }),
                Err(error) => error.worded(|hint| format!("{hint:?}")).to_string(),
            };
            prop_assert!(!shown.contains(SECRET), "{:?}: {}", line, shown);
        }
    }
}
