//! The tables of a configuration file that are no options: `[[export]]`, and `[root]`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use gridlane_auth::{Policy, Rule};
use gridlane_config::file;
use gridlane_config::value::{Word, Words, wrong};
use gridlane_core::{Network, Result, Url};
use gridlane_dav::ResourcePath;
use gridlane_front::{Exceptions, Need, RequestId, RootAuth, RootSettings, RootTls, Signing};
use gridlane_server::{Compat, open_to_anyone};
use gridlane_store::{Durability, PosixOptions};
use serde::Deserialize;

use super::auth::{AuthPlan, AuthTable};
use super::rules::RuleTable;

/// The settings of an export of `gridlane serve`, checked.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) path: ResourcePath,
    pub(super) directory: PathBuf,
    pub(super) allow_write: bool,
    pub(super) options: PosixOptions,
    pub(super) quota_bytes: Option<u64>,
    pub(super) upload_bytes_max: u64,
    pub(super) compat: Compat,
    pub(super) cors_origins: Vec<String>,
    pub(super) mirrors: Vec<Url>,
    /// About paths of the server, below the export's.
    pub(super) rules: Option<Vec<Rule>>,
}

/// The settings of exports that do not say otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Defaults {
    pub(super) allow_write: bool,
    pub(super) upload_bytes_max: u64,
    pub(super) durability: Durability,
}

impl Plan {
    /// A directory as the only export.
    pub(super) fn of_directory(directory: &Path, defaults: Defaults) -> Plan {
        Plan {
            path: ResourcePath::root(),
            directory: directory.to_owned(),
            allow_write: defaults.allow_write,
            options: PosixOptions { durability: defaults.durability, ..PosixOptions::default() },
            quota_bytes: None,
            upload_bytes_max: defaults.upload_bytes_max,
            compat: Compat::default(),
            cors_origins: Vec::new(),
            mirrors: Vec::new(),
            rules: None,
        }
    }
}

/// The contents of the tables.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) plans: Vec<Plan>,
    pub(super) root: RootSettings,
    pub(super) auth: AuthPlan,
    /// `[[rule]]`.
    pub(super) rules: Vec<Rule>,
}

impl Tables {
    /// The rules: `[[rule]]`, and those of all exports. An export without rules is open to every client where there are
    /// no others.
    pub(super) fn policy(&self) -> Policy {
        let is_ruled = self.auth.is_there || !self.rules.is_empty();
        let rules_of = |plan: &Plan| match &plan.rules {
            Some(rules) => rules.clone(),
            None if is_ruled => Vec::new(),
            None => vec![open_to_anyone("gridlane serve DIR", &plan.path, plan.allow_write)],
        };
        let of_exports = self.plans.iter().flat_map(rules_of);
        Policy::new(self.rules.iter().cloned().chain(of_exports).collect())
    }
}

