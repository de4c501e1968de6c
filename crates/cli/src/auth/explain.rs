//! `gridlane auth explain`: which rule of a configuration decides, and why the others do not.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use gridlane_auth::dn;
use gridlane_auth::gridmap::GridMap;
use gridlane_auth::identity::{CertificateIdentity, UserIdentity};
use gridlane_auth::policy::{Decision, Mismatch, Policy};
use gridlane_auth::token::{self, Issuer};
use gridlane_auth::{Asker, Capability, Fqan, Identity, Operation};
use gridlane_core::{Error, ErrorKind, Result};
use gridlane_dav::ResourcePath;
use serde_json::{Value, json};

use crate::args::Global;
use crate::output::{exit_code, print_event, to_stdout};
use crate::pki::usage;
use crate::serve::{self, ConfiguredRules};

/// Print the rule of a server's configuration that decides, and why the others do not apply.
///
/// The client is described by options, or read from a line of the server's log (--log-line); without any it has no
/// credentials. Exits with 0 if it may be done, with 4 if not.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The operation; with --log-line the one of the line
    #[arg(required_unless_present = "log_line")]
    operation: Option<OperationWord>,
    /// A path of the server
    #[arg(required_unless_present = "log_line")]
    path: Option<String>,
    /// Reads a line of the access or audit log from standard input instead
    #[arg(long, conflicts_with_all = ["operation", "path", "dn", "fqan", "user", "issuer", "subject", "scope", "group", "address"])]
    log_line: bool,
    /// Subject of the end-entity certificate
    #[arg(long, value_name = "DN", conflicts_with_all = ["issuer", "user"])]
    dn: Option<String>,
    /// An attribute by VOMS: /atlas/Role=production; may be repeated
    #[arg(long, value_name = "FQAN", requires = "dn")]
    fqan: Vec<Fqan>,
    /// User, by its password
    #[arg(long, value_name = "NAME", conflicts_with = "issuer")]
    user: Option<String>,
    /// Issuer of the token
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// Its subject
    #[arg(long, value_name = "NAME", requires = "issuer")]
    subject: Option<String>,
    /// One of its scopes: storage.read:/run1; may be repeated
    #[arg(long, value_name = "SCOPE", requires = "issuer")]
    scope: Vec<String>,
    /// One of its groups: /atlas/production; may be repeated
    #[arg(long, value_name = "GROUP", requires = "issuer")]
    group: Vec<Fqan>,
    /// The client's address
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
    /// Directory that `gridlane serve` was given, where no configuration file has exports
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// The effect on something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OperationWord {
    /// Ask whether it is there, its size and checksum
    Stat,
    /// Read a file
    Read,
    /// List a directory
    List,
    /// Store a file where none was
    Create,
    /// Make a directory
    Mkdir,
    /// Replace or change a file
    Overwrite,
    /// Remove
    Delete,
    /// Give another name
    Rename,
    /// Stage a file
    Stage,
    /// Administer the server
    Admin,
}

impl From<OperationWord> for Operation {
    fn from(word: OperationWord) -> Operation {
        match word {
            OperationWord::Stat => Operation::Stat,
            OperationWord::Read => Operation::Read,
            OperationWord::List => Operation::List,
            OperationWord::Create => Operation::Create,
            OperationWord::Mkdir => Operation::Mkdir,
            OperationWord::Overwrite => Operation::Overwrite,
            OperationWord::Delete => Operation::Delete,
            OperationWord::Rename => Operation::Rename,
            OperationWord::Stage => Operation::Stage,
            OperationWord::Admin => Operation::Admin,
        }
    }
}

/// The question.
struct Question {
    identity: Identity,
    address: IpAddr,
    operation: Operation,
    path: ResourcePath,
    /// The decision that the log tells of.
    decided: Option<String>,
    /// The answer to the client by the log: more than a decision where something of a credential did not count.
    said: Option<String>,
}

/// Exits with 0 if it may be done, with 4 if not.
pub(super) fn run(args: &ExplainArgs, global: &Global) -> Result<ExitCode> {
    let rules = serve::configured_rules(global, args.directory.as_deref())?;
    let question = match args.log_line {
        true => logged(&read_line()?)?,
        false => asked(args, &rules.issuers, &rules.gridmap)?,
    };
    let (is_granted, text) = match global.json {
        true => {
            let (is_granted, fields) = event(&rules, &question);
            print_event(&mut std::io::stdout().lock(), "decision", fields);
            (is_granted, String::new())
        }
        false => told(&rules, &question),
    };
    // A closed output changes nothing.
    to_stdout(format_args!("{text}"));
    Ok(exit_code((!is_granted).then_some(ErrorKind::Denied)))
}

