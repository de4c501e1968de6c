//! Trusted signers of virtual organisations: the directory `vomsdir`, in the grid `/etc/grid-security/vomsdir`.

use std::collections::BTreeMap;

use crate::dn::normal;
use crate::make::pem;
use crate::x509::Certificate;

/// Trusted signers of virtual organisations: for each, the chains of certificates that may sign for it.
#[derive(Clone, Debug, Default)]
pub struct VomsDir {
    vos: BTreeMap<String, Vo>,
    /// Certificates of servers that may sign for any VO.
    certificates: Vec<Vec<Vec<u8>>>,
}

/// The signers of one virtual organisation.
#[derive(Clone, Debug, Default)]
struct Vo {
    /// Chains of names that may sign, by the host that the attribute certificate says it is from.
    chains: BTreeMap<String, Vec<NameChain>>,
    /// Certificates of servers, each with those above it, in DER.
    certificates: Vec<Vec<Vec<u8>>>,
}

/// A chain of certificates by their names, of each the subject and the issuer, the server's first.
type NameChain = Vec<(Name, Name)>;

/// A name of a certificate in the [normal] form.
type Name = String;

/// A kind of signer.
pub(super) enum Signers<'a> {
    /// The holder of a chain of certificates with these names.
    Named(&'a [NameChain]),
    /// The holder of the key of one of these, each a chain in DER.
    Known(Vec<&'a [Vec<u8>]>),
}

impl VomsDir {
    /// Reads the files of such a directory, each with its path in it, and says what is wrong with some of them.
    ///
    /// - `VO/HOST.lsc`: subject and issuer of a server's certificate, a line each, and then of the certificates above it;
    ///   alternatives behind a line `------NEXT CHAIN------`. Empty lines and those that begin with `#` do not count.
    /// - `VO/NAME.pem`, the older way: the certificate itself (and perhaps those above it). It is asked where there is no
    ///   `.lsc` for a host.
    /// - `NAME.pem`: the same for every VO. Its holder may say anything of any user.
    pub fn read(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> (VomsDir, Vec<String>) {
        let mut dir = VomsDir::default();
        let mut warnings = Vec::new();
        for (path, bytes) in files {
            if let Err(trouble) = dir.add(&path, &bytes) {
                warnings.push(format!("{path}: {trouble}"));
            }
        }
        (dir, warnings)
    }

    /// The virtual organisations that a signer may sign for, if it is not for any.
    pub fn vos(&self) -> impl Iterator<Item = &str> {
        self.vos.keys().map(String::as_str)
    }

    /// True if no signer is trusted.
    pub fn is_empty(&self) -> bool {
        self.vos.is_empty() && self.certificates.is_empty()
    }

    /// The signers of a VO with the name of this host.
    pub(super) fn signers(&self, vo: &str, host: &str) -> Signers<'_> {
        let of_vo = self.vos.get(vo);
        if let Some(chains) = of_vo.and_then(|vo| vo.chains.get(&host.to_ascii_lowercase())) {
            return Signers::Named(chains);
        }
        let of_vo = of_vo.map_or(&[][..], |vo| &vo.certificates);
        Signers::Known(of_vo.iter().chain(&self.certificates).map(Vec::as_slice).collect())
    }

    fn add(&mut self, path: &str, bytes: &[u8]) -> Result<(), String> {
        let (vo, file) = match path.split_once('/') {
            Some((vo, file)) => (Some(vo), file),
            None => (None, path),
        };
        if file.contains('/') {
            return Err("is ignored: it is in no directory of a virtual organisation".to_owned());
        }
        if let Some(host) = file.strip_suffix(".lsc") {
            let vo = vo.ok_or("is ignored: it is in no directory of a virtual organisation")?;
            let (chains, trouble) = read_lsc(bytes);
            // Also one without any chain: no signer has that host's name, and a holder of some older certificate does
            // not either.
            let known = self.vos.entry(vo.to_owned()).or_default();
            known.chains.insert(host.to_ascii_lowercase(), chains);
            return trouble.map_or(Ok(()), Err);
        }
        if !file.ends_with(".pem") {
            return Err("is ignored: it is neither .lsc nor .pem".to_owned());
        }
        let chain = pem::certificates(bytes).map_err(|cause| cause.to_string())?;
        for der in &chain {
            Certificate::from_der(der).map_err(|refusal| refusal.to_string())?;
        }
        if chain.is_empty() {
            return Err("no certificate is in it".to_owned());
        }
        match vo {
            Some(vo) => self.vos.entry(vo.to_owned()).or_default().certificates.push(chain),
            None => self.certificates.push(chain),
        }
        Ok(())
    }
}

/// True if certificates with these names, subject and issuer of each, are one of the chains: all of it, and no more.
pub(super) fn is_listed(chains: &[NameChain], names: &[(String, String)]) -> bool {
    let names: NameChain = names.iter().map(|(subject, issuer)| (normal(subject), normal(issuer))).collect();
    !names.is_empty() && chains.contains(&names)
}

/// The chains of an `.lsc`; and what is wrong with it, if something is. A chain that cannot be understood does not count.
fn read_lsc(bytes: &[u8]) -> (Vec<NameChain>, Option<String>) {
    let text = String::from_utf8_lossy(bytes);
    let mut chains = vec![Some(Vec::new())];
    let mut trouble = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with("--") && line.to_ascii_uppercase().contains("NEXT CHAIN") {
            chains.push(Some(Vec::new()));
            continue;
        }
        let name = line.strip_prefix('"').and_then(|line| line.strip_suffix('"')).unwrap_or(line);
        match chains.last_mut() {
            Some(Some(chain)) if name.starts_with('/') => chain.push(normal(name)),
            Some(chain) => {
                // Without this line it would be another chain.
                *chain = None;
                trouble.get_or_insert(format!("line {number} is no name of a certificate: {line:?}"));
            }
            None => {}
        }
    }
    let mut whole = Vec::new();
    for names in chains.into_iter().flatten() {
        if names.is_empty() || names.len() % 2 == 1 {
            trouble.get_or_insert("a chain in it is not of pairs of subject and issuer".to_owned());
            continue;
        }
        whole.push(names.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect());
    }
    (whole, trouble)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "/DC=org/DC=example/CN=voms.example.org";
    const CA: &str = "/DC=org/DC=example/CN=CA";
    const ROOT: &str = "/DC=org/CN=Root";

    fn read(path: &str, text: &str) -> (VomsDir, Vec<String>) {
        VomsDir::read([(path.to_owned(), text.as_bytes().to_vec())])
    }

    fn names(chain: &[(&str, &str)]) -> Vec<(String, String)> {
        chain.iter().map(|(subject, issuer)| ((*subject).to_owned(), (*issuer).to_owned())).collect()
    }

    fn lists(dir: &VomsDir, chain: &[(&str, &str)]) -> bool {
        match dir.signers("atlas", "voms.example.org") {
            Signers::Named(chains) => is_listed(chains, &names(chain)),
            Signers::Known(_) => panic!("no .lsc"),
        }
    }

    #[test]
    fn a_chain_has_to_be_listed_as_a_whole() {
        let text =
            format!("# of us\n\n {HOST}\r\n\"{CA}\"\n------NEXT CHAIN------\n{HOST}\n{CA}\n{CA}\n{ROOT}\n");
        let (dir, warnings) = read("atlas/VOMS.example.org.lsc", &text);
        assert!(warnings.is_empty(), "{warnings:?}");
        assert!(lists(&dir, &[(HOST, CA)]));
        assert!(lists(&dir, &[(HOST, CA), (CA, ROOT)]));
        assert!(!lists(&dir, &[(HOST, ROOT)]));
        assert!(!lists(&dir, &[(CA, ROOT)]));
        assert!(!lists(&dir, &[(HOST, CA), (CA, ROOT), (ROOT, ROOT)]));
        assert!(!lists(&dir, &[]));
        assert_eq!(dir.vos().collect::<Vec<_>>(), ["atlas"]);
        // Only a part of what is listed.
        let (dir, _) = read("atlas/voms.example.org.lsc", &format!("{HOST}\n{CA}\n{CA}\n{ROOT}"));
        assert!(!lists(&dir, &[(HOST, CA)]));
    }

    #[test]
    fn who_may_sign_for_another_host_or_vo_may_not_for_this() {
        let (dir, _) = read("atlas/voms.example.org.lsc", &format!("{HOST}\n{CA}\n"));
        for (vo, host) in [("cms", "voms.example.org"), ("atlas", "voms2.example.org"), ("", "")] {
            assert!(
                matches!(dir.signers(vo, host), Signers::Known(known) if known.is_empty()),
                "{vo} {host}"
            );
        }
        assert!(!dir.is_empty() && VomsDir::default().is_empty());
    }

    #[test]
    fn names_of_the_same_kind_written_otherwise_are_the_same() {
        let text = "/DC=org/CN=h/emailAddress=a@example.org\n/DC=org/USERID=7/CN=CA\n";
        let (dir, _) = read("atlas/voms.example.org.lsc", text);
        assert!(lists(&dir, &[("/DC=org/CN=h/Email=a@example.org", "/DC=org/UID=7/CN=CA")]));
        assert!(!lists(&dir, &[("/DC=org/CN=H/Email=a@example.org", "/DC=org/UID=7/CN=CA")]));
    }

    #[test]
    fn what_cannot_be_understood_is_said_and_does_not_count() {
        for text in ["", "# nothing", HOST, "host\nca", &format!("{HOST}\n{CA}\nmore\n")] {
            let (dir, warnings) = read("atlas/voms.example.org.lsc", text);
            assert_eq!(warnings.len(), 1, "{text:?}: {warnings:?}");
            assert!(warnings[0].starts_with("atlas/voms.example.org.lsc: "), "{warnings:?}");
            assert!(!lists(&dir, &[(HOST, CA)]), "{text:?}");
        }
        // One chain is wrong; the other counts.
        let text = format!("{HOST}\n------ NEXT CHAIN ------\n{HOST}\n{CA}\n");
        let (dir, warnings) = read("atlas/voms.example.org.lsc", &text);
        assert_eq!(warnings.len(), 1);
        assert!(lists(&dir, &[(HOST, CA)]));
        for (path, text) in [
            ("voms.example.org.lsc", HOST),
            ("atlas/old/voms.lsc", HOST),
            ("atlas/README", "read me"),
            ("atlas/voms.pem", "nothing"),
            ("voms.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ] {
            let (dir, warnings) = read(path, text);
            assert_eq!(warnings.len(), 1, "{path}");
            assert!(dir.is_empty(), "{path}");
        }
    }
}
