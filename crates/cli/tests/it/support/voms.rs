//! Proxies with VOMS attributes, made by VOMS's own `voms-proxy-fake` in the place of a VOMS server.

use std::path::PathBuf;

use super::client::{Outcome, run};
use super::pki::{Credential, Pki, VOMS_HOST};
use super::tools::tool;

/// A proxy to be made.
pub(crate) struct VomsProxy<'a> {
    pki: &'a Pki,
    user: &'a str,
    vo: &'a str,
    fqans: Vec<String>,
    options: Vec<&'static str>,
}

impl<'a> VomsProxy<'a> {
    /// The attributes of a user that belongs to these groups, and has these roles, of a VO.
    ///
    /// Each is written as a VOMS server does it, with what is not there spelled out (`/vo/Role=NULL/Capability=NULL`):
    /// XRootD's plug-in (5.5.3) refuses a user whose attributes have a role in some and none in others.
    pub(crate) fn of(pki: &'a Pki, user: &'a str, vo: &'a str, fqans: &[&str]) -> VomsProxy<'a> {
        let written = |fqan: &&str| match fqan.contains("/Role=") {
            true => format!("{fqan}/Capability=NULL"),
            false => format!("{fqan}/Role=NULL/Capability=NULL"),
        };
        VomsProxy { pki, user, vo, fqans: fqans.iter().map(written).collect(), options: Vec::new() }
    }

    /// Limited, as jobs get it.
    pub(crate) fn limited(mut self) -> Self {
        self.options.push("-limited");
        self
    }

    /// Proxy and attributes ended a day ago.
    pub(crate) fn expired(mut self) -> Self {
        self.options.extend(["-pastproxy", "36:00", "-pastac", "36:00"]);
        self
    }

    /// The attributes ended a day ago, the proxy did not.
    pub(crate) fn with_expired_attributes(mut self) -> Self {
        self.options.extend(["-pastac", "36:00"]);
        self
    }

    /// Of the kind from before RFC 3820, which has no place in its extensions that says what it is.
    pub(crate) fn legacy(mut self) -> Self {
        self.options.extend(["-proxyver", "2"]);
        self
    }

    /// Makes it.
    pub(crate) fn make(self, name: &str) -> Credential {
        let file = self.pki.join(&format!("{name}.pem"));
        let user = self.pki.credential(self.user);
        let server = self.pki.credential("voms");
        let mut command = tool("voms-proxy-fake", "voms-clients");
        if !self.options.contains(&"-proxyver") {
            command.arg("-rfc");
        }
        command.args(["-bits", "2048", "-hours", "12", "-vomslife", "12", "-voms", self.vo]);
        command.args(["-uri", &format!("{VOMS_HOST}:15000")]).args(&self.options);
        for fqan in &self.fqans {
            command.args(["-fqan", fqan]);
        }
        command.arg("-cert").arg(user.cert).arg("-key").arg(user.key);
        command.arg("-hostcert").arg(server.cert).arg("-hostkey").arg(server.key);
        command.arg("-certdir").arg(self.pki.certificates()).arg("-out").arg(&file);
        run(command).ok();
        Credential::from_file(&file)
    }
}

/// The text that VOMS's own program reads in a proxy.
pub(crate) fn proxy_info(pki: &Pki, proxy: &Credential, options: &[&str]) -> Outcome {
    // Debian has it under a name of its own beside the one that alternatives choose.
    let own = "voms-proxy-info2";
    let name = if PathBuf::from("/usr/bin").join(own).exists() { own } else { "voms-proxy-info" };
    let mut command = tool(name, "voms-clients");
    command.arg("-file").arg(&proxy.file).args(options);
    command.env("X509_CERT_DIR", pki.certificates()).env("X509_VOMS_DIR", pki.vomsdir());
    run(command)
}