/// Reads the tables of a file; no exports if it has none.
pub(super) fn read(text: &str, defaults: Defaults) -> Result<Tables> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        export: Vec<Table>,
        root: Option<RootTable>,
        auth: Option<AuthTable>,
        #[serde(default)]
        rule: Vec<RuleTable>,
    }
    // The names that could stand there are in the message.
    let file: File = file::parse(text)?;
    let root = file.root.unwrap_or_default().checked().map_err(|error| error.endpoint("[root]"))?;
    let auth = file.auth.map(AuthTable::checked).transpose().map_err(|error| {
        let inner = error.endpoint_text().map(str::to_owned);
        error.endpoint(inner.unwrap_or_else(|| "[auth]".to_owned()))
    })?;
    let numbered = file.rule.into_iter().enumerate();
    let rules: Vec<Rule> = numbered
        .map(|(index, table)| table.rule(format!("[[rule]] {}", index + 1), &ResourcePath::root()))
        .collect::<Result<_>>()?;
    // Where there are rules, they grant changes; and issuers of tokens do.
    let issuers = auth.iter().flat_map(|auth| &auth.issuers);
    let grants_changes =
        rules.iter().map(|rule| rule.may).chain(issuers.map(|issuer| issuer.may)).any(|may| may.changes());
    let ruled = (auth.is_some() || !rules.is_empty()).then_some(grants_changes);
    let plans = file.export.into_iter().map(|table| table.plan(defaults, ruled)).collect::<Result<_>>()?;
    let auth = auth.unwrap_or_default();
    if root.auth.as_ref().is_some_and(|ways| ways.contains(&RootAuth::Ztn)) && !auth.takes_bearers() {
        let what = "auth is \"ztn\", and no token counts: add [[auth.issuer]] or macaroon-secrets to [auth]";
        return Err(wrong(what.to_owned()).endpoint("[root]"));
    }
    let offers_sss = root.auth.as_ref().is_some_and(|ways| ways.contains(&RootAuth::Sss));
    if offers_sss != auth.sss_keytab.is_some() {
        let what = match offers_sss {
            true => "auth is \"sss\", and there are no shared keys: add sss-keytab to [auth]",
            false => "[auth] has sss-keytab, and no client is asked for it: add \"sss\" to auth",
        };
        return Err(wrong(what.to_owned()).endpoint("[root]"));
    }
    let offers_unix = root.auth.as_ref().is_some_and(|ways| ways.contains(&RootAuth::Unix));
    if !root.trust_unix_from.is_empty() && !offers_unix {
        let what = "trust-unix-from is of no use where no client is asked for its name: add \"unix\" to auth";
        return Err(wrong(what.to_owned()).endpoint("[root]"));
    }
    if root.auth.as_ref().is_some_and(|ways| ways.contains(&RootAuth::Gsi)) {
        if auth.client_ca_dir.is_none() && auth.client_ca.is_empty() {
            let what = "auth is \"gsi\", and no certificate counts: add client-ca-dir or client-ca to [auth]";
            return Err(wrong(what.to_owned()).endpoint("[root]"));
        }
        if !cfg!(feature = "gsi") {
            let what = "auth is \"gsi\", and this program was built without it";
            return Err(wrong(what.to_owned()).hint("build it with the feature gsi").endpoint("[root]"));
        }
    }
    Ok(Tables { plans, root, auth, rules })
}

/// The settings for root:// alone.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RootTable {
    enabled: Option<bool>,
    auth: Option<Words>,
    trust_unix_from: Option<Words>,
    tls: Option<Tls>,
    sitename: Option<String>,
    gsi_cert: Option<PathBuf>,
    gsi_key: Option<PathBuf>,
    delegation: Option<bool>,
    signing: Option<Level>,
    signing_force: Option<bool>,
}

/// The requests that clients have to sign. The numbers are the protocol's.
#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Level {
    None = 0,
    Compatible = 1,
    Standard = 2,
    Intense = 3,
    Pedantic = 4,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Tls {
    Offered,
    Capable,
    Login,
}

impl RootTable {
    fn checked(self) -> Result<RootSettings> {
        let is_word = |name: &String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        if let Some(name) = self.sitename.as_ref().filter(|name| !is_word(name)) {
            return Err(wrong(format!("{name:?} is no sitename: it is one word, as in \"SITE-X\"")));
        }
        let gsi_files = match (self.gsi_cert, self.gsi_key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(wrong("gsi-cert and gsi-key belong together: name both".to_owned())),
        };
        let level = self.signing.unwrap_or(Level::None);
        let is_forced = self.signing_force.unwrap_or(false);
        // XRootD's table of levels has other writes from here on, and leaves this one out.
        let exceptions = match level {
            Level::Intense | Level::Pedantic => Exceptions::default().with(RequestId::WRITEV, Need::Yes),
            _ => Exceptions::default(),
        };
        if is_forced && level == Level::None {
            let what = "signing-force is true, and nothing is to be signed: name a level by signing";
            return Err(wrong(what.to_owned()));
        }
        Ok(RootSettings {
            is_enabled: self.enabled.unwrap_or(true),
            auth: self.auth.map(Words::all).map(|words| ways(&words)).transpose()?,
            trust_unix_from: self.trust_unix_from.map_or(Ok(Vec::new()), |words| {
                Network::parse_list(words.all().iter().map(String::as_str))
            })?,
            tls: self.tls.map(|tls| match tls {
                Tls::Offered => RootTls::Offered,
                Tls::Capable => RootTls::Capable,
                Tls::Login => RootTls::Login,
            }),
            site_name: self.sitename,
            gsi_files,
            takes_proxies: self.delegation.unwrap_or(true),
            signing: Signing { level: level as u8, is_forced, exceptions, ..Signing::default() },
            ..RootSettings::default()
        })
    }
}

