//! Which proxy a URL is fetched through: the environment's variables, read by curl's rules.
//!
//! `http_proxy` (in lower case only: a CGI program finds a client's `Proxy:` header in `HTTP_PROXY`),
//! `https_proxy` and `HTTPS_PROXY`, `all_proxy` and `ALL_PROXY` for what has none of its own; `no_proxy`
//! and `NO_PROXY` name hosts that are reached directly. The lower case one counts when both are set. An
//! empty variable is as good as none. Loopback is no exception.

use std::fmt;
use std::net::IpAddr;

use gridlane_core::{Error, ErrorKind, Fault, Result, Scheme, Url};
use percent_encoding::percent_decode_str;

/// Port of a proxy whose URL names none, as in curl.
const PORT: u16 = 1080;
/// The same for `https://`.
const PORT_TLS: u16 = 443;

/// Proxies as the environment names them. The default is none at all.
#[derive(Clone, Default)]
pub struct Proxies {
    http: Option<Setting>,
    https: Option<Setting>,
    direct: Vec<Exception>,
}

/// A variable and its value, which is looked at when it is needed: a mistake in it hurts no other one.
#[derive(Clone)]
struct Setting {
    variable: &'static str,
    value: String,
}

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyKind {
    /// HTTP in clear.
    Http,
    /// HTTP over TLS.
    Https,
    /// SOCKS 5; the proxy looks names up if `resolves` says so (`socks5h`).
    Socks5 {
        /// True if the proxy is given names, and not addresses.
        resolves: bool,
    },
}

/// A proxy, secrets included.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Proxy {
    /// Its protocol.
    pub kind: ProxyKind,
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// User and password, as bytes.
    pub credentials: Option<(Vec<u8>, Vec<u8>)>,
}

/// Hosts that are reached directly.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Exception {
    Everything,
    /// A domain and all below it, in lower case.
    Domain(String, Option<u16>),
    /// Addresses whose first bits are these.
    Network(IpAddr, u8, Option<u16>),
}

impl Proxies {
    /// Reads the variables; `variable` gives the value of one.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Proxies {
        let first = |names: &[&'static str]| {
            names.iter().find_map(|name| {
                let value = variable(name).filter(|value| !value.is_empty())?;
                Some(Setting { variable: name, value })
            })
        };
        let direct = first(&["no_proxy", "NO_PROXY"]).map(|setting| exceptions(&setting.value));
        Proxies {
            http: first(&["http_proxy", "all_proxy", "ALL_PROXY"]),
            https: first(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            direct: direct.unwrap_or_default(),
        }
    }

    /// The proxy for `url`; `None`: it is reached directly. A variable that cannot be used is an error.
    pub fn of(&self, url: &Url) -> Result<Option<Proxy>> {
        let setting = match url.scheme() {
            Scheme::Http => &self.http,
            Scheme::Https => &self.https,
            // XRootD's tools know no proxies of this kind, and few of those let its port through.
            Scheme::Root | Scheme::Roots | Scheme::File => &None,
        };
        match setting {
            Some(_) if self.is_direct(url.host(), url.port()) => Ok(None),
            Some(setting) => setting.proxy().map(Some),
            None => Ok(None),
        }
    }

    fn is_direct(&self, host: &str, port: u16) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let address = host.split('%').next().and_then(|host| host.parse::<IpAddr>().ok());
        self.direct.iter().any(|exception| match exception {
            Exception::Everything => true,
            Exception::Domain(domain, only) => {
                let is_below = host.strip_suffix(domain.as_str()).is_some_and(|front| front.ends_with('.'));
                address.is_none() && only.is_none_or(|only| only == port) && (host == *domain || is_below)
            }
            Exception::Network(network, bits, only) => {
                let is_in = address.is_some_and(|address| is_within(address, *network, *bits));
                is_in && only.is_none_or(|only| only == port)
            }
        })
    }
}

