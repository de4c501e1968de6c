//! What a server says of its `gsi` in the answer to a login.

use gridlane_auth::{Cause, Refusal};

use crate::exchange::SIGNED_SINCE;

/// The version of a server, its library, and the authority of its certificate: `v:10600,c:ssl,ca:5168735f.0|4339b4bc.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Its version of the exchange.
    pub version: u32,
    /// True if secrets keep their leading zeros.
    pub pads: bool,
    /// Hashes of the authority's name, by which it is found in a directory: `5168735f.0`.
    pub authorities: Vec<String>,
}

impl Parameters {
    /// Reads them. Refused where the server is older than signed exchanges, or has another library than OpenSSL.
    pub fn parse(text: &[u8]) -> Result<Parameters, Refusal> {
        let text = String::from_utf8_lossy(text);
        let value = |name: &str| {
            text.trim_end_matches('\0')
                .split(',')
                .find_map(|part| part.trim().strip_prefix(name)?.strip_prefix(':').map(str::to_owned))
        };
        let version = value("v").and_then(|version| version.parse().ok()).unwrap_or(0);
        if version < SIGNED_SINCE {
            let what = format!(
                "gsi: the server's version {version} does not sign its part of the key exchange, which anybody on the way could \
                 replace (XRootD does since 4.9)"
            );
            return Err(Refusal::new(Cause::Unacceptable, what));
        }
        let libraries = value("c").unwrap_or_default();
        let library = libraries.split('|').find_map(|library| library.strip_prefix("ssl"));
        let Some(library) = library else {
            let what = format!("gsi: the server wants the library {libraries:?}, and here is ssl alone");
            return Err(Refusal::new(Cause::Unacceptable, what));
        };
        let authorities = value("ca").unwrap_or_default();
        Ok(Parameters {
            version,
            pads: library != "nopad",
            authorities: authorities.split('|').filter(|hash| !hash.is_empty()).map(str::to_owned).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read() {
        let read = Parameters::parse(b"v:10600,c:ssl,ca:5168735f.0|4339b4bc.0").unwrap();
        assert_eq!((read.version, read.pads), (10_600, true));
        assert_eq!(read.authorities, ["5168735f.0", "4339b4bc.0"]);
        assert!(!Parameters::parse(b"v:10400,c:sslnopad,ca:x.0\0").unwrap().pads);
        for (bad, why) in [
            (&b"v:10300,c:ssl,ca:x.0"[..], "does not sign"),
            (b"", "does not sign"),
            (b"v:x,c:ssl", "does not sign"),
            (b"v:10600,c:local,ca:x.0", "\"local\""),
        ] {
            let refusal = Parameters::parse(bad).unwrap_err();
            assert!(refusal.message.contains(why), "{refusal}");
        }
    }
}