/// Ways of authentication by their names.
fn ways(words: &[String]) -> Result<Vec<RootAuth>> {
    if words.iter().all(|word| word == "none") && words.len() == 1 {
        return Ok(Vec::new());
    }
    const KNOWN: [RootAuth; 5] =
        [RootAuth::Gsi, RootAuth::Host, RootAuth::Sss, RootAuth::Unix, RootAuth::Ztn];
    let mut ways = Vec::new();
    for word in words {
        let Some(way) = KNOWN.into_iter().find(|way| way.name() == word) else {
            let what = format!(
                "{word:?} is no way to authenticate: auth is \"none\" alone, or a list of \"gsi\", \"host\", \"sss\", \"unix\" and \"ztn\""
            );
            return Err(wrong(what));
        };
        if ways.contains(&way) {
            return Err(wrong(format!("{word:?} is in auth twice: remove one")));
        }
        ways.push(way);
    }
    match ways.is_empty() {
        true => Err(wrong("auth is an empty list: write \"none\" for no authentication".to_owned())),
        false => Ok(ways),
    }
}

/// One table as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    path: Option<String>,
    directory: PathBuf,
    read_only: Option<bool>,
    allow_write: Option<bool>,
    uid: Option<u32>,
    gid: Option<u32>,
    umask: Option<Word>,
    quota: Option<Word>,
    max_upload: Option<Word>,
    durability: Option<String>,
    #[serde(default)]
    compat: CompatTable,
    #[serde(default)]
    cors_origins: Vec<String>,
    #[serde(default)]
    mirrors: Vec<String>,
    rules: Option<Vec<RuleTable>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct CompatTable {
    create_parents: bool,
    refuse_recursive_delete: bool,
}

impl Table {
    /// `ruled`: there is a table of rules for all exports, and whether it grants any change.
    fn plan(self, defaults: Defaults, ruled: Option<bool>) -> Result<Plan> {
        let name = self.path.clone().unwrap_or_else(|| "/".to_owned());
        self.checked(&name, defaults, ruled).map_err(|error| {
            let inner = error.endpoint_text().map(str::to_owned);
            error.endpoint(inner.unwrap_or_else(|| format!("[[export]] {name}")))
        })
    }

    fn checked(self, path: &str, defaults: Defaults, ruled: Option<bool>) -> Result<Plan> {
        let parsed = ResourcePath::parse(path).map_err(|rejection| wrong(rejection.message.into_owned()))?;
        let named = |(index, table): (usize, RuleTable)| {
            table.rule(format!("[[export]] {path}, rule {}", index + 1), &parsed)
        };
        let rules: Option<Vec<Rule>> =
            self.rules.map(|rules| rules.into_iter().enumerate().map(named).collect()).transpose()?;
        let own = rules.as_ref().map(|rules| rules.iter().any(|rule| rule.may.changes()));
        let grants_changes = own.or(ruled).map(|changes| changes || ruled == Some(true));
        let allow_write = match (self.read_only.unwrap_or(false), self.allow_write) {
            (true, Some(true)) => {
                return Err(wrong(
                    "read-only and allow-write contradict each other: leave one of them out".to_owned(),
                ));
            }
            (true, _) | (_, Some(false)) => false,
            (false, said) => grants_changes.unwrap_or(said.unwrap_or(defaults.allow_write)),
        };
        let durability = match self.durability.as_deref() {
            Some(text) => Durability::from_str(text)?,
            None => defaults.durability,
        };
        Ok(Plan {
            path: parsed.to_directory_form(),
            directory: self.directory,
            allow_write,
            options: PosixOptions {
                durability,
                uid: self.uid,
                gid: self.gid,
                umask: self.umask.map(Word::umask).transpose()?,
                ..PosixOptions::default()
            },
            quota_bytes: self.quota.map(Word::bytes).transpose()?,
            upload_bytes_max: self.max_upload.map_or(Ok(defaults.upload_bytes_max), Word::bytes)?,
            compat: Compat {
                create_parents: self.compat.create_parents,
                refuse_recursive_delete: self.compat.refuse_recursive_delete,
            },
            cors_origins: self.cors_origins.into_iter().map(origin).collect::<Result<_>>()?,
            mirrors: self.mirrors.iter().map(|url| mirror(url)).collect::<Result<_>>()?,
            rules,
        })
    }
}

