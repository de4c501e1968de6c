//! Authorities, hosts and users of the tests, in the form in which grid sites have them.
//!
//! Made by OpenSSL once per run of the test program and kept in memory; every [`Pki`] is a copy of its own on the
//! disk, which a test may change as it likes. Nothing of it outlives the run.
//!
//! The first authority has an RSA key on purpose: VOMS's own programs (2.1.0) sign a proxy and its attributes with
//! the digest of the issuer's certificate, and fall back to SHA-1, which TLS refuses, when that certificate was
//! signed with ECDSA.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::client::{run, text};
use super::tools::tool;
use super::{Scratch, secrets};

/// The name of the first authority, which vouches for `host`, `ada`, `eve`, and the VOMS server.
pub(crate) const CA_DN: &str = "/DC=org/DC=gridlane-test/CN=Test CA";
/// The name of Ada, whichever key she uses.
pub(crate) const ADA_DN: &str = "/DC=org/DC=gridlane-test/OU=Users/CN=Ada Lovelace";
/// The name of Eve.
pub(crate) const EVE_DN: &str = "/DC=org/DC=gridlane-test/OU=Users/CN=Eve";
/// The name of Bob, a user of the second authority.
pub(crate) const BOB_DN: &str = "/DC=org/DC=gridlane-second/CN=Bob";
/// The name of the server that vouches for members of the VOs.
pub(crate) const VOMS_DN: &str = "/DC=org/DC=gridlane-test/CN=voms.gridlane.test";
/// The host name of that server.
pub(crate) const VOMS_HOST: &str = "voms.gridlane.test";
/// The name of this machine's servers.
pub(crate) const HOST_DN: &str = "/DC=org/DC=gridlane-test/CN=localhost";
/// The VOs that it may speak for, by the files in `vomsdir`.
pub(crate) const VOS: [&str; 2] = ["gridlane", "other"];

const RSA: &[&str] = &["-newkey", "rsa:2048"];
const ECDSA: &[&str] = &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];

/// Name, subject, key, and which subjects its signing policy lets it vouch for; without a policy it is in no
/// directory of authorities.
const AUTHORITIES: [(&str, &str, &[&str], Option<&str>); 3] = [
    ("ca", CA_DN, RSA, Some("/DC=org/DC=gridlane-test/*")),
    ("second", "/DC=org/DC=gridlane-second/CN=Second CA", ECDSA, Some("/DC=org/DC=gridlane-second/*")),
    ("stranger", "/DC=org/DC=stranger/CN=Stranger CA", ECDSA, None),
];

/// From when to when a certificate is valid, as `date` reads it.
type Validity = (&'static str, &'static str);
const NOW: Validity = ("-1 day", "+30 days");
const PAST: Validity = ("-30 days", "-1 day");
const FUTURE: Validity = ("+2 days", "+30 days");

const CLIENT: &str = "extendedKeyUsage=clientAuth";

/// Name, subject, key, the authority that vouches for it, when, and a line of extensions.
type EndEntity = (&'static str, &'static str, &'static [&'static str], &'static str, Validity, &'static str);
const END_ENTITIES: [EndEntity; 13] = [
    ("host", HOST_DN, ECDSA, "ca", NOW, HOST),
    ("host-rsa", HOST_DN, RSA, "ca", NOW, HOST),
    ("stranger-host", "/DC=org/DC=stranger/CN=localhost", ECDSA, "stranger", NOW, HOST),
    ("voms", VOMS_DN, RSA, "ca", NOW, "subjectAltName=DNS:voms.gridlane.test"),
    ("ada", ADA_DN, RSA, "ca", NOW, CLIENT),
    ("ada-ecdsa", ADA_DN, ECDSA, "ca", NOW, CLIENT),
    ("eve", EVE_DN, RSA, "ca", NOW, CLIENT),
    ("bob", BOB_DN, ECDSA, "second", NOW, CLIENT),
    // The second authority may not vouch for Ada: its signing policy says so.
    ("false-ada", ADA_DN, ECDSA, "second", NOW, CLIENT),
    ("stranger-ada", ADA_DN, ECDSA, "stranger", NOW, CLIENT),
    ("revoked", "/DC=org/DC=gridlane-test/OU=Users/CN=Revoked", ECDSA, "ca", NOW, CLIENT),
    ("expired", "/DC=org/DC=gridlane-test/OU=Users/CN=Expired", ECDSA, "ca", PAST, CLIENT),
    ("future", "/DC=org/DC=gridlane-test/OU=Users/CN=Future", ECDSA, "ca", FUTURE, CLIENT),
];

/// Stands for the names of this machine.
const HOST: &str = "";

