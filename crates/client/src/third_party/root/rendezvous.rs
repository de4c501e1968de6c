//! The texts of a rendezvous: the key, and how each server is told of the other.
//!
//! Both servers get the same key from here. The destination shows it to the source, which compares it and also who that is:
//! the destination by the name that the source has for its address, and the client that has brought them together by the
//! user, process and host of its login at each of them.

use gridlane_core::{Error, ErrorKind, Fault, Result, Secret, Url};

use crate::random::random;

/// Random bytes of a key: as many as XRootD's clients take.
const KEY_BYTES: usize = 12;
/// The time, in seconds, within which the destination is to come to the source. A destination that has other copies to make
/// first comes late; XRootD takes 7 when nothing is said, and no more than 15.
const TTL_S: u32 = 60;

/// The key of one copy, which allows whoever shows it to read the source for a few seconds.
pub(super) struct Key(Secret);

impl Key {
    /// A new one, which cannot be guessed.
    pub(super) fn new() -> Result<Key> {
        let random = random::<KEY_BYTES>()?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Key(Secret::new(digits)))
    }

    /// The CGI that the source is opened with, for a destination on this host as the source knows it.
    pub(super) fn for_source(&self, host: &str) -> String {
        format!("tpc.key={}&tpc.dst={host}&tpc.stage=copy&tpc.ttl={TTL_S}", self.0.expose())
    }

    /// The CGI that a destination is opened with which has a proxy of the user's: by the key it knows that a copy is meant, and shows it to
    /// nobody. The CGI of the source goes along, with tabs for `&`, but none that has a secret in it: that was meant for the source.
    pub(super) fn for_delegate(&self, terms: &Terms<'_>) -> Result<String> {
        let placed = terms.placed;
        let asked = placed.cgi().filter(|cgi| !cgi.is_empty() && !placed.has_secrets());
        let asked = asked.map(|cgi| format!("&tpc.scgi={}", cgi.replace('&', "\t"))).unwrap_or_default();
        Ok(format!("{}{asked}", self.for_target(terms)?.replace("&tpc.dlgon=0&", "&tpc.dlgon=1&")))
    }

    /// The CGI that the destination is opened with. `first` is the URL that was asked for the source, `placed` the one of the
    /// server that has it; `target` is the destination.
    pub(super) fn for_target(&self, terms: &Terms<'_>) -> Result<String> {
        let Terms { first, placed, target, size_bytes, streams } = *terms;
        Ok(format!(
            "oss.asize={size_bytes}&tpc.dlg={}&tpc.dlgon=0&tpc.key={}&tpc.lfn={}&tpc.spr={}&tpc.src={}{}&\
             tpc.stage=copy&tpc.str={streams}&tpc.tpr={}",
            host_and_port(first),
            self.0.expose(),
            path(placed)?,
            placed.scheme().name(),
            user(placed)?,
            host_and_port(placed),
            target.scheme().name(),
        ))
    }
}

/// Facts that a destination is told.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    /// The source as it was named.
    pub(super) first: &'a Url,
    /// The source at the server that has it.
    pub(super) placed: &'a Url,
    /// The destination.
    pub(super) target: &'a Url,
    /// Bytes of the source.
    pub(super) size_bytes: u64,
    /// Connections for the bytes.
    pub(super) streams: u32,
}

/// Fails if these two cannot be told of each other.
pub(super) fn refuse_unsayable(source: &Url, target: &Url) -> Result<()> {
    path(source)?;
    user(source)?;
    if is_loopback(source) != is_loopback(target) {
        let (near, far) = if is_loopback(source) { (source, target) } else { (target, source) };
        let message = format!("{} is this machine here and another one for {}", near.host(), far.host());
        return Err(unsayable(message, near));
    }
    Ok(())
}

/// The path as a value of CGI, in which everything stands for itself.
fn path(url: &Url) -> Result<String> {
    let is_said = |path: &String| !path.contains(|c: char| c == '&' || c == '?' || c.is_control());
    let message = "a path with such bytes cannot be told to another server";
    String::from_utf8(url.wire_path()).ok().filter(is_said).ok_or_else(|| unsayable(message.to_owned(), url))
}

