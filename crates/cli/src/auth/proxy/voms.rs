//! Groups and roles for a proxy: from the servers of a virtual organisation, or signed here with a test server's key.

use std::fs;
use std::path::{Path, PathBuf};

use gridlane_auth::Fqan;
use gridlane_auth::make::{AttributeCertificate, Contents, Credential, Validity, serial};
use gridlane_auth::voms::{Answer, AttributeRequest, Given, VomsDir, VomsServer, check_given};
use gridlane_auth::x509::Trust;
use gridlane_client::credentials::Wanted as WantedCredentials;
use gridlane_client::{VomsGift, ask_voms, session, voms_url};
use gridlane_config::file;
use gridlane_core::limits::{VOMSES_FILE_BYTES_MAX, VOMSES_FILES_MAX};
use gridlane_core::{Error, ErrorKind, Fault, Result};
use ring::rand::SystemRandom;
use serde_json::{Value, json};

use super::{HOUR_S, ProxyArgs, check_time, read_credential, set};
use crate::args::Global;
use crate::output::tell;
use crate::pki::{moment, now_s, usage};
use crate::serve::auth::{authorities_in, vomsdir_in};

/// A VOMS server's usual port, which is part of what it signs.
const VOMS_PORT: u16 = 15000;
/// Where the signers of VOs are listed, unless `X509_VOMS_DIR` names another directory.
const VOMS_DIR: &str = "/etc/grid-security/vomsdir";

/// The user who wants a proxy.
pub(super) struct User<'a> {
    /// Certificate and key, perhaps a proxy's.
    pub(super) credential: &'a Credential,
    /// The file of the certificate.
    pub(super) cert: &'a Path,
    /// The file of the key.
    pub(super) key: &'a Path,
    /// The time, in seconds since 1970.
    pub(super) now_s: i64,
}

/// The attributes of one VO.
pub(super) struct Attributes {
    /// An attribute certificate in DER.
    pub(super) certificate: Vec<u8>,
    vo: String,
    fqans: Vec<Fqan>,
    /// When it ends, in seconds since 1970.
    not_after_s: i64,
    /// The server that gave it, with its port.
    server: String,
}

impl Attributes {
    /// For JSON.
    pub(super) fn fields(&self) -> Value {
        json!({
            "vo": self.vo, "fqans": self.fqans, "not_after_s": self.not_after_s, "server": self.server,
        })
    }

    /// For people.
    pub(super) fn line(&self) -> String {
        let fqans: Vec<String> = self.fqans.iter().map(Fqan::to_string).collect();
        let until = moment(self.not_after_s);
        format!("  {}: {}; until {until}, by {}\n", self.vo, fqans.join(", "), self.server)
    }
}

/// The groups and roles that are wanted of one VO.
struct Wanted<'a> {
    /// The VO, or another name that a file of addresses has for it.
    name: &'a str,
    /// What was typed, and the group or role in it.
    fqans: Vec<(&'a str, Option<Fqan>)>,
}

