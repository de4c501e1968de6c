//! `gridlane serve --check`: what would be served, and what stands in the way. Leaves nothing behind.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_auth::Rule;
use gridlane_auth::policy::Class;
use gridlane_auth::token::Issuer;
use gridlane_auth::x509::Trust;
use gridlane_core::units::format_bytes;
use gridlane_core::{Error, ErrorKind, Result, limits};
use gridlane_dav::ResourcePath;
use gridlane_front::{AuthSettings, RootAuth, RootSettings, RootTls};
use gridlane_net::tls;
use gridlane_store::{BlockingStorage, ObjectPath, PosixStorage};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, XattrFlags, accessat, fsetxattr, getxattr};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use serde_json::json;

use super::auth::{self, GoodFiles};
use super::gsi;
use super::room::Room;
use super::settings::{self, Certificate};
use super::tables::{Plan, Tables};
use crate::args::{Global, ServeArgs};
use crate::output::{exit_code, print_event, show};
use crate::words;

/// A certificate that expires sooner is worth a warning.
const EXPIRY_DAYS_MIN: u64 = 14;

/// The same of an authority: everything that depends on it needs a new one, which others issue.
const AUTHORITY_EXPIRY_DAYS_MIN: i64 = 30;

/// The name of the extended attribute that is tried.
const ATTRIBUTE: &str = "user.gridlane.check";

/// The findings.
#[derive(Default)]
struct Findings {
    facts: Vec<String>,
    warnings: Vec<String>,
    errors: Vec<String>,
}

/// Checks, and says what it found. Exit code 0, or 2 when the server would not start or not do what it is told.
pub(super) fn run(args: &ServeArgs, global: &Global) -> ExitCode {
    let mut found = Findings::default();
    let tables = found.ok(settings::tables(args, global)).unwrap_or_default();
    found.addresses(args, tables.auth.authenticates());
    found.identities(args, &tables);
    let Tables { plans, root, .. } = &tables;
    found.errors.extend(check_paths(plans));
    // One that is not there is told of below.
    if plans.iter().all(|plan| plan.directory.is_dir()) {
        found.ok(settings::check_directories(plans));
    }
    for plan in plans {
        found.export(plan);
    }
    let mut by_certificate = gsi::Host::default();
    match settings::certificate(args) {
        Ok(certificate) => {
            let counts = tables.auth.client_ca_dir.is_some() || !tables.auth.client_ca.is_empty();
            match gsi::host(root, counts, &certificate) {
                Ok(host) => by_certificate = host,
                // One that will be made at the start is no RSA key's.
                Err(_) if certificate.is_self_signed && root.gsi_files.is_none() && root.auth.is_none() => {}
                Err(error) => found.errors.push(words::error(&error).to_string()),
            }
            found.certificate(&certificate, args.server_name.as_deref());
        }
        Err(error) => found.errors.push(words::error(&error).to_string()),
    }
    found.facts.push(line_about_root(root, tables.auth.takes_bearers(), &by_certificate));
    found.facts.push(format!("records of TLS 1.3: {}", global.records()));
    for networks in [&args.proxy_protocol, &args.trust_forwarded] {
        let parsed = gridlane_core::Network::parse_list(networks.iter().map(String::as_str));
        found.ok(parsed);
    }
    for log in [&args.access_log, &args.audit_log] {
        found.log(log);
    }
    found.descriptors(args);
    found.print(global.json);
    exit_code((!found.errors.is_empty()).then_some(ErrorKind::Usage))
}

/// No export may lie in another one.
fn check_paths(plans: &[Plan]) -> Vec<String> {
    let names = |plan: &Plan| plan.path.names().map(<[u8]>::to_vec).collect::<Vec<_>>();
    let mut wrong = Vec::new();
    for (index, inner) in plans.iter().enumerate() {
        for (other, outer) in plans.iter().enumerate() {
            if index != other && names(inner).starts_with(&names(outer)) {
                wrong.push(format!("the export {} lies in {}", inner.path, outer.path));
            }
        }
    }
    wrong
}

