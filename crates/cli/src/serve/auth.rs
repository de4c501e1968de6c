//! The table `[auth]`: the authorities of identities, and where their files are; and reading those.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridlane_auth::gridmap::GridMap;
use gridlane_auth::macaroon;
use gridlane_auth::password::Users;
use gridlane_auth::sss::Keytab;
use gridlane_auth::token::Issuer;
use gridlane_auth::voms::VomsDir;
use gridlane_auth::x509::{OutdatedLists, Trust};
use gridlane_config::file::{self, unreadable};
use gridlane_config::value::{Word, wrong};
use gridlane_core::limits::{TOKEN_CLOCK_SKEW, TOKEN_CLOCK_SKEW_MAX};
use gridlane_core::{Result, Url, limits};
use gridlane_dav::ResourcePath;
use gridlane_front::{AuthSettings, ClientLimits};
use serde::Deserialize;

use super::rules::{May, grants};
use crate::auth::token::parse_lifetime_s;
use gridlane_auth::Grants;

/// The contents of `[auth]`, checked as far as no file has to be read for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AuthPlan {
    /// There is such a table.
    pub(crate) is_there: bool,
    pub(crate) realm: Option<String>,
    pub(crate) client_ca_dir: Option<PathBuf>,
    pub(crate) client_ca: Vec<PathBuf>,
    pub(crate) outdated_lists: OutdatedLists,
    pub(crate) voms_dir: Option<PathBuf>,
    pub(crate) gridmap: Option<PathBuf>,
    pub(crate) audiences: Vec<String>,
    pub(crate) keys_dir: Option<PathBuf>,
    pub(crate) users: Option<PathBuf>,
    pub(crate) sss_keytab: Option<PathBuf>,
    pub(crate) sss_any_user: bool,
    pub(crate) macaroon_secrets: Option<PathBuf>,
    pub(crate) revoked_macaroons: Option<PathBuf>,
    pub(crate) macaroon_lifetime_s_max: Option<u64>,
    pub(crate) issuers: Vec<Issuer>,
    pub(crate) user_limits: ClientLimits,
    pub(crate) vo_limits: ClientLimits,
}

impl AuthPlan {
    /// True if tokens or macaroons count.
    pub(crate) fn takes_bearers(&self) -> bool {
        !self.issuers.is_empty() || self.macaroon_secrets.is_some()
    }

    /// True if there is any way for a client to prove an identity.
    pub(crate) fn authenticates(&self) -> bool {
        self.client_ca_dir.is_some()
            || !self.client_ca.is_empty()
            || !self.issuers.is_empty()
            || self.users.is_some()
            || self.sss_keytab.is_some()
            || self.macaroon_secrets.is_some()
    }

    /// The files and directories whose change is a reason to read everything again.
    pub(crate) fn watched(&self) -> Vec<PathBuf> {
        let optional = [
            &self.client_ca_dir,
            &self.voms_dir,
            &self.gridmap,
            &self.users,
            &self.sss_keytab,
            &self.macaroon_secrets,
            &self.revoked_macaroons,
        ];
        optional.into_iter().flatten().chain(&self.client_ca).cloned().collect()
    }
}