/// A certificate and its key, as files.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    /// The certificate, and of a proxy also those that lead to the user's.
    pub(crate) cert: PathBuf,
    /// The key alone.
    pub(crate) key: PathBuf,
    /// Certificate, key, and what leads to the user's certificate, in the order of a proxy file.
    pub(crate) file: PathBuf,
}

impl Credential {
    fn in_dir(dir: &Path) -> Credential {
        Credential { cert: dir.join("cert.pem"), key: dir.join("key.pem"), file: dir.join("file.pem") }
    }

    /// The same from one file in the order of proxies, beside which the parts are put.
    pub(crate) fn from_file(file: &Path) -> Credential {
        let both = fs::read_to_string(file).unwrap();
        let (key, certificates): (Vec<_>, Vec<_>) =
            blocks(&both).into_iter().partition(|block| block.contains("PRIVATE KEY"));
        let this = Credential { cert: beside(file, "cert"), key: beside(file, "key"), file: file.to_owned() };
        fs::write(&this.cert, certificates.concat()).unwrap();
        write_private(&this.key, &key.concat());
        secrets::remember_key(&key.concat());
        this
    }

    /// Writes the one file from the parts.
    fn join(self) -> Credential {
        let cert = fs::read_to_string(&self.cert).unwrap();
        let key = fs::read_to_string(&self.key).unwrap();
        let mut certificates = blocks(&cert).into_iter();
        let first = certificates.next().unwrap();
        write_private(&self.file, &(first + &key + &certificates.collect::<String>()));
        secrets::remember_key(&key);
        make_private(&self.key);
        self
    }
}

fn beside(file: &Path, what: &str) -> PathBuf {
    file.with_extension(format!("{what}.pem"))
}

/// The blocks of a PEM file, without what stands between them.
fn blocks(pem: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut rest = pem;
    while let Some(start) = rest.find("-----BEGIN") {
        let end = start + rest[start..].find("-----END").unwrap();
        let end = rest[end..].find('\n').map_or(rest.len(), |len| end + len + 1);
        blocks.push(rest[start..end].to_owned());
        rest = &rest[end..];
    }
    blocks
}