/// The credentials that clients of root:// are asked for.
fn line_about_root(root: &RootSettings, takes_bearers: bool, by_certificate: &gsi::Host) -> String {
    if !root.is_enabled {
        return "root://: not spoken".to_owned();
    }
    let by_default = gridlane_front::root::identity::by_default(takes_bearers, by_certificate.is_there());
    let ways = root.auth.as_deref().unwrap_or(by_default);
    let say = |way: &RootAuth| match way {
        RootAuth::Host => "their machine's name",
        RootAuth::Sss => "a shared key",
        RootAuth::Unix if !root.trust_unix_from.is_empty() => {
            "their user's name, which counts from trust-unix-from"
        }
        RootAuth::Unix => "their user's name",
        RootAuth::Ztn => "a token, over TLS",
        RootAuth::Gsi => "a certificate (gsi)",
    };
    let asked = match ways {
        [] => "clients need no credentials".to_owned(),
        ways => format!("clients send {}", ways.iter().map(say).collect::<Vec<_>>().join(", or else ")),
    };
    let tls = match root.tls {
        Some(RootTls::Login) => "; all begin TLS first",
        Some(RootTls::Capable) => "; those that can begin TLS first",
        Some(RootTls::Offered) | None => "",
    };
    let absent = match &by_certificate.absent {
        Some(why) => format!("; none by certificate: {why}"),
        None => String::new(),
    };
    format!("root://: spoken on the same addresses, {asked}{tls}{absent}")
}

/// The condition of a rule that nothing in the configuration can prove.
fn never(rule: &Rule, tables: &Tables, auth: &AuthSettings) -> Option<&'static str> {
    let who = &rule.who;
    let has_issuers = !auth.issuers.is_empty();
    let proves_groups = tables.auth.voms_dir.is_some() || has_issuers;
    if who.dn.is_some() && auth.trust.is_none() {
        return Some("without `client-ca-dir` or `client-ca` no certificate counts");
    }
    if (who.vo.is_some() || who.group.is_some()) && !proves_groups {
        return Some("without `voms-dir` and without issuers no client is in a VO");
    }
    if who.role.is_some() && tables.auth.voms_dir.is_none() {
        return Some("without `voms-dir` no client has a role");
    }
    if (who.issuer.is_some() || who.subject.is_some() || who.scope.is_some()) && !has_issuers {
        return Some("without an issuer no token counts");
    }
    if let Some(issuer) = &who.issuer
        && !auth.issuers.iter().any(|known| known.url == *issuer)
    {
        return Some("its issuer has no table [[auth.issuer]]");
    }
    let trusts_names = !tables.root.trust_unix_from.is_empty();
    let has_keys = tables.auth.sss_keytab.is_some();
    let has_users = tables.auth.users.is_some() || tables.auth.gridmap.is_some() || has_keys || trusts_names;
    if who.user.is_some() && !has_users {
        return Some("without `users`, `gridmap`, `sss-keytab` and `trust-unix-from` there are no users");
    }
    if who.class == Class::Macaroons && auth.macaroons.is_none() {
        return Some("without `macaroon-secrets` there are no macaroons");
    }
    if who.class == Class::Authenticated && !tables.auth.authenticates() && !trusts_names {
        return Some("there is no way to prove an identity");
    }
    None
}

/// Where one issuer could speak for another: rules that do not say whose subject or group they mean.
fn mixed_up(rules: &[Rule], issuers: &[Issuer]) -> Vec<String> {
    let mut doubts = Vec::new();
    let says = |rule: &Rule, names: &[&str]| {
        let under = rule.under.to_string();
        names.iter().any(|name| under.contains(name))
    };
    let of_any: Vec<&Rule> = rules.iter().filter(|rule| rule.who.issuer.is_none()).collect();
    for rule in &of_any {
        if issuers.len() > 1 && says(rule, &["{subject}"]) {
            doubts.push(format!("{} matches that subject of any issuer: add `issuer`", rule.name));
        }
    }
    let is_about_groups =
        |rule: &&Rule| rule.who.vo.is_some() || rule.who.group.is_some() || says(rule, &["{vo}", "{group}"]);
    if of_any.iter().any(is_about_groups) {
        let unbound = issuers.iter().filter(|issuer| issuer.vo.is_none());
        doubts.extend(
            unbound.map(|issuer| format!("tokens of {} may name groups of any VO: add `vo`", issuer.url)),
        );
    }
    doubts
}