/// An `Origin` of a browser: scheme and host, without a path.
fn origin(text: String) -> Result<String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_origin = host.is_some_and(|host| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@,".contains(&byte))
    });
    match text == "*" || is_origin {
        true => Ok(text),
        false => Err(wrong(format!("{text:?} is no origin: write \"https://site.example\", or \"*\""))),
    }
}

fn mirror(text: &str) -> Result<Url> {
    let url = Url::parse_absolute(text).map_err(|error| wrong(error.message().to_owned()))?;
    match url.scheme().is_root() {
        false => Ok(url),
        true => Err(wrong(format!("{url} cannot be a mirror: mirrors are http and https URLs"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: Defaults =
        Defaults { allow_write: false, upload_bytes_max: 1000, durability: Durability::File };

    #[test]
    fn a_table_with_everything() {
        let text = r#"
            verbose = true
            [serve]
            listen = ["127.0.0.1:0"]
            [[export]]
            path = "/data"
            directory = "/srv/data"
            uid = 1000
            gid = 100
            umask = "027"
            quota = "10TB"
            max-upload = 5000
            durability = "dir"
            compat = { create-parents = true, refuse-recursive-delete = true }
            cors-origins = ["https://site.example", "*"]
            mirrors = ["https://other.example/data/"]
            rules = [
                { addresses = "any", may = ["read", "list"] },
                { addresses = ["loopback", "10.0.0.0/8"], may = ["write", "delete"], under = "/in" },
            ]
            [[export]]
            path = "/scratch"
            directory = "/scratch"
            read-only = true
        "#;
        let plans = read(text, DEFAULTS).unwrap().plans;
        let [data, scratch] = &plans[..] else { panic!("{plans:?}") };
        assert_eq!((data.path.to_string().as_str(), data.allow_write), ("/data/", true));
        assert_eq!((data.options.uid, data.options.umask), (Some(1000), Some(0o27)));
        assert_eq!((data.options.durability, data.quota_bytes), (Durability::Dir, Some(10_000_000_000_000)));
        assert_eq!((data.upload_bytes_max, data.compat.create_parents), (5000, true));
        let rules: Vec<_> = data.rules.iter().flatten().collect();
        let said = |rule: &&Rule| format!("{}: {} under {}", rule.name, rule.may, rule.under);
        assert_eq!(
            rules.iter().map(said).collect::<Vec<_>>(),
            [
                "[[export]] /data, rule 1: read list under /data",
                "[[export]] /data, rule 2: create overwrite delete under /data/in"
            ]
        );
        assert_eq!((scratch.allow_write, scratch.upload_bytes_max), (false, 1000));
        let policy = read(text, DEFAULTS).unwrap().policy();
        let open = policy.rules().last().unwrap();
        assert_eq!(
            (open.may.to_string().as_str(), open.under.to_string().as_str()),
            ("read list stage", "/scratch")
        );
        assert!(read("[serve]\n", DEFAULTS).unwrap().plans.is_empty());
    }

    #[test]
    fn nothing_is_open_where_there_are_rules() {
        let count = |more: &str| {
            let text = format!("[[export]]\ndirectory = \"/d\"\n{more}");
            read(&text, DEFAULTS).unwrap().policy().rules().len()
        };
        assert_eq!(count(""), 1);
        assert_eq!(count("[auth]\n"), 0);
        assert_eq!(count("[[rule]]\nwho = \"anyone\"\nmay = [\"read\"]\n"), 1);
        assert_eq!(count("rules = []\n"), 0);
    }

    #[test]
    fn settings_over_root() {
        let root = |table: &str| read(table, DEFAULTS).map(|tables| tables.root);
        let usual = RootSettings { takes_proxies: true, ..RootSettings::default() };
        assert_eq!(root("").unwrap(), usual);
        assert_eq!(root("[root]\n").unwrap(), usual);
        assert!(!root("[root]\ndelegation = false\n").unwrap().takes_proxies);
        let said = root("[root]\nenabled = false\nauth = \"unix\"\nsitename = \"SITE-X\"\n").unwrap();
        assert_eq!(
            (said.is_enabled, said.auth, said.site_name.as_deref()),
            (false, Some(vec![RootAuth::Unix]), Some("SITE-X"))
        );
        assert_eq!(root("[root]\nauth = \"none\"\n").unwrap().auth, Some(Vec::new()));
        let said =
            root("[root]\nauth = [\"ztn\", \"unix\"]\ntls = \"login\"\n[auth]\nmacaroon-secrets = \"/m\"\n")
                .unwrap();
        assert_eq!((said.auth, said.tls), (Some(vec![RootAuth::Ztn, RootAuth::Unix]), Some(RootTls::Login)));
        let gsi = "auth = \"gsi\"\ngsi-cert = \"/c\"\ngsi-key = \"/k\"\nsigning = \"intense\"\nsigning-force = true";
        let said = root(&format!("[root]\n{gsi}\n[auth]\nclient-ca = [\"/a\"]\n")).unwrap();
        assert_eq!(
            (said.auth, said.gsi_files),
            (Some(vec![RootAuth::Gsi]), Some((PathBuf::from("/c"), PathBuf::from("/k"))))
        );
        assert_eq!((said.signing.level, said.signing.is_forced), (3, true));
        for (line, word) in [
            ("auth = \"gsi\"", "no certificate counts"),
            ("auth = \"krb5\"", "krb5"),
            ("gsi-cert = \"/c\"", "gsi-key"),
            ("gsi-key = \"/k\"", "gsi-cert"),
            ("signing = \"all\"", "all"),
            ("signing-force = true", "signing"),
            ("auth = \"ztn\"", "no token counts"),
            ("auth = []", "none"),
            ("auth = [\"none\", \"unix\"]", "none"),
            ("auth = [\"unix\", \"unix\"]", "twice"),
            ("auth = \"sss\"", "sss-keytab"),
            ("auth = \"unix\"\n[auth]\nsss-keytab = \"/k\"", "add \"sss\""),
            ("trust-unix-from = \"loopback\"", "unix"),
            ("auth = \"unix\"\ntrust-unix-from = \"10.0.0.1/8\"", "10.0.0.1/8"),
            ("tls = \"session\"", "session"),
            ("sitename = \"a b\"", "sitename"),
            ("port = 1", "port"),
        ] {
            let error = root(&format!("[root]\n{line}\n")).unwrap_err();
            assert!(error.to_string().contains(word), "{line}: {error}");
            assert_eq!(error.kind().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn rules_and_options_allow_writing() {
        let allows = |more: &str, default| {
            let text = format!("[[export]]\ndirectory = \"/d\"\n{more}\n");
            let defaults = Defaults { allow_write: default, ..DEFAULTS };
            read(&text, defaults).map(|tables| tables.plans[0].allow_write).ok()
        };
        let writing = "rules = [{ addresses = \"any\", may = [\"delete\"] }]";
        let reading = "rules = [{ addresses = \"any\", may = [\"read\"] }]";
        for (more, default, expected) in [
            ("", false, Some(false)),
            ("", true, Some(true)),
            ("read-only = true", true, Some(false)),
            ("allow-write = true", false, Some(true)),
            ("allow-write = false", true, Some(false)),
            (writing, false, Some(true)),
            (reading, true, Some(false)),
            ("allow-write = true\nread-only = true", false, None),
            (&format!("read-only = true\n{writing}"), false, Some(false)),
            (&format!("{reading}\n[[rule]]\nvo = \"x\"\nmay = [\"create\"]"), false, Some(true)),
            ("[[rule]]\nvo = \"x\"\nmay = [\"read\"]", true, Some(false)),
            ("[auth]\nrealm = \"x\"", true, Some(false)),
        ] {
            assert_eq!(allows(more, default), expected, "{more} {default}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (table, word) in [
            ("path = \"/a\"", "directory"),
            ("directory = \"/d\"\nwings = 2", "wings"),
            ("directory = \"/d\"\npath = \"a\"", "slash"),
            ("directory = \"/d\"\nquota = \"much\"", "much"),
            ("directory = \"/d\"\numask = \"999\"", "umask"),
            ("directory = \"/d\"\ndurability = \"very\"", "very"),
            ("directory = \"/d\"\ncors-origins = [\"site.example\"]", "origin"),
            ("directory = \"/d\"\ncors-origins = [\"https://site.example/\"]", "origin"),
            ("directory = \"/d\"\nmirrors = [\"x\"]", "x"),
            ("directory = \"/d\"\nrules = [{ addresses = \"10.0.0.1/8\", may = [] }]", "10.0.0.1/8"),
            ("directory = \"/d\"\nrules = [{ addresses = \"any\", may = [\"fly\"] }]", "fly"),
            ("directory = \"/d\"\nrules = [{ may = [\"read\"] }]", "names no clients"),
            ("directory = \"/d\"\nrules = [{ addresses = [], may = [\"read\"] }]", "no client matches"),
            ("directory = \"/d\"\nrules = [{ addresses = \"any\", may = [], under = \"/{x}\" }]", "{x}"),
            ("directory = \"/d\"\nrules = [{ who = \"me\", may = [] }]", "me"),
            ("directory = \"/d\"\ncompat = { fly = true }", "fly"),
        ] {
            let error = read(&format!("[[export]]\n{table}\n"), DEFAULTS).unwrap_err();
            assert!(error.to_string().contains(word), "{table}: {error}");
            assert_eq!(error.kind().exit_code(), 2, "{table}");
        }
    }

    /// The names that the tables know are in the message about one that they do not.
    fn known_keys(table: &str) -> Vec<String> {
        let error = read(table, DEFAULTS).unwrap_err().to_string();
        let list = error.split("expected one of").nth(1).or_else(|| error.split("expected").nth(1)).unwrap();
        list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_reference_page_has_every_key_and_no_other() {
        use clap::CommandFactory as _;
        let page = include_str!("../../../../docs/reference/serve-config.md");
        let documented = |heading: &str| -> Vec<String> {
            let section = page.split(&format!("\n## {heading}\n")).nth(1).unwrap_or_default();
            let section = section.split("\n## ").next().unwrap_or_default();
            let row = |line: &str| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned());
            let mut keys: Vec<String> = section.lines().filter_map(row).collect();
            keys.sort();
            keys
        };
        let sorted = |mut keys: Vec<String>| {
            keys.sort();
            keys
        };
        let exports = known_keys("[[export]]\ndirectory = \"/d\"\nno-such-key = 1\n");
        assert_eq!(documented("Exports"), sorted(exports));
        let rules = "[[export]]\ndirectory = \"/d\"\nrules = [{ no-such-key = 1 }]\n";
        assert_eq!(documented("Rules"), sorted(known_keys(rules)));
        let compat = "[[export]]\ndirectory = \"/d\"\ncompat = { no-such-key = 1 }\n";
        assert_eq!(documented("Compat"), sorted(known_keys(compat)));
        assert_eq!(documented("Credentials"), sorted(known_keys("[auth]\nno-such-key = 1\n")));
        let issuer = "[[auth.issuer]]\nurl = \"https://i.example\"\nno-such-key = 1\n";
        assert_eq!(documented("Issuers"), sorted(known_keys(issuer)));
        assert_eq!(documented("Rules"), sorted(known_keys("[[rule]]\nno-such-key = 1\n")));
        assert_eq!(documented("Over root://"), sorted(known_keys("[root]\nno-such-key = 1\n")));
        let command = crate::args::Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        let options = serve.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned));
        let options = options.filter(|name| !matches!(name.as_str(), "check" | "help")).collect();
        assert_eq!(documented("Options"), sorted(options));
    }
}
