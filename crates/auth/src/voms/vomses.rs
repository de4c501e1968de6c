//! Addresses of VOMS servers: the files `vomses`, in the grid `/etc/vomses` and `~/.voms/vomses`.

use gridlane_core::limits;

use crate::dn::normal;
use crate::refusal::{Cause, Refusal};
use crate::x509::Certificate;

/// A VOMS server, by a line of such a file: `"atlas" "voms.example.org" "15001" "/DC=org/CN=voms.example.org" "atlas"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VomsServer {
    /// The name by which users call it, nearly always that of the VO.
    pub alias: String,
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The subject of its certificate, as it is written there.
    pub dn: String,
    /// The virtual organisation that it speaks for.
    pub vo: String,
}

impl VomsServer {
    /// Reads the lines of one file, and says what is wrong with some of them, which do not count. Empty lines and those that
    /// begin with `#` mean nothing; neither does a sixth word, a version of Globus.
    pub fn read_all(text: &[u8]) -> (Vec<VomsServer>, Vec<String>) {
        let (mut servers, mut warnings) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            if servers.len() + warnings.len() >= limits::VOMSES_SERVERS_MAX {
                warnings
                    .push(format!("what is behind line {number} does not count: there are too many servers"));
                break;
            }
            match read_line(line) {
                Ok(server) => servers.push(server),
                Err(why) => warnings.push(format!("line {number} does not count: {why}")),
            }
        }
        (servers, warnings)
    }

    /// The servers that a user means by `name`: those with that alias, or else those of that VO. Each once, in their order.
    pub fn named<'a>(servers: &'a [VomsServer], name: &str) -> Vec<&'a VomsServer> {
        let mut found: Vec<&VomsServer> = servers.iter().filter(|server| server.alias == name).collect();
        if found.is_empty() {
            found = servers.iter().filter(|server| server.vo == name).collect();
        }
        let mut once: Vec<&VomsServer> = Vec::new();
        for server in found {
            let is_same = |other: &&VomsServer| {
                other.host.eq_ignore_ascii_case(&server.host)
                    && (other.port, &other.vo) == (server.port, &server.vo)
            };
            if !once.iter().any(is_same) {
                once.push(server);
            }
        }
        once
    }

    /// Checks that the certificate of the server that was reached (DER) has the subject that is written here: an
    /// authority vouches for many hosts, and one of them speaks for the VO.
    ///
    /// # Errors
    /// When it has another one, or cannot be read.
    pub fn check_certificate(&self, certificate: &[u8]) -> Result<(), Refusal> {
        let subject = Certificate::from_der(certificate)?.subject().to_string();
        if normal(&subject) == normal(&self.dn) {
            return Ok(());
        }
        let what = format!("its certificate is that of {subject}, and {} is expected", self.dn);
        Err(Refusal::new(Cause::Untrusted, what))
    }
}

/// Five words, in quotes or not.
fn read_line(line: &[u8]) -> Result<VomsServer, &'static str> {
    let mut rest = std::str::from_utf8(line).map_err(|_| "it is not in UTF-8")?;
    let mut word = || {
        let found;
        rest = rest.trim_start();
        (found, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or("a quote is not closed")?,
            None => rest.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((rest, "")),
        };
        match found.trim() {
            "" => Err("it has not five words: alias, host, port, name of the certificate, VO"),
            found => Ok(found.to_owned()),
        }
    };
    let (alias, host, port, dn, vo) = (word()?, word()?, word()?, word()?, word()?);
    let is_name = |name: &str, more: &[u8]| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) || more.contains(&byte))
    };
    if !is_name(&host, b"[:]") {
        return Err("its second word is no host");
    }
    let port = port.parse().ok().filter(|port| *port != 0).ok_or("its third word is no port")?;
    if !dn.starts_with('/') {
        return Err("its fourth word is no name of a certificate");
    }
    if !is_name(&vo, b"") {
        return Err("its fifth word is no name of a VO");
    }
    Ok(VomsServer { alias, host, port, dn, vo })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<VomsServer>, Vec<String>) {
        VomsServer::read_all(text.as_bytes())
    }

    #[test]
    fn lines_as_sites_have_them() {
        let (servers, warnings) = read(
            "# ours\n\n\"atlas\" \"voms1.example.org\" \"15001\" \"/DC=org/CN=voms1.example.org\" \"atlas\" \"24\"\r\n  \
             short voms2.example.org 443 /DC=org/CN=host/voms2.example.org atlas\n",
        );
        assert_eq!(warnings, [""; 0]);
        assert_eq!(servers.len(), 2);
        assert_eq!(
            (servers[0].alias.as_str(), servers[0].port, servers[0].vo.as_str()),
            ("atlas", 15001, "atlas")
        );
        assert_eq!(servers[1].dn, "/DC=org/CN=host/voms2.example.org");
        assert_eq!(servers[1].host, "voms2.example.org");
    }

    #[test]
    fn what_cannot_be_understood_is_said_and_does_not_count() {
        for (line, words) in [
            ("atlas voms.example.org 15001 /CN=x", "five words"),
            ("\"atlas\" \"voms.example.org\" \"15001\" \"/CN=x \"atlas\"", "VO"),
            ("\"atlas", "not closed"),
            ("atlas a/b 15001 /CN=x atlas", "no host"),
            ("atlas a 0 /CN=x atlas", "no port"),
            ("atlas a 70000 /CN=x atlas", "no port"),
            ("atlas a 15001 CN=x atlas", "no name of a certificate"),
            ("atlas a 15001 /CN=x at/las", "no name of a VO"),
        ] {
            let (servers, warnings) = read(&format!("\n{line}\natlas a 1 /CN=x atlas"));
            assert_eq!(servers.len(), 1, "{line}");
            assert!(warnings.len() == 1 && warnings[0].starts_with("line 2 "), "{line}: {warnings:?}");
            assert!(warnings[0].contains(words), "{line}: {warnings:?}");
        }
        let many = "a a 1 /CN=x a\n".repeat(limits::VOMSES_SERVERS_MAX + 10);
        let (servers, warnings) = read(&many);
        assert_eq!((servers.len(), warnings.len()), (limits::VOMSES_SERVERS_MAX, 1));
    }

    #[test]
    fn a_name_is_an_alias_or_else_a_vo_and_each_server_comes_once() {
        let (servers, _) = read(
            "pilots v1 1 /CN=v1 atlas\natlas v2 1 /CN=v2 atlas\natlas V2 1 /CN=v2 atlas\natlas v2 2 /CN=v2 atlas\n",
        );
        let hosts = |name: &str| {
            let found = VomsServer::named(&servers, name).into_iter();
            found.map(|server| format!("{}:{}", server.host, server.port)).collect::<Vec<_>>()
        };
        assert_eq!(hosts("pilots"), ["v1:1"]);
        assert_eq!(hosts("atlas"), ["v2:1", "v2:2"]);
        assert_eq!(hosts("cms"), [""; 0]);
        let (servers, _) = read("one v1 1 /CN=v1 atlas\ntwo v2 1 /CN=v2 atlas\n");
        assert_eq!(VomsServer::named(&servers, "atlas").len(), 2);
    }
}