impl Setting {
    fn proxy(&self) -> Result<Proxy> {
        let wrong = |kind, what: String| {
            Error::new(kind, format!("the proxy in {} {what}", self.variable))
                .fault(Fault::Caller)
                .hint("it looks like http://user:password@host:port")
        };
        let (scheme, rest) = self.value.split_once("://").unwrap_or(("http", &self.value));
        let kind = match scheme.to_ascii_lowercase().as_str() {
            "http" => ProxyKind::Http,
            "https" => ProxyKind::Https,
            "socks5" => ProxyKind::Socks5 { resolves: false },
            "socks5h" => ProxyKind::Socks5 { resolves: true },
            other => {
                let what = format!("speaks {other:?}; known are http, https, socks5 and socks5h");
                return Err(wrong(ErrorKind::Unsupported, what));
            }
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((pair, place)) => {
                let (user, password) = pair.split_once(':').unwrap_or((pair, ""));
                let decoded = |text| percent_decode_str(text).collect::<Vec<u8>>();
                (Some((decoded(user), decoded(password))), place)
            }
            None => (None, authority),
        };
        let (host, port) = split_port(place);
        let port = match port {
            None if kind == ProxyKind::Https => Some(PORT_TLS),
            None => Some(PORT),
            Some(text) => text.parse().ok().filter(|port| *port > 0),
        };
        match port {
            Some(port) if is_host(host) => Ok(Proxy { kind, host: host.to_owned(), port, credentials }),
            // Nothing of it is shown: a password may stand anywhere in what cannot be read.
            _ => Err(wrong(ErrorKind::Usage, "cannot be read".to_owned())),
        }
    }
}

/// For messages: without user and password.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            ProxyKind::Http => "http",
            ProxyKind::Https => "https",
            ProxyKind::Socks5 { resolves: false } => "socks5",
            ProxyKind::Socks5 { resolves: true } => "socks5h",
        };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn is_host(text: &str) -> bool {
    let is_name = text.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_'));
    !text.is_empty() && (is_name || text.split('%').next().is_some_and(|v6| v6.parse::<IpAddr>().is_ok()))
}

/// `host:port`, `[v6]:port`, or either without a port. An address of version 6 needs no brackets when it
/// stands alone.
fn split_port(text: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        return (host, (!rest.is_empty()).then(|| rest.strip_prefix(':').unwrap_or(rest)));
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => (host, Some(port)),
        _ => (text, None),
    }
}

/// Reads `no_proxy`. Beyond curl, whose rules these are otherwise: an entry may have a port, `*` may stand
/// among others, and `/0` means all addresses of its version.
fn exceptions(text: &str) -> Vec<Exception> {
    text.split([',', ' ', '\t']).filter_map(exception).collect()
}