/// Reads everything that the table names. What is wrong with single authorities, lists and lines is told and does not count;
/// a file that cannot be read, or holds a secret that is none, is an error.
///
/// `audiences` is what tokens may call this server if the table does not say it. Of a file about authorities that has become
/// wrong, what was in it before counts: else half a list of what was revoked would revoke nothing.
pub(crate) fn load(
    plan: &AuthPlan,
    audiences: Vec<String>,
    good: &mut GoodFiles,
) -> Result<(AuthSettings, Vec<String>)> {
    let mut warnings = Vec::new();
    let mut told = |place: &Path, what: Vec<String>| {
        warnings.extend(what.into_iter().map(|what| format!("{}: {what}", place.display())));
    };
    let mut settings = AuthSettings {
        realm: plan.realm.clone().unwrap_or_else(|| "gridlane".to_owned()),
        issuers: plan.issuers.clone(),
        audiences: if plan.audiences.is_empty() { audiences } else { plan.audiences.clone() },
        keys_directory: plan.keys_dir.clone(),
        user_limits: plan.user_limits,
        vo_limits: plan.vo_limits,
        macaroon_lifetime_s_max: plan.macaroon_lifetime_s_max,
        ..AuthSettings::default()
    };
    let mut authorities = Vec::new();
    if let Some(directory) = &plan.client_ca_dir {
        authorities.extend(files_in(directory)?);
    }
    for file in &plan.client_ca {
        // Whatever it is called, it is a file of authorities.
        authorities.push((format!("{}.pem", file.display()), read(file)?));
    }
    if !authorities.is_empty() {
        let (trust, what) = good.read(authorities);
        let place = plan.client_ca_dir.as_deref().or(plan.client_ca.first().map(PathBuf::as_path));
        told(place.unwrap_or(Path::new("client-ca")), what);
        if trust.authorities_count() == 0 {
            return Err(wrong("there is no authority in `client-ca-dir` and `client-ca`".to_owned()));
        }
        settings.trust = Some(Arc::new(trust.with_outdated_lists(plan.outdated_lists)));
    } else if let Some(directory) = &plan.client_ca_dir {
        return Err(wrong(format!("there is no authority in {}", directory.display())));
    }
    if let Some(directory) = &plan.voms_dir {
        let (voms, what) = vomsdir_in(directory)?;
        told(directory, what);
        settings.voms = Arc::new(voms);
    }
    let (gridmap, what) = gridmap_of(plan)?;
    if let Some(file) = &plan.gridmap {
        told(file, what);
    }
    settings.gridmap = Arc::new(gridmap);
    if let Some(file) = &plan.users {
        settings.users =
            Arc::new(Users::parse(&read_secret(file)?).map_err(|error| error.endpoint(file.display()))?);
    }
    if let Some(file) = &plan.sss_keytab {
        let keys = Keytab::parse(&read_private(file)?).map_err(|error| error.endpoint(file.display()))?;
        settings.shared_keys = Some(Arc::new(keys));
        settings.shared_keys_any_user = plan.sss_any_user;
    }
    if let Some(file) = &plan.macaroon_secrets {
        let keys =
            macaroon::Keys::parse(&read_secret(file)?).map_err(|error| error.endpoint(file.display()))?;
        settings.macaroons = Some(Arc::new(keys));
    }
    if let Some(file) = &plan.revoked_macaroons {
        let text = read_text(file)?;
        let ids = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        settings.revoked_macaroons = Arc::new(ids.map(str::to_owned).collect());
    }
    Ok((settings, warnings))
}

/// The signers of virtual organisations in a `vomsdir`, and what is wrong with some of its files.
pub(crate) fn vomsdir_in(directory: &Path) -> Result<(VomsDir, Vec<String>)> {
    let mut files = files_in(directory)?;
    for (name, vo) in directories_in(directory)? {
        files.extend(files_in(&vo)?.into_iter().map(|(file, bytes)| (format!("{name}/{file}"), bytes)));
    }
    Ok(VomsDir::read(files))
}

/// The authorities of a directory, and what is wrong with some of its files.
pub(crate) fn authorities_in(directory: &Path) -> Result<(Trust, Vec<String>)> {
    Ok(Trust::read(files_in(directory)?))
}

/// Files of authorities and their lists as they were when nothing was wrong with them, by their names: those of the grid
/// take a few megabytes.
#[derive(Clone, Default)]
pub(crate) struct GoodFiles(Arc<HashMap<String, Vec<u8>>>);

impl GoodFiles {
    /// The authorities of these files, and what is wrong with them.
    fn read(&mut self, mut files: Vec<(String, Vec<u8>)>) -> (Trust, Vec<String>) {
        let is_about =
            |warning: &str, name: &str| warning.strip_prefix(name).is_some_and(|rest| rest.starts_with(": "));
        let (mut trust, mut warnings) = Trust::read(files.clone());
        let mut told = Vec::new();
        for (name, contents) in &mut files {
            let Some(before) = self.0.get(name).filter(|before| *before != contents) else { continue };
            if let Some(what) = warnings.iter().find(|warning| is_about(warning, name)) {
                told.push(format!("{what}; its earlier content stays in force"));
                contents.clone_from(before);
            }
        }
        if !told.is_empty() {
            (trust, warnings) = Trust::read(files.clone());
            told.append(&mut warnings);
            warnings = told;
        }
        files.retain(|(name, _)| {
            !warnings.iter().any(|warning| is_about(warning, name)) || self.0.contains_key(name)
        });
        self.0 = Arc::new(files.into_iter().collect());
        (trust, warnings)
    }
}