impl Findings {
    /// Notes a failure.
    fn ok<T>(&mut self, outcome: Result<T>) -> Option<T> {
        outcome.map_err(|error| self.errors.push(words::error(&error).to_string())).ok()
    }

    fn addresses(&mut self, args: &ServeArgs, asks: bool) {
        let Some(listen) = self.ok(settings::addresses(args, asks)) else { return };
        for address in listen.into_iter().chain(settings::admin(args).ok().flatten()) {
            match bind(address) {
                Ok(()) => self.facts.push(format!("address {address}: free")),
                Err(error) => self.errors.push(words::error(&error).to_string()),
            }
        }
    }

    /// The authorities of identities, the rules, and rules that never apply.
    fn identities(&mut self, args: &ServeArgs, tables: &Tables) {
        let listen = settings::addresses(args, true).unwrap_or_default();
        let Some((auth, warnings)) =
            self.ok(auth::load(&tables.auth, settings::audiences(args, &listen), &mut GoodFiles::default()))
        else {
            return;
        };
        self.warnings.extend(warnings);
        let policy = tables.policy();
        if !tables.auth.is_there && tables.rules.is_empty() {
            return;
        }
        let mut ways: Vec<String> = Vec::new();
        if let Some(trust) = &auth.trust {
            self.trust(trust);
            ways.push(format!("certificates of {} authorities", trust.authorities_count()));
        }
        ways.extend(auth.issuers.iter().map(|issuer| format!("tokens of {}", issuer.url)));
        if auth.macaroons.is_some() {
            ways.push("macaroons".to_owned());
        }
        if tables.auth.users.is_some() {
            ways.push("passwords".to_owned());
        }
        let ways = if ways.is_empty() { "clients need no credentials".to_owned() } else { ways.join(", ") };
        self.facts.push(format!("credentials: {ways}"));
        self.facts.push(format!("rules: {}", policy.rules().len()));
        if !auth.issuers.is_empty() {
            match auth.audiences.is_empty() && auth.issuers.iter().any(|issuer| issuer.audiences.is_empty()) {
                true => self.warnings.push(
                    "no token can name this server: it has no name, and `audiences` is empty".to_owned(),
                ),
                false => self.facts.push(format!("tokens name this server: {}", auth.audiences.join(", "))),
            }
        }
        self.warnings.extend(mixed_up(policy.rules(), &auth.issuers));
        for rule in policy.rules() {
            if let Some(why) = never(rule, tables, &auth) {
                self.warnings.push(format!("{} never applies: {why}", rule.name));
            }
            if !tables.plans.iter().any(|plan| rule.under.may_meet(&plan.path)) {
                self.warnings.push(format!("{} is about {}, where no export is", rule.name, rule.under));
            }
        }
        for issuer in &auth.issuers {
            let is_in = |base: &ResourcePath, path: &ResourcePath| {
                base.names().zip(path.names()).all(|(base, name)| base == name)
            };
            if !tables.plans.iter().any(|plan| is_in(&issuer.base, &plan.path)) {
                let what = "paths in its tokens count from";
                self.warnings.push(format!("{}: {what} {}, where no export is", issuer.url, issuer.base));
            }
        }
    }