impl<'a> Wanted<'a> {
    /// What is wanted of each VO, in the order in which they were named first.
    fn read(texts: &'a [String]) -> Result<Vec<Wanted<'a>>> {
        let mut all = Vec::<Wanted<'a>>::new();
        for text in texts {
            let (name, fqan) = text.split_once(':').unwrap_or((text, ""));
            let fqan: Option<Fqan> = match fqan {
                "" => None,
                fqan => Some(fqan.parse().map_err(|refusal| usage(format!("--voms {text}: {refusal}")))?),
            };
            match all.iter_mut().find(|wanted| wanted.name == name) {
                Some(wanted) => wanted.fqans.push((text, fqan)),
                None => all.push(Wanted { name, fqans: vec![(text, fqan)] }),
            }
        }
        Ok(all)
    }

    /// The groups and roles, of which all have to be of this VO.
    fn of_vo(&self, vo: &str) -> Result<Vec<Fqan>> {
        let mut fqans = Vec::new();
        for (text, fqan) in &self.fqans {
            let fqan = match fqan {
                Some(fqan) => fqan.clone(),
                None => {
                    format!("/{vo}").parse().map_err(|refusal| usage(format!("--voms {text}: {refusal}")))?
                }
            };
            if fqan.vo() != vo {
                return Err(usage(format!("--voms {text}: {fqan} is not in the VO {vo}")));
            }
            if !fqans.contains(&fqan) {
                fqans.push(fqan);
            }
        }
        Ok(fqans)
    }
}

/// The attributes that were asked for.
pub(super) fn attributes(
    args: &ProxyArgs,
    user: &User<'_>,
    global: &Global,
    random: &SystemRandom,
) -> Result<Vec<Attributes>> {
    let wanted = Wanted::read(&args.voms)?;
    let lifetime_s = args.voms_lifetime.unwrap_or(args.hours) * HOUR_S;
    match (&wanted[..], &args.voms_cert, &args.voms_key) {
        ([], ..) => Ok(Vec::new()),
        ([wanted], Some(cert), Some(key)) => Ok(vec![sign(wanted, (cert, key), user, lifetime_s, random)?]),
        (_, Some(_), Some(_)) => {
            Err(usage("one VOMS server speaks for one VO: name the same VO each time".into()))
        }
        _ => Asking::new(args, user, lifetime_s, global)?.ask_all(&wanted),
    }
}

/// The attributes that a VOMS server would state of the user, signed with that server's key.
fn sign(
    wanted: &Wanted<'_>,
    (cert, key): (&Path, &Path),
    user: &User<'_>,
    lifetime_s: i64,
    random: &SystemRandom,
) -> Result<Attributes> {
    let vo = wanted.name;
    let fqans = wanted.of_vo(vo)?;
    // As VOMS servers write it.
    let written =
        |fqan: &Fqan| format!("{}/Role={}/Capability=NULL", fqan.group(), fqan.role().unwrap_or("NULL"));
    let texts: Vec<String> = fqans.iter().map(written).collect();
    let voms = read_credential(cert, key)?;
    check_time(&voms, user.now_s, cert)?;
    let server = format!("{}:{VOMS_PORT}", host_of(&voms.contents()?, cert)?);
    let holder = user.credential.end_entity()?;
    let validity = Validity::from_now(user.now_s, lifetime_s).within(user.credential.validity()?);
    let said = AttributeCertificate::new(&voms, holder, (vo, &server), &texts, validity, serial(random)?)?;
    let not_after_s = said.validity.not_after_s;
    let certificate = said.sign(&voms, random)?;
    Ok(Attributes { certificate, vo: vo.to_owned(), fqans, not_after_s, server })
}

/// The name of the host whose certificate it is.
fn host_of(contents: &Contents, file: &Path) -> Result<String> {
    let name = contents.subject.common_name().filter(|name| !name.contains(['/', ':']));
    name.ok_or_else(|| {
        usage("the VOMS server's certificate does not end in the name of a host".into())
            .endpoint(file.display())
    })
}

/// The means to ask servers.
struct Asking<'a> {
    user: &'a User<'a>,
    lifetime_s: i64,
    global: &'a Global,
    trust: gridlane_net::tls::Trust,
    servers: Vec<VomsServer>,
    /// Where these are from, for a person.
    places: String,
    /// The signers that are trusted here, or why they are not known.
    signers: std::result::Result<(VomsDir, Trust), String>,
}