/// The users by the subjects of their certificates, and which lines of the file do not count.
pub(super) fn gridmap_of(plan: &AuthPlan) -> Result<(GridMap, Vec<String>)> {
    match &plan.gridmap {
        Some(file) => Ok(GridMap::read(&read(file)?)),
        None => Ok((GridMap::default(), Vec::new())),
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    file::bytes(path, limits::AUTH_FILE_BYTES_MAX)
}

fn read_text(path: &Path) -> Result<String> {
    file::text(path, limits::AUTH_FILE_BYTES_MAX)
}

/// A file that nobody but its owner may read.
fn read_private(path: &Path) -> Result<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = std::fs::metadata(path).map_err(|cause| unreadable(path, &cause))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        let what = format!("{} holds shared keys, and others than its owner may read it", path.display());
        return Err(wrong(what).hint(format!("chmod 600 {}", path.display())));
    }
    read_secret(path)
}

/// A file that other users may not read.
fn read_secret(path: &Path) -> Result<String> {
    file::secret(path, limits::AUTH_FILE_BYTES_MAX)
}

/// The contents of the files of a directory, by their names. Files that are too large are left out.
fn files_in(directory: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for (name, path) in entries(directory)? {
        // Links count as what they lead to: that is how authorities are hashed.
        let is_file =
            std::fs::metadata(&path).is_ok_and(|it| it.is_file() && it.len() <= limits::AUTH_FILE_BYTES_MAX);
        if is_file {
            files.push((name, std::fs::read(&path).map_err(|cause| unreadable(&path, &cause))?));
        }
    }
    Ok(files)
}

fn directories_in(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    Ok(entries(directory)?.into_iter().filter(|(_, path)| path.is_dir()).collect())
}

/// Names and places, in the order of names.
fn entries(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    let listed =
        std::fs::read_dir(directory).and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
    let mut entries: Vec<_> = listed
        .map_err(|cause| unreadable(directory, &cause))?
        .into_iter()
        .filter_map(|entry| Some((entry.file_name().to_str()?.to_owned(), entry.path())))
        .collect();
    entries.sort();
    Ok(entries)
}

/// The table as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct AuthTable {
    realm: Option<String>,
    client_ca_dir: Option<PathBuf>,
    #[serde(default)]
    client_ca: Vec<PathBuf>,
    outdated_lists: Option<OutdatedWord>,
    voms_dir: Option<PathBuf>,
    gridmap: Option<PathBuf>,
    #[serde(default)]
    audiences: Vec<String>,
    clock_skew: Option<String>,
    keys_dir: Option<PathBuf>,
    users: Option<PathBuf>,
    sss_keytab: Option<PathBuf>,
    #[serde(default)]
    sss_any_user: bool,
    macaroon_secrets: Option<PathBuf>,
    revoked_macaroons: Option<PathBuf>,
    max_macaroon_lifetime: Option<String>,
    #[serde(default)]
    issuer: Vec<IssuerTable>,
    user_limits: Option<LimitsTable>,
    vo_limits: Option<LimitsTable>,
}