fn exception(text: &str) -> Option<Exception> {
    if text == "*" {
        return Some(Exception::Everything);
    }
    let (host, port) = match split_port(text) {
        (host, Some(port)) => (host, Some(port.parse().ok()?)),
        (host, None) => (host, None),
    };
    let (place, bits) = match host.split_once('/') {
        Some((place, bits)) => (place, Some(bits.parse().ok()?)),
        None => (host, None),
    };
    if let Ok(address) = place.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(all);
        return (bits <= all).then_some(Exception::Network(address, bits, port));
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let name = name.strip_prefix('.').unwrap_or(name);
    (!name.is_empty()).then(|| Exception::Domain(name.to_ascii_lowercase(), port))
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let differ = address.to_bits() ^ network.to_bits();
            differ.checked_shr(32 - u32::from(bits.min(32))).unwrap_or(0) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let differ = address.to_bits() ^ network.to_bits();
            differ.checked_shr(128 - u32::from(bits.min(128))).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        Proxies::from_environment(|wanted| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn of(variables: &[(&str, &str)], url: &str) -> Option<String> {
        let proxy = proxies(variables).of(&Url::parse_absolute(url).unwrap()).unwrap();
        proxy.map(|proxy| proxy.to_string())
    }

    #[test]
    fn which_variable_counts() {
        let all = [
            ("http_proxy", "http://a:1"),
            ("HTTP_PROXY", "http://never:1"),
            ("https_proxy", "b:2"),
            ("HTTPS_PROXY", "c"),
            ("all_proxy", "socks5h://d"),
        ];
        assert_eq!(of(&all, "http://x/").as_deref(), Some("http://a:1"));
        assert_eq!(of(&all, "https://x/").as_deref(), Some("http://b:2"));
        assert_eq!(of(&all[1..], "http://x/").as_deref(), Some("socks5h://d:1080"));
        assert_eq!(of(&all[1..2], "http://x/"), None, "a header of a CGI program's client is no setting");
        assert_eq!(of(&all[3..], "https://x/").as_deref(), Some("http://c:1080"));
        assert_eq!(of(&[("https_proxy", ""), ("ALL_PROXY", "https://e")], "https://x/").as_deref(), {
            Some("https://e:443")
        });
        assert_eq!(of(&all, "file:///x"), None);
        assert_eq!(of(&[("http_proxy", "http://[::1]:3128/")], "http://127.0.0.1/").as_deref(), {
            Some("http://[::1]:3128")
        });
    }

    #[test]
    fn who_is_reached_directly() {
        let direct = |list: &str, url: &str| {
            of(&[("http_proxy", "p"), ("https_proxy", "p"), ("no_proxy", list)], url).is_none()
        };
        let yes = [
            ("*", "http://x/"),
            ("example.org", "http://example.org/"),
            ("example.org", "http://www.EXAMPLE.org/"),
            (".example.org", "http://example.org/"),
            ("a, .example.org.", "https://www.example.org./"),
            ("a b\tc,,d", "http://d/"),
            ("192.0.2.7", "http://192.0.2.7/"),
            ("192.0.0.0/16", "http://192.0.2.7/"),
            ("0.0.0.0/0", "http://192.0.2.7/"),
            ("2001:db8::/32", "http://[2001:db8:1::5]/"),
            ("[::1]", "http://[::1]/"),
            ("[::1]:8080", "http://[::1]:8080/"),
            ("x:8080", "http://x:8080/"),
            ("localhost", "http://localhost:1094/"),
        ];
        for (list, url) in yes {
            assert!(direct(list, url), "{list} {url}");
        }
        let no = [
            ("", "http://x/"),
            ("example.org", "http://badexample.org/"),
            ("www.example.org", "http://example.org/"),
            ("192.0.0.0/16", "http://192.1.2.7/"),
            ("192.0.0.0/99", "http://192.0.2.7/"),
            ("2.7", "http://192.0.2.7/"),
            ("2001:db8::/33", "http://[2001:db8:8000::5]/"),
            ("::ffff:192.0.2.7", "http://192.0.2.7/"),
            ("x:8080", "http://x/"),
            ("localhost", "http://127.0.0.1/"),
            ("..", "http://x/"),
            (".", "http://x/"),
        ];
        for (list, url) in no {
            assert!(!direct(list, url), "{list} {url}");
        }
        let upper = [("http_proxy", "p"), ("NO_PROXY", "*")];
        assert_eq!(of(&upper, "http://x/"), None);
    }

    #[test]
    fn secrets_are_read_and_not_shown() {
        let of =
            |value: &str| proxies(&[("http_proxy", value)]).of(&Url::parse_absolute("http://x/").unwrap());
        let proxy = of("http://ada:l%40ve:ly@p:3128").unwrap().unwrap();
        assert_eq!(proxy.credentials, Some((b"ada".to_vec(), b"l@ve:ly".to_vec())));
        assert!(!format!("{proxy} {proxy:?}").contains("ada"));
        for bad in ["http://ada:secret@", "http://ada:secret@p:x", "ada:secret@p q", "http://p:0", "[::1"] {
            let error = of(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{bad}");
            assert!(!error.to_string().contains("secret") && error.message().contains("http_proxy"));
        }
        for unknown in ["socks4://p", "socks://p", "ftp://p"] {
            assert_eq!(of(unknown).unwrap_err().kind(), ErrorKind::Unsupported);
        }
    }
}