    /// Authorities that end soon, and lists that are out of date.
    fn trust(&mut self, trust: &Trust) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_s = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        for (name, not_after_s, next_update_s) in trust.dates() {
            let days = not_after_s.saturating_sub(now_s) / 86_400;
            if not_after_s <= now_s {
                self.warnings.push(format!("the authority {name} has expired: its certificates are refused"));
            } else if days < AUTHORITY_EXPIRY_DAYS_MIN {
                self.warnings.push(format!("the authority {name} expires in {days} days"));
            }
            if next_update_s.is_some_and(|next_update_s| next_update_s <= now_s) {
                self.warnings.push(format!(
                    "the revocation list of {name} is out of date: certificates of that authority are refused (fetch-crl gets a new list)"
                ));
            }
        }
    }

    fn export(&mut self, plan: &Plan) {
        let directory = plan.directory.display();
        let storage = match PosixStorage::open_with(&plan.directory, plan.options.clone()) {
            Ok(storage) => storage,
            Err(error) => return self.errors.push(words::error(&error).to_string()),
        };
        let how = if plan.allow_write { "writable" } else { "read-only" };
        let mut facts = vec![how.to_owned()];
        if let Ok(space) = storage.space(&ObjectPath::root()) {
            facts.push(format!("{} free", format_bytes(space.available_bytes)));
            if plan.quota_bytes.is_some_and(|quota| quota > space.total_bytes) {
                self.warnings.push(format!("{directory}: the quota is larger than the file system"));
            }
        }
        if let Some(quota) = plan.quota_bytes {
            facts.push(format!("quota {}", format_bytes(quota)));
        }
        if let Some(rules) = &plan.rules {
            facts.push(format!("{} rules", rules.len()));
        }
        let access = if plan.allow_write {
            Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK
        } else {
            Access::READ_OK | Access::EXEC_OK
        };
        if let Err(cause) = accessat(CWD, &plan.directory, access, AtFlags::EACCESS) {
            self.errors.push(format!(
                "{directory} is not {}: {cause}",
                if plan.allow_write { how } else { "readable" }
            ));
        }
        match keeps_attributes(plan) {
            Some(true) => facts.push("keeps checksums in extended attributes".to_owned()),
            Some(false) => facts.push("no extended attributes: checksums in side files".to_owned()),
            None => {}
        }
        self.hidden_directory(plan);
        self.facts.push(format!("export {} is {directory}: {}", plan.path, facts.join(", ")));
    }

    /// Uploads are renamed out of it, so it has to be on the same file system, and ours.
    fn hidden_directory(&mut self, plan: &Plan) {
        use std::os::unix::fs::MetadataExt as _;
        let hidden = plan.directory.join(gridlane_store::path::HIDDEN_NAME);
        let (Ok(inner), Ok(outer)) = (std::fs::symlink_metadata(&hidden), std::fs::metadata(&plan.directory))
        else {
            return;
        };
        if !plan.allow_write {
            return;
        }
        if !inner.is_dir() || inner.uid() != rustix::process::geteuid().as_raw() {
            self.errors
                .push(format!("{} is no directory of this user: uploads cannot be kept", hidden.display()));
        }
        if inner.dev() != outer.dev() {
            self.errors.push(format!("{} is on another file system than its export", hidden.display()));
        }
    }

    fn certificate(&mut self, certificate: &Certificate, server_name: Option<&str>) {
        let shown = certificate.cert.display();
        if certificate.is_self_signed && !certificate.cert.exists() && !certificate.key.exists() {
            return self.facts.push(format!("certificate {shown}: will be made"));
        }
        // Also whether they belong together.
        self.ok(tls::server_config(&certificate.cert, &certificate.key, false).map(drop));
        let Some(ends) = self.ok(certificate.check_validity()) else { return };
        let days = ends.duration_since(SystemTime::now()).unwrap_or_default().as_secs() / 86_400;
        self.facts.push(format!("certificate {shown}: valid for {days} days"));
        if days < EXPIRY_DAYS_MIN {
            self.warnings.push(format!("the certificate {shown} expires in {days} days"));
        }
        let is_for = |name: &&str| tls::is_for(&certificate.cert, name).is_ok_and(|is_for| !is_for);
        if let Some(name) = server_name.filter(is_for) {
            self.warnings.push(format!(
                "the certificate {shown} is not for {name} (server-name): clients that use this name refuse it"
            ));
        }
    }

    fn log(&mut self, place: &str) {
        if matches!(place, "-" | "off") {
            return;
        }
        let path = Path::new(place);
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let target = if path.exists() { path } else { parent };
        if let Err(cause) = accessat(CWD, target, Access::WRITE_OK, AtFlags::EACCESS) {
            self.errors.push(format!("the log {place} cannot be written: {cause}"));
        }
    }

    fn descriptors(&mut self, args: &ServeArgs) {
        let asked = u64::from(args.max_connections);
        let needed = asked * limits::DESCRIPTORS_PER_CONNECTION + limits::DESCRIPTORS_KEPT;
        let most = getrlimit(Resource::Nofile).maximum;
        let enough = Room::of(most).connections;
        match most {
            Some(most) if enough < limits::CONNECTIONS_MIN => {
                self.errors.push(format!("{most} files may be open, which is not enough to serve anything (ulimit -n)"));
            }
            Some(most) if (enough as u64) < asked => self.warnings.push(format!(
                "{most} files may be open, which is enough for {enough} connections and not for {asked}: {needed} are needed (ulimit -n)",
            )),
            _ => self.facts.push(format!("files that may be open: enough for {asked} connections")),
        }
    }

    fn print(&self, json: bool) {
        let is_ok = self.errors.is_empty();
        if json {
            let fields = json!({
                "ok": is_ok, "facts": self.facts, "warnings": self.warnings, "errors": self.errors,
            });
            return print_event(&mut std::io::stdout().lock(), "check", fields);
        }
        for fact in &self.facts {
            show!("{fact}");
        }
        for warning in &self.warnings {
            show!("warning: {warning}");
        }
        for error in &self.errors {
            show!("error: {error}");
        }
        show!("{}", if is_ok { "ok" } else { "not ok" });
    }
}