/// The word for what to do where a revocation list is over its time.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OutdatedWord {
    Refuse,
    Use,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct IssuerTable {
    url: String,
    path: Option<String>,
    may: Option<Vec<May>>,
    vo: Option<String>,
    #[serde(default)]
    audiences: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LimitsTable {
    connections: Option<u32>,
    requests: Option<u32>,
    rate: Option<Word>,
}

impl AuthTable {
    pub(super) fn checked(self) -> Result<AuthPlan> {
        if self.client_ca_dir.is_none() && self.client_ca.is_empty() {
            let useless =
                [("voms-dir", self.voms_dir.is_some()), ("outdated-lists", self.outdated_lists.is_some())];
            if let Some((key, _)) = useless.into_iter().find(|(_, is_there)| *is_there) {
                return Err(wrong(format!("`{key}` is of no use without `client-ca-dir` or `client-ca`")));
            }
        }
        let outdated_lists = match self.outdated_lists {
            None | Some(OutdatedWord::Refuse) => OutdatedLists::Refuse,
            Some(OutdatedWord::Use) => OutdatedLists::Use,
        };
        if self.sss_any_user && self.sss_keytab.is_none() {
            return Err(wrong("`sss-any-user` is of no use without `sss-keytab`".to_owned()));
        }
        if self.revoked_macaroons.is_some() && self.macaroon_secrets.is_none() {
            return Err(wrong("`revoked-macaroons` is of no use without `macaroon-secrets`".to_owned()));
        }
        if self.max_macaroon_lifetime.is_some() && self.macaroon_secrets.is_none() {
            return Err(wrong("`max-macaroon-lifetime` is of no use without `macaroon-secrets`".to_owned()));
        }
        let lifetime = self.max_macaroon_lifetime.as_deref().map(parse_lifetime_s).transpose();
        let macaroon_lifetime_s_max =
            lifetime.map_err(|why| wrong(format!("`max-macaroon-lifetime` is no time: {why}")))?;
        let realm_is_word = |realm: &String| {
            !realm.is_empty()
                && realm.bytes().all(|byte| (0x20..0x7f).contains(&byte) && !b"\"\\".contains(&byte))
        };
        if let Some(realm) = self.realm.as_ref().filter(|realm| !realm_is_word(realm)) {
            return Err(wrong(format!("{realm:?} cannot be a realm: use letters, digits and spaces")));
        }
        let clock_skew_s =
            self.clock_skew.as_deref().map_or(Ok(TOKEN_CLOCK_SKEW.as_secs()), read_clock_skew_s)?;
        let clock_skew_s = i64::try_from(clock_skew_s).unwrap_or(0);
        let issuers = self.issuer.into_iter().map(|table| {
            let url = table.url.clone();
            table.checked(clock_skew_s).map_err(|error| error.endpoint(format!("[[auth.issuer]] {url}")))
        });
        let issuers: Vec<Issuer> = issuers.collect::<Result<_>>()?;
        for (index, issuer) in issuers.iter().enumerate() {
            if issuers[..index].iter().any(|other| other.url == issuer.url) {
                return Err(wrong(format!("there are two issuers {}", issuer.url)));
            }
        }
        Ok(AuthPlan {
            is_there: true,
            realm: self.realm,
            client_ca_dir: self.client_ca_dir,
            client_ca: self.client_ca,
            outdated_lists,
            voms_dir: self.voms_dir,
            gridmap: self.gridmap,
            audiences: self.audiences,
            keys_dir: self.keys_dir,
            users: self.users,
            sss_keytab: self.sss_keytab,
            sss_any_user: self.sss_any_user,
            macaroon_secrets: self.macaroon_secrets,
            revoked_macaroons: self.revoked_macaroons,
            macaroon_lifetime_s_max,
            issuers,
            user_limits: self.user_limits.map_or(Ok(ClientLimits::default()), LimitsTable::checked)?,
            vo_limits: self.vo_limits.map_or(Ok(ClientLimits::default()), LimitsTable::checked)?,
        })
    }
}

impl IssuerTable {
    fn checked(self, clock_skew_s: i64) -> Result<Issuer> {
        let is_https = Url::parse_absolute(&self.url).is_ok_and(|url| url.scheme().name() == "https");
        if !is_https || self.url.contains(['?', '#', '@']) {
            return Err(wrong("an issuer is an https URL, exactly as tokens have it in `iss`".to_owned()));
        }
        let base = ResourcePath::parse(self.path.as_deref().unwrap_or("/"))
            .map_err(|rejection| wrong(rejection.message.into_owned()))?;
        let everything =
            Grants::READ.with(Grants::LIST).with(Grants::WRITE).with(Grants::DELETE).with(Grants::STAGE);
        let may = self.may.map_or(everything, |words| grants(&words));
        let (vo, audiences) = (self.vo, self.audiences);
        Ok(Issuer { url: self.url, base, may, vo, audiences, clock_skew_s })
    }
}

/// The seconds of `clock-skew`: `0s` for none, five minutes at most.
fn read_clock_skew_s(text: &str) -> Result<u64> {
    let skew_s = if text == "0s" { Ok(0) } else { parse_lifetime_s(text) };
    let skew_s = skew_s.map_err(|why| wrong(format!("`clock-skew` is no time: {why}")))?;
    let max_s = TOKEN_CLOCK_SKEW_MAX.as_secs();
    match skew_s <= max_s {
        true => Ok(skew_s),
        false => Err(wrong(format!("a `clock-skew` of more than {max_s} s would let expired tokens in"))),
    }
}

impl LimitsTable {
    fn checked(self) -> Result<ClientLimits> {
        let rate = match self.rate {
            Some(rate) => Some(rate.bytes_per_s()?),
            None => None,
        };
        if self.connections == Some(0) || self.requests == Some(0) || rate == Some(0) {
            return Err(wrong("a limit of 0 admits no client: leave it out for no limit".to_owned()));
        }
        Ok(ClientLimits {
            connections_max: self.connections,
            requests_per_s: self.requests,
            bytes_per_s: rate,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<AuthPlan> {
        toml::from_str::<AuthTable>(text).map_err(|cause| wrong(cause.to_string()))?.checked()
    }

    #[test]
    fn everything_it_can_say() {
        let plan = read(
            r#"
            realm = "Site X"
            client-ca-dir = "/etc/grid-security/certificates"
            outdated-lists = "use"
            voms-dir = "/etc/grid-security/vomsdir"
            gridmap = "/etc/grid-security/grid-mapfile"
            audiences = ["https://dav.example"]
            clock-skew = "0s"
            keys-dir = "/var/lib/gridlane/keys"
            users = "/etc/gridlane/users"
            macaroon-secrets = "/etc/gridlane/macaroons"
            revoked-macaroons = "/etc/gridlane/revoked"
            max-macaroon-lifetime = "7d"
            user-limits = { connections = 20, requests = 100, rate = "100MB/s" }
            vo-limits = { rate = 1000 }
            [[issuer]]
            url = "https://iam.example/"
            path = "/data/atlas"
            may = ["read", "list"]
            vo = "atlas"
            [[issuer]]
            url = "https://other.example"
            "#,
        )
        .unwrap();
        assert!(plan.is_there && plan.authenticates());
        assert_eq!(plan.watched().len(), 6);
        assert_eq!(plan.outdated_lists, OutdatedLists::Use);
        assert_eq!(read("").unwrap().outdated_lists, OutdatedLists::Refuse);
        assert_eq!(plan.issuers[0].base.to_string(), "/data/atlas");
        assert_eq!(plan.issuers[0].may, Grants::READ.with(Grants::LIST));
        assert!(plan.issuers[1].may.changes());
        assert_eq!(plan.issuers[1].clock_skew_s, 0);
        let skew = |text: &str| {
            let plan = read(&format!("{text}\n[[issuer]]\nurl = \"https://iam.example/\"\n"));
            plan.ok().map(|plan| plan.issuers[0].clock_skew_s)
        };
        assert_eq!(skew(""), Some(60));
        assert_eq!(skew("clock-skew = \"5m\""), Some(300));
        assert_eq!([skew("clock-skew = \"301s\""), skew("clock-skew = \"x\"")], [None, None]);
        assert_eq!(plan.user_limits.bytes_per_s, Some(100_000_000));
        assert_eq!(plan.vo_limits.bytes_per_s, Some(1000));
        assert_eq!(plan.macaroon_lifetime_s_max, Some(7 * 86_400));
        assert!(!read("").unwrap().authenticates());
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("wings = 2", "wings"),
            ("voms-dir = \"/v\"", "client-ca-dir"),
            ("outdated-lists = \"use\"", "client-ca-dir"),
            ("client-ca-dir = \"/c\"\noutdated-lists = \"drop\"", "drop"),
            ("sss-any-user = true", "sss-keytab"),
            ("revoked-macaroons = \"/r\"", "macaroon-secrets"),
            ("max-macaroon-lifetime = \"7d\"", "macaroon-secrets"),
            ("macaroon-secrets = \"/s\"\nmax-macaroon-lifetime = \"long\"", "90s"),
            ("realm = \"a\\\"b\"", "realm"),
            ("[[issuer]]\nurl = \"http://iam.example\"", "https"),
            ("[[issuer]]\nurl = \"https://a@iam.example\"", "https"),
            ("[[issuer]]\nurl = \"https://a.example\"\npath = \"a\"", "slash"),
            ("[[issuer]]\nurl = \"https://a.example\"\n[[issuer]]\nurl = \"https://a.example\"", "two"),
            ("user-limits = { rate = \"much\" }", "much"),
            ("vo-limits = { connections = 0 }", "0"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.to_string().contains(word), "{text}: {error}");
            assert_eq!(error.kind().exit_code(), 2, "{text}");
        }
    }
}