fn asked(args: &ExplainArgs, issuers: &[Issuer], gridmap: &GridMap) -> Result<Question> {
    let path = args.path.as_deref().unwrap_or("/");
    let path = ResourcePath::parse(path).map_err(|rejection| usage(rejection.message.into_owned()))?;
    let operation = args.operation.map_or(Operation::Stat, Operation::from);
    let identity = match (&args.dn, &args.user, &args.issuer) {
        (Some(dn), _, _) => Identity::Certificate(CertificateIdentity {
            dn: dn::normal(dn),
            user: gridmap.user(dn).map(str::to_owned),
            fqans: args.fqan.clone(),
            expires_s: i64::MAX,
        }),
        (_, Some(name), _) => Identity::User(UserIdentity::by_password(name.clone())),
        (_, _, Some(url)) => {
            let issuer = issuers.iter().find(|issuer| issuer.url == *url).ok_or_else(|| {
                let known: Vec<&str> = issuers.iter().map(|issuer| issuer.url.as_str()).collect();
                usage(format!("the configuration has no issuer {url}"))
                    .hint(format!("it has: {}", known.join(", ")))
            })?;
            let subject = args.subject.as_deref().unwrap_or_default();
            let token = token::would_be(issuer, subject, &args.scope, args.group.clone());
            Identity::Token(token.map_err(|refusal| usage(refusal.to_string()))?)
        }
        (None, None, None) => Identity::Anonymous,
    };
    Ok(Question { identity, address: args.address, operation, path, decided: None, said: None })
}

fn read_line() -> Result<String> {
    let unreadable = |cause| Error::local_io("cannot read the log line", &cause);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(unreadable)?;
    Ok(line)
}

/// The question that a line of a log is the answer to.
fn logged(line: &str) -> Result<Question> {
    let record: Value = serde_json::from_str(line)
        .map_err(|cause| usage(format!("that is no line of an access or audit log: {cause}")))?;
    let text = |key: &str| record[key].as_str();
    let missing = |key: &str| {
        usage(match text("error") {
            Some(error) => format!("no rule was asked about it. The client was told: {error}"),
            None => format!("the line has no {key:?}: no rule was asked about it"),
        })
    };
    let operation = text("operation").ok_or_else(|| missing("operation"))?;
    let operation = OperationWord::from_str(operation, true).map_err(|_| missing("operation"))?.into();
    // A request may be about two paths, and need something of the directories that lead there.
    let path = text("decided_path").or(text("path")).ok_or_else(|| missing("path"))?;
    let path = ResourcePath::parse(path).map_err(|rejection| usage(rejection.message.into_owned()))?;
    let address = match (text("client"), text("peer")) {
        (Some(client), _) => client.parse().ok(),
        (None, Some(peer)) => peer.parse::<std::net::SocketAddr>().ok().map(|peer| peer.ip()),
        (None, None) => None,
    };
    let address = address.ok_or_else(|| missing("peer"))?.to_canonical();
    let identity = match record.get("identity") {
        Some(identity) => serde_json::from_value(identity.clone())
            .map_err(|cause| usage(format!("its \"identity\" is not one: {cause}")))?,
        None => Identity::Anonymous,
    };
    let of = |key: &str| text(key).map(str::to_owned);
    Ok(Question { identity, address, operation, path, decided: of("decision"), said: of("error") })
}

/// One line for each rule: its name, and why it does or does not grant it.
fn verdicts<'a>(policy: &'a Policy, question: &Question) -> Vec<(&'a str, Option<Mismatch>)> {
    let asker = Asker { identity: &question.identity, address: question.address };
    let of = |rule: &'a gridlane_auth::Rule| {
        (rule.name.as_str(), rule.mismatch(asker, question.operation, question.path.names()))
    };
    policy.rules().iter().map(of).collect()
}