/// `user@` if the URL has a user.
fn user(url: &Url) -> Result<String> {
    let Some((user, _)) = url.credentials() else { return Ok(String::new()) };
    match user.contains(|c: char| !c.is_ascii_graphic() || "&?=@/%".contains(c)) {
        true => Err(unsayable("a user of such a name cannot be told to another server".to_owned(), url)),
        false => Ok(format!("{user}@")),
    }
}

fn unsayable(message: String, url: &Url) -> Error {
    Error::new(ErrorKind::Unsupported, message).fault(Fault::Caller).endpoint(url)
}

/// The host as others may call it: a zone means something on this machine only.
fn host(url: &Url) -> String {
    if url.host().contains(':') { format!("[{}]", url.host()) } else { url.host().to_owned() }
}

fn host_and_port(url: &Url) -> String {
    format!("{}:{}", host(url), url.port())
}

/// True if the host is whatever machine the name is used on.
fn is_loopback(url: &Url) -> bool {
    match url.host().parse::<std::net::IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => url.host() == "localhost" || url.host().ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse_absolute(text).unwrap()
    }

    #[test]
    fn as_xrdcp_says_it() {
        let key = Key(Secret::new("089145294f4c4f866b01f664".to_owned()));
        let (first, placed) = (url("root://manager//rnd"), url("root://me:pw@[::1]:1095//rnd"));
        let target = url("roots://h.example//rnd_tpc?authz=x");
        let terms =
            Terms { first: &first, placed: &placed, target: &target, size_bytes: 3_150_172, streams: 1 };
        assert_eq!(
            key.for_target(&terms).unwrap(),
            "oss.asize=3150172&tpc.dlg=manager:1094&tpc.dlgon=0&tpc.key=089145294f4c4f866b01f664&tpc.lfn=/rnd&\
             tpc.spr=root&tpc.src=me@[::1]:1095&tpc.stage=copy&tpc.str=1&tpc.tpr=roots"
        );
        assert_eq!(
            key.for_source("h.example"),
            "tpc.key=089145294f4c4f866b01f664&tpc.dst=h.example&tpc.stage=copy&tpc.ttl=60"
        );
    }

    /// The path of a source may look like a setting.
    #[test]
    fn a_delegate_gets_the_settings_of_the_source_without_secrets() {
        let key = Key(Secret::new("0123".to_owned()));
        let of = |text: &str| {
            let (placed, target) = (url(text), url("root://d//g"));
            let (first, size_bytes, streams) = (&placed, 5, 2);
            key.for_delegate(&Terms { first, placed: &placed, target: &target, size_bytes, streams }).unwrap()
        };
        assert_eq!(
            of("root://s//f?a=1&b=2"),
            "oss.asize=5&tpc.dlg=s:1094&tpc.dlgon=1&tpc.key=0123&tpc.lfn=/f&tpc.spr=root&tpc.src=s:1094&\
             tpc.stage=copy&tpc.str=2&tpc.tpr=root&tpc.scgi=a=1\tb=2"
        );
        assert!(!of("root://s//f?authz=Bearer%20abc").contains("abc"));
    }

    #[test]
    fn keys_differ() {
        let keys: Vec<_> = (0..50).map(|_| Key::new().unwrap().0.expose().to_owned()).collect();
        for key in &keys {
            assert!(key.len() == 24 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
            assert_eq!(keys.iter().filter(|other| *other == key).count(), 1);
        }
    }

    #[test]
    fn what_cannot_be_said() {
        let far = url("root://h.example//f");
        for (source, target) in [
            ("root://h.example//a&b", "root://h.example//f"),
            ("root://h.example//a\nb", "root://h.example//f"),
            ("root://a%26b@h.example//f", "root://h.example//f"),
            ("root://localhost//f", "root://h.example//f"),
            ("root://h.example//f", "root://[::ffff:127.0.0.1]//f"),
        ] {
            let refused = refuse_unsayable(&url(source), &url(target)).unwrap_err();
            assert_eq!(
                (refused.kind(), refused.whose_fault()),
                (ErrorKind::Unsupported, Fault::Caller),
                "{source}"
            );
        }
        refuse_unsayable(&url("root://127.0.0.1//a b=c"), &url("root://localhost:1//f&g")).unwrap();
        refuse_unsayable(&far, &far).unwrap();
    }
}