/// Writes what only the user may read: some programs refuse a key that others can.
fn write_private(path: &Path, text: &str) {
    use std::io::Write as _;
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn make_private(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A copy of everything, in a directory of its own.
pub(crate) struct Pki {
    scratch: Scratch,
}

impl Pki {
    pub(crate) fn new() -> Pki {
        static MADE: OnceLock<Vec<(PathBuf, String)>> = OnceLock::new();
        let scratch = Scratch::new();
        for (name, text) in MADE.get_or_init(make) {
            let path = scratch.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match text.contains("PRIVATE KEY") {
                true => write_private(&path, text),
                false => fs::write(path, text).unwrap(),
            }
        }
        Pki { scratch }
    }

    /// The directory of authorities as IGTF distributes it: certificates under the hash of their name, what each
    /// may sign, and the list of what the first has revoked.
    pub(crate) fn certificates(&self) -> PathBuf {
        self.scratch.join("certificates")
    }

    /// The directory of the servers that vouch for members of VOs.
    pub(crate) fn vomsdir(&self) -> PathBuf {
        self.scratch.join("vomsdir")
    }

    /// A credential that the authorities have certified.
    pub(crate) fn credential(&self, name: &str) -> Credential {
        let dir = self.scratch.join(name);
        assert!(dir.is_dir(), "there is no {name}");
        Credential::in_dir(&dir)
    }

    /// A place for what is made of it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// A proxy of RFC 3820, signed by a user or by another proxy.
    pub(crate) fn proxy(&self, name: &str, signer: &Credential, kind: Rfc3820) -> Credential {
        self.proxy_with(ECDSA, name, signer, kind)
    }

    /// The same with an RSA key: gsi knows no other.
    pub(crate) fn rsa_proxy(&self, name: &str, signer: &Credential) -> Credential {
        self.proxy_with(RSA, name, signer, Rfc3820::FULL)
    }

    fn proxy_with(&self, key: &[&str], name: &str, signer: &Credential, kind: Rfc3820) -> Credential {
        let this = Credential::in_dir(&self.scratch.dir(name));
        let signer_dn = subject(&signer.cert);
        // What a proxy is called beyond its signer does not matter, only that no other of the signer's has it.
        let subject = format!("{signer_dn}/CN={}", serial());
        let request = self.scratch.join(format!("{name}/csr.pem"));
        new_key(key, &subject, &this, &["-out", text(&request)]);
        let path_length = kind.path_length_max.map_or(String::new(), |max| format!(",pathlen:{max}"));
        let extensions = format!(
            "keyUsage=critical,digitalSignature\nproxyCertInfo=critical,language:{}{path_length}\n",
            kind.language
        );
        let extensions = self.scratch.file(&format!("{name}/extensions"), extensions.as_bytes());
        let leaf = self.scratch.join(format!("{name}/leaf.pem"));
        let mut command = openssl(&["x509", "-req", "-sha256", "-days", "2", "-set_serial", &serial()]);
        command.arg("-in").arg(request).arg("-extfile").arg(extensions);
        command.arg("-CA").arg(&signer.cert).arg("-CAkey").arg(&signer.key).arg("-out").arg(&leaf);
        run(command).ok();
        let chain = fs::read_to_string(leaf).unwrap() + &fs::read_to_string(&signer.cert).unwrap();
        fs::write(&this.cert, chain).unwrap();
        this.join()
    }

    /// Has the first authority revoke another user, in this copy.
    pub(crate) fn revoke(&self, name: &str) {
        revoke(&self.scratch, name);
    }

    /// Puts a list in place that should have been replaced long ago.
    pub(crate) fn outdate_list(&self) {
        make_list(
            &self.scratch,
            &["-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200201000000Z"],
        );
    }
}

/// The policy in a proxy.
#[derive(Clone, Copy)]
pub(crate) struct Rfc3820 {
    /// The rights that it has of its owner's: a name that OpenSSL knows, or an object identifier.
    pub(crate) language: &'static str,
    /// The number of proxies that may follow it.
    pub(crate) path_length_max: Option<u32>,
}

impl Rfc3820 {
    /// All that its signer may.
    pub(crate) const FULL: Rfc3820 = Rfc3820 { language: "id-ppl-inheritAll", path_length_max: None };
    /// Globus' limited proxy: files, but no jobs.
    pub(crate) const LIMITED: Rfc3820 =
        Rfc3820 { language: "1.3.6.1.4.1.3536.1.1.1.9", path_length_max: None };
    /// Nothing of what its signer may.
    pub(crate) const INDEPENDENT: Rfc3820 = Rfc3820 { language: "id-ppl-independent", path_length_max: None };

    /// The same when at most so many proxies may follow.
    pub(crate) fn path_length_max(self, max: u32) -> Rfc3820 {
        Rfc3820 { path_length_max: Some(max), ..self }
    }
}

/// The name of a certificate's owner, as the grid writes it.
pub(crate) fn subject(cert: &Path) -> String {
    let said = run(openssl(&["x509", "-noout", "-subject", "-nameopt", "compat", "-in", text(cert)])).ok();
    said.text().trim().trim_start_matches("subject=").trim_start().to_owned()
}

/// Makes everything, and returns the files.
fn make() -> Vec<(PathBuf, String)> {
    let scratch = Scratch::new();
    let dir = scratch.dir("certificates");
    std::thread::scope(|scope| {
        for authority in &AUTHORITIES {
            scope.spawn(|| make_authority(&scratch, &dir, authority));
        }
        for (name, subject, key, ..) in &END_ENTITIES {
            let this = Credential::in_dir(&scratch.dir(name));
            let request = scratch.join(format!("{name}/csr.pem"));
            scope.spawn(move || new_key(key, subject, &this, &["-out", text(&request)]));
        }
    });
    std::thread::scope(|scope| {
        for entity in &END_ENTITIES {
            scope.spawn(|| sign(&scratch, entity));
        }
    });
    revoke(&scratch, "revoked");
    for vo in VOS {
        let lsc = format!("{VOMS_DN}\n{CA_DN}\n");
        scratch.file(&format!("vomsdir/{vo}/{VOMS_HOST}.lsc"), lsc.as_bytes());
        // Of the servers that tests start here.
        let lsc = format!("{HOST_DN}\n{CA_DN}\n");
        scratch.file(&format!("vomsdir/{vo}/localhost.lsc"), lsc.as_bytes());
    }
    let mut files = Vec::new();
    gather(scratch.path(), scratch.path(), &mut files);
    files
}

fn gather(top: &Path, dir: &Path, files: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => gather(top, &path, files),
            false => {
                files.push((path.strip_prefix(top).unwrap().to_owned(), fs::read_to_string(&path).unwrap()))
            }
        }
    }
}

fn make_authority(
    scratch: &Scratch,
    dir: &Path,
    (name, subject, key, policy): &(&str, &str, &[&str], Option<&str>),
) {
    let this = Credential::in_dir(&scratch.dir(name));
    let usage = "keyUsage=critical,keyCertSign,cRLSign";
    new_key(key, subject, &this, &["-x509", "-days", "60", "-addext", usage, "-out", text(&this.cert)]);
    let Some(policy) = policy else { return };
    for hash in hashes(&this.cert) {
        fs::copy(&this.cert, dir.join(format!("{hash}.0"))).unwrap();
        let policy = format!(
            "access_id_CA X509 '{subject}'\npos_rights globus CA:sign\ncond_subjects globus '\"{policy}\"'\n"
        );
        fs::write(dir.join(format!("{hash}.signing_policy")), policy).unwrap();
    }
}