fn why(mismatch: &Option<Mismatch>) -> String {
    match mismatch {
        None => "is about this".to_owned(),
        Some(Mismatch::Principal(condition)) => format!("is about others: {condition}"),
        Some(Mismatch::Under) => "is about another place".to_owned(),
        Some(Mismatch::May) => "grants other things".to_owned(),
    }
}

fn shown(identity: &Identity) -> String {
    let more: Vec<String> = match identity {
        Identity::Token(token) => {
            let issuer = std::iter::once(format!("issuer {}", token.issuer));
            issuer
                .chain(token.scopes.iter().cloned())
                .chain(token.groups.iter().map(Fqan::to_string))
                .collect()
        }
        _ => identity.fqans().iter().map(Fqan::to_string).collect(),
    };
    let name = match identity.name() {
        "" => "no name",
        name => name,
    };
    match (identity.is_anonymous(), more.is_empty()) {
        (true, _) => "anonymous".to_owned(),
        (false, true) => format!("{name} ({})", identity.method()),
        (false, false) => format!("{name} ({}; {})", identity.method(), more.join(" ")),
    }
}

fn told(rules: &ConfiguredRules, question: &Question) -> (bool, String) {
    let (policy, Question { identity, address, operation, path, decided, said }) = (&rules.policy, question);
    let (is_granted, decision) = rules.decide(Asker { identity, address: *address }, *operation, path);
    let mut text =
        format!("client:  {}, from {address}\nrequest: {} {path}\n", shown(identity), operation.verb());
    for Capability { may, under } in identity.capabilities().unwrap_or_default() {
        text.push_str(&format!("         by itself it may {may} under {under}\n"));
    }
    if identity.capabilities().is_some() {
        text.push_str("         and the rules for anyone; other rules do not count for it\n");
    }
    let verdicts = verdicts(policy, question);
    let width = verdicts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    if verdicts.is_empty() {
        text.push_str("\nThere are no rules.\n");
    } else {
        text.push('\n');
    }
    for ((name, mismatch), rule) in verdicts.iter().zip(policy.rules()) {
        let (may, under) = (rule.may, &rule.under);
        text.push_str(&format!("  {name:width$}  {}  [{may} under {under}]\n", why(mismatch)));
    }
    let verb = if is_granted { "granted" } else { "refused" };
    text.push_str(&format!("\n{verb}: {decision}\n"));
    if let Some(decided) = decided.as_deref().filter(|decided| *decided != decision) {
        text.push_str(&format!("when it was logged: {decided}\n"));
    }
    if let Some(said) = said.as_deref().filter(|said| *said != decision) {
        text.push_str(&format!("the client was told: {said}\n"));
    }
    (is_granted, text)
}

fn event(rules: &ConfiguredRules, question: &Question) -> (bool, Value) {
    let (policy, Question { identity, address, operation, path, decided, said }) = (&rules.policy, question);
    let asker = Asker { identity, address: *address };
    let (is_granted, decision) = rules.decide(asker, *operation, path);
    let verdicts = verdicts(policy, question);
    let rules: Vec<Value> = verdicts
        .iter()
        .map(|(name, mismatch)| json!({ "rule": name, "applies": mismatch.is_none(), "why": why(mismatch) }))
        .collect();
    let by = match policy.decide(asker, *operation, path.names()) {
        Decision::ByRule(_) if is_granted => "rule",
        Decision::ByCapability(_) if is_granted => "capability",
        _ => "nothing",
    };
    let fields = json!({
        "granted": is_granted, "by": by, "decision": decision, "logged_decision": decided, "logged_error": said,
        "identity": identity, "address": address, "operation": operation.verb(), "path": path.to_string(), "rules": rules,
    });
    (is_granted, fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_logs() {
        for operation in Operation::ALL {
            assert_eq!(OperationWord::from_str(operation.word(), false).map(Operation::from), Ok(operation));
        }
    }

    #[test]
    fn what_a_client_was_told_beside_the_decision_is_repeated() {
        let line =
            r#"{"peer":"127.0.0.1:1","path":"/f","operation":"read","decision":"no","error":"no; old"}"#;
        let question = logged(line).unwrap();
        assert_eq!((question.decided.as_deref(), question.said.as_deref()), (Some("no"), Some("no; old")));
        let bad = logged(r#"{"peer":"127.0.0.1:1","path":"/f","status":401,"error":"the token expired"}"#);
        assert!(bad.err().is_some_and(|error| error.message().contains("the token expired")));
    }
}