/// Checks that an address can be listened at, which ends at once.
fn bind(address: SocketAddr) -> Result<()> {
    gridlane_net::listen(address)
        .map(drop)
        .map_err(|cause| Error::local_io(format!("cannot listen at {address}"), &cause))
}

/// True if files here can have extended attributes; `None` when it cannot be told without leaving a trace.
fn keeps_attributes(plan: &Plan) -> Option<bool> {
    if !plan.allow_write {
        return match getxattr(&plan.directory, ATTRIBUTE, &mut [0; 1]) {
            Ok(_) | Err(Errno::NODATA | Errno::RANGE) => Some(true),
            Err(Errno::OPNOTSUPP) => Some(false),
            Err(_) => None,
        };
    }
    // A file without a name, gone when it is closed.
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(&plan.directory, flags, Mode::RUSR | Mode::WUSR).ok()?;
    match fsetxattr(&file, ATTRIBUTE, b"1", XattrFlags::CREATE) {
        Ok(()) => Some(true),
        Err(Errno::OPNOTSUPP) => Some(false),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use gridlane_auth::Grants;
    use gridlane_auth::policy::{Principal, Template};
    use gridlane_dav::ResourcePath;

    use super::*;

    #[test]
    fn issuers_that_could_speak_for_others_are_reported() {
        let issuer = |url: &str, vo: Option<&str>| Issuer {
            url: url.to_owned(),
            base: ResourcePath::root(),
            may: Grants::READ,
            vo: vo.map(str::to_owned),
            audiences: Vec::new(),
            clock_skew_s: 60,
        };
        let rule = |who: Principal, under: &str| Rule {
            name: "[[rule]] 1".to_owned(),
            who,
            may: Grants::READ,
            under: Template::parse(under).unwrap(),
        };
        let text = |text: &str| Some(text.to_owned());
        let (a, b) = (issuer("https://a.example", Some("atlas")), issuer("https://b.example", None));
        for (who, under, issuers, doubts) in [
            (Principal::default(), "/home/{subject}", &[a.clone()][..], 0),
            (Principal::default(), "/home/{subject}", &[a.clone(), b.clone()], 1),
            (
                Principal { issuer: text("i"), ..Principal::default() },
                "/home/{subject}",
                &[a.clone(), b.clone()],
                0,
            ),
            (Principal { vo: text("atlas"), ..Principal::default() }, "/", &[a.clone(), b.clone()], 1),
            (Principal::default(), "/{vo}", std::slice::from_ref(&b), 1),
            (Principal::default(), "/{vo}", std::slice::from_ref(&a), 0),
            (Principal::default(), "/", &[a.clone(), b.clone()], 0),
        ] {
            let found = mixed_up(&[rule(who.clone(), under)], issuers);
            assert_eq!(found.len(), doubts, "{who:?} {under}: {found:?}");
        }
    }
}