/// The names of an authority's files: OpenSSL's hash of today, and the one from before 1.0 that sites still have.
fn hashes(cert: &Path) -> Vec<String> {
    let said =
        run(openssl(&["x509", "-noout", "-subject_hash", "-subject_hash_old", "-in", text(cert)])).ok();
    said.text().lines().map(str::to_owned).collect()
}

/// A new key and a request for a certificate, or at once a certificate.
fn new_key(kind: &[&str], subject: &str, this: &Credential, more: &[&str]) {
    let mut command = openssl(&["req", "-new", "-sha256", "-nodes", "-subj", subject]);
    command.args(kind).arg("-keyout").arg(&this.key).args(more);
    run(command).ok();
    secrets::remember_key(&fs::read_to_string(&this.key).unwrap());
}

fn sign(scratch: &Scratch, (name, _, _, authority, (from, to), extension): &EndEntity) {
    let this = Credential::in_dir(&scratch.join(name));
    let extension = match extension.is_empty() {
        true => {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            format!("subjectAltName=DNS:localhost,DNS:{host},IP:127.0.0.1,IP:::1")
        }
        false => (*extension).to_owned(),
    };
    let extensions = format!(
        "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\n\
         subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n{extension}\n"
    );
    let extensions = scratch.file(&format!("{name}/extensions"), extensions.as_bytes());
    // Only `openssl ca` takes dates, and it wants a database: each has its own, as they run at once.
    let mut command = authority_command(scratch, authority, name);
    command.args(["-batch", "-notext", "-preserveDN", "-startdate", &date(from)]);
    command.args(["-enddate", &date(to)]).arg("-extfile").arg(extensions);
    command.arg("-in").arg(scratch.join(format!("{name}/csr.pem"))).arg("-out").arg(&this.cert);
    run(command).ok();
    this.join();
}

fn revoke(scratch: &Scratch, name: &str) {
    let mut command = authority_command(scratch, "ca", "ca");
    command.arg("-revoke").arg(scratch.join(format!("{name}/cert.pem")));
    run(command).ok();
    make_list(scratch, &["-crldays", "20"]);
}

/// Has the first authority sign a list of what it has revoked, and puts it where it is looked for.
fn make_list(scratch: &Scratch, validity: &[&str]) {
    let list = scratch.join("ca/crl.pem");
    let mut command = authority_command(scratch, "ca", "ca");
    command.args(["-gencrl", "-out", text(&list)]).args(validity);
    run(command).ok();
    for hash in hashes(&scratch.join("ca/cert.pem")) {
        fs::copy(&list, scratch.join(format!("certificates/{hash}.r0"))).unwrap();
    }
}

/// `openssl ca` for an authority, with the database in this directory.
fn authority_command(scratch: &Scratch, authority: &str, database: &str) -> std::process::Command {
    let dir = scratch.join(database);
    let config = dir.join("ca.cnf");
    let index = dir.join("index.txt");
    if !index.exists() {
        fs::write(&index, "").unwrap();
    }
    // The directory is another in every copy.
    let text = format!(
        "[ca]\ndefault_ca=this\n[this]\ndatabase={index}\nnew_certs_dir={dir}\ndefault_md=sha256\nrand_serial=yes\n\
         unique_subject=no\npolicy=any\n[any]\ndomainComponent=optional\norganizationalUnitName=optional\n\
         commonName=supplied\n",
        index = index.display(),
        dir = dir.display()
    );
    fs::write(&config, text).unwrap();
    let authority = Credential::in_dir(&scratch.join(authority));
    let mut command = openssl(&["ca", "-config"]);
    command.arg(config).arg("-cert").arg(authority.cert).arg("-keyfile").arg(authority.key);
    command
}

/// A moment as `openssl ca` takes it.
fn date(when: &str) -> String {
    let mut command = tool("date", "coreutils");
    command.args(["-u", "-d", when, "+%Y%m%d%H%M%SZ"]);
    run(command).ok().text().trim().to_owned()
}

/// A number that no other call gets.
fn serial() -> String {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static NEXT: AtomicU32 = AtomicU32::new(1000);
    NEXT.fetch_add(1, Relaxed).to_string()
}

/// OpenSSL with these arguments.
pub(crate) fn openssl(arguments: &[&str]) -> std::process::Command {
    let mut command = tool("openssl", "openssl");
    command.args(arguments);
    command
}