impl<'a> Asking<'a> {
    fn new(args: &ProxyArgs, user: &'a User<'a>, lifetime_s: i64, global: &'a Global) -> Result<Asking<'a>> {
        let (servers, warnings, places) = known_servers(args.vomses.as_deref())?;
        if !global.quiet {
            warnings.iter().for_each(|warning| tell!("gridlane: {warning}"));
        }
        let trust = global.trust();
        let signers = signers(trust.ca_dir.as_deref());
        let places = places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ");
        // Nobody states attributes for longer than the certificate lasts.
        let left_s = user.credential.validity()?.not_after_s.saturating_sub(user.now_s);
        let lifetime_s = lifetime_s.min(left_s).max(1);
        Ok(Asking { user, lifetime_s, global, trust, servers, places, signers })
    }

    fn ask_all(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Attributes>> {
        let runtime = gridlane_client::runtime(1)?;
        wanted.iter().map(|wanted| self.ask(wanted, &runtime)).collect()
    }

    fn ask(&self, wanted: &Wanted<'_>, runtime: &tokio::runtime::Runtime) -> Result<Attributes> {
        let mut servers = VomsServer::named(&self.servers, wanted.name);
        let Some(vo) = servers.first().map(|server| server.vo.clone()) else {
            let what = format!("no VOMS server of {} is known: looked in {}", wanted.name, self.places);
            return Err(usage(what).hint(
                "the VO tells the line to put there, or into a file for --vomses FILE; a test server signs with \
                 --voms-cert FILE --voms-key FILE",
            ));
        };
        // An alias may stand for several VOs: the first line counts.
        servers.retain(|server| server.vo == vo);
        let fqans = wanted.of_vo(&vo)?;
        let request = AttributeRequest { vo, fqans, lifetime_s: self.lifetime_s };
        let urls = servers.iter().map(|server| voms_url(server)).collect::<Result<Vec<_>>>()?;
        let shown = WantedCredentials {
            certificate: Some(self.user.cert.to_owned()),
            key: Some(self.user.key.to_owned()),
            ..WantedCredentials::default()
        };
        let session = session(&urls, &shown, self.trust.clone(), Vec::new())?;
        let check = |answer: &Answer| {
            self.check(answer, &request).map(|given| (given, answer.attribute_certificate.clone()))
        };
        let gift = runtime.block_on(ask_voms(&session.client, &servers, &request, check))?;
        if !self.global.quiet {
            self.tell(&gift, &request);
        }
        let VomsGift { server, checked: (given, certificate), .. } = gift;
        Ok(Attributes {
            certificate,
            vo: given.claim.vo,
            fqans: given.claim.fqans,
            not_after_s: given.claim.not_after_s,
            server: format!("{}:{}", server.host, server.port),
        })
    }

    fn check(&self, answer: &Answer, request: &AttributeRequest) -> Result<Given> {
        let holder = self.user.credential.end_entity()?;
        let signers = self.signers.as_ref().ok().map(|(voms, trust)| (voms, trust));
        check_given(&answer.attribute_certificate, request, holder, signers, now_s()).map_err(|refusal| {
            Error::new(ErrorKind::Denied, refusal.message).fault(Fault::Peer).hint(
                "servers of data would refuse it too: are this machine's clock, X509_VOMS_DIR and X509_CERT_DIR right? \
                 Else ask the VO",
            )
        })
    }

    fn tell(&self, gift: &VomsGift<(Given, Vec<u8>)>, request: &AttributeRequest) {
        for failure in &gift.failures {
            tell!("gridlane: passed over: {failure}");
        }
        let VomsServer { host, port, vo, .. } = &gift.server;
        for warning in &gift.warnings {
            tell!("gridlane: {host}:{port} says: {warning}");
        }
        let (given, _) = &gift.checked;
        if given.is_short && gift.warnings.is_empty() {
            let (ends, hours) = (moment(given.claim.not_after_s), request.lifetime_s / HOUR_S);
            tell!("gridlane: the attributes of {vo} end {ends}, before {hours} hours");
        }
        if let (true, [first, ..], [asked, ..]) =
            (given.is_reordered, &given.claim.fqans[..], &request.fqans[..])
        {
            tell!("gridlane: the primary group of {vo} is {first}, and {asked} was named first");
        }
        if let Some(unchecked) = &given.unchecked {
            let why = self.signers.as_ref().err().map_or_else(|| unchecked.to_string(), Clone::clone);
            tell!("gridlane: it was not checked who signed the attributes of {vo}: {why}");
        }
    }
}

/// The VOMS servers that this machine knows, what is wrong with the files about them, and where these are.
fn known_servers(named: Option<&Path>) -> Result<(Vec<VomsServer>, Vec<String>, Vec<PathBuf>)> {
    let named = named.map(Path::to_owned).or_else(|| set("VOMS_USERCONF"));
    let is_named = named.is_some();
    let places = match named {
        Some(place) => vec![place],
        None => {
            let home = set("HOME");
            let of_user = [".voms/vomses", ".glite/vomses"];
            let of_user = home.iter().flat_map(|home| of_user.map(|name| home.join(name)));
            let of_all = ["/etc/vomses", "/etc/grid-security/vomses"].map(PathBuf::from);
            of_user.chain(of_all).collect()
        }
    };
    let (mut servers, mut warnings) = (Vec::new(), Vec::new());
    for place in &places {
        if !is_named && !place.exists() {
            continue;
        }
        match read_servers(place, &mut warnings) {
            Ok(found) => servers.extend(found),
            Err(error) if is_named => return Err(error),
            Err(error) => warnings.push(format!("passed over: {}", error.message())),
        }
    }
    Ok((servers, warnings, places))
}

/// Those of one file, or of all files of a directory.
fn read_servers(place: &Path, warnings: &mut Vec<String>) -> Result<Vec<VomsServer>> {
    let unreadable = |cause: &std::io::Error| {
        Error::local_io(format!("cannot read {}", place.display()), cause).fault(Fault::Caller)
    };
    let mut files = vec![place.to_owned()];
    if place.is_dir() {
        files.clear();
        for entry in fs::read_dir(place).map_err(|cause| unreadable(&cause))? {
            let path = entry.map_err(|cause| unreadable(&cause))?.path();
            if path.is_file() {
                files.push(path);
            }
            if files.len() > VOMSES_FILES_MAX {
                warnings.push(format!("{}: only {VOMSES_FILES_MAX} of its files count", place.display()));
                files.truncate(VOMSES_FILES_MAX);
                break;
            }
        }
        files.sort();
    }
    let mut servers = Vec::new();
    for path in files {
        let bytes = match file::bytes(&path, VOMSES_FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if path != place => {
                warnings.push(format!("passed over: {}", error.message()));
                continue;
            }
            Err(error) => return Err(error.fault(Fault::Caller)),
        };
        let (found, wrong) = VomsServer::read_all(&bytes);
        servers.extend(found);
        warnings.extend(wrong.into_iter().map(|what| format!("{}: {what}", path.display())));
    }
    Ok(servers)
}

/// The signers that this machine trusts, or why it knows none.
fn signers(authorities: Option<&Path>) -> std::result::Result<(VomsDir, Trust), String> {
    let place = set("X509_VOMS_DIR").unwrap_or_else(|| PathBuf::from(VOMS_DIR));
    if !place.is_dir() {
        return Err(format!("there is no {} (X509_VOMS_DIR)", place.display()));
    }
    let authorities = authorities.ok_or("there is no directory of authorities (X509_CERT_DIR)")?;
    let told = |error: Error| error.message().to_owned();
    let (voms, _) = vomsdir_in(&place).map_err(told)?;
    let (trust, _) = authorities_in(authorities).map_err(told)?;
    Ok((voms, trust))
}
