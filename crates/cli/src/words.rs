//! The words of the command line for the values of the crates below: here alone are options named for them.

use std::fmt;

use gridlane_client::LeftOut;
use gridlane_client::doctor::Answer;
use gridlane_client::events::{PlainWords, Words};
use gridlane_client::third_party::{Detour, Mode};
use gridlane_core::{Error, Hint};
use gridlane_engine::{Basis, Limit};

/// The words of the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandLine;

impl Words for CommandLine {
    fn hint(&self, about: &Hint) -> String {
        hint(about)
    }

    fn limit(&self, by: Limit) -> String {
        limit(by)
    }

    fn basis(&self, of: Basis) -> String {
        basis(of)
    }

    fn left_out(&self, why: LeftOut) -> String {
        left_out(why)
    }

    fn answer(&self, found: &Answer) -> String {
        answer(found)
    }
}

/// An error, for people.
pub(crate) fn error(error: &Error) -> impl fmt::Display {
    error.worded(hint)
}

/// Advice about a failure.
pub(crate) fn hint(hint: &Hint) -> String {
    let words = match hint {
        Hint::Text(words) => words,
        Hint::ForwardCredentials { host } => {
            return format!(
                "credentials go to the hosts that you name only: if {host} may see them, add --forward-credentials-to {host}"
            );
        }
        Hint::Replace => "replace it with --force",
        Hint::ReplaceOrRename => "replace it with --force, or choose another name",
        Hint::UpdateOrReplace => "--update leaves what is up to date, --force replaces it",
        Hint::MoveOver => "--force replaces it",
        Hint::CopyTree => "copy it with -r (`gridlane cp -r`); `gridlane ls` lists it",
        Hint::ListOrCopyTree => "`gridlane ls` lists it, `gridlane cp -r` copies it",
        Hint::RemoveTree => "rm -r removes it with all that is in it",
        Hint::MakeDirectory => "make the directory first",
        Hint::CopyAndRemove => "copy with `gridlane cp`, compare, then remove with `gridlane rm`",
        Hint::SeparateByNul => "with -0 names may have them",
        Hint::CopyMetalink => "--no-metalink copies the metalink itself, as the file that it is",
        Hint::SaveMetalink => {
            "to have them all, save it as NAME.meta4 with --no-metalink, and copy that into a directory"
        }
        Hint::NameDirectory => "name an existing directory as the target, without --mirror and --checksum",
        Hint::WaitLonger => "try again later, or with a longer --timeout",
        Hint::ContinueOrWaitLonger => {
            "what is there is kept: run the same command again, or with a longer --timeout"
        }
        Hint::StateChecksum => {
            "say what is right with --checksum TYPE:VALUE, or do without --require-verified"
        }
        Hint::AcceptUnverified => "what was uploaded was removed; do without --require-verified",
        Hint::StateChecksumOrName => {
            "give the right one with --checksum TYPE:VALUE, or name the replica yourself"
        }
        Hint::StateChecksumOrAdd => {
            "give the right one with --checksum TYPE:VALUE, or add a replica with --mirror"
        }
        Hint::PiecesContradict => "every piece is as the metalink says: it contradicts itself, or --checksum",
        Hint::CompareOtherwise => "copies are compared with other replicas, or with --checksum TYPE:VALUE",
        Hint::OtherCredentials => {
            "name another one, or send none with --no-credentials; gridlane doctor lists those that it finds"
        }
        Hint::NameKey => "name the file that it is in: --key FILE, or X509_USER_KEY",
        Hint::LogIn => {
            "log in: gridlane auth login ISSUER, or the name of the login to make it again; gridlane auth login --list lists them"
        }
        Hint::RenewToken => {
            "get a new one (oidc-token, htgettoken), or send none with --no-credentials; nothing was sent"
        }
        Hint::RenewProxy => {
            "make a new one (voms-proxy-init), or send none with --no-credentials; nothing was sent"
        }
        Hint::RenewCertificate => "renew it, or send none with --no-credentials; nothing was sent",
        Hint::GetCredentials => {
            "get a token (--token-file, BEARER_TOKEN_FILE) or a proxy (voms-proxy-init); gridlane doctor lists those that it finds"
        }
        Hint::ShowCredentials => {
            "send a token (--token-file, BEARER_TOKEN_FILE) or a proxy (voms-proxy-init); gridlane doctor lists those that it finds"
        }
        Hint::ShowToken => "send a token: by --token-file, BEARER_TOKEN_FILE or BEARER_TOKEN",
        Hint::CheckScopes => {
            "do its scopes cover this path? gridlane doctor shows them; else ask the operator of the server"
        }
        Hint::CheckToken => {
            "has it expired, or is it for another audience? gridlane doctor prints its content"
        }
        Hint::CheckCertificate => {
            "does the server trust its authority, and is it still valid (gridlane doctor)? Else ask the operator of the server"
        }
        Hint::RenewOrSetClock => {
            "renew it; or this machine's clock or the server's is wrong (gridlane doctor URL)"
        }
        Hint::NameAuthority => {
            "name its authority: --ca FILE, or the directory of authorities with X509_CERT_DIR"
        }
        Hint::NameAuthorityOrMend => "name its authority with --ca FILE, or fix the server's certificate",
        Hint::NameCertificate => "make a proxy (voms-proxy-init), or name one with --cert FILE",
        Hint::GiveCertificate => "give one with --cert FILE --key FILE",
        Hint::CheckServers => "leave out --insecure",
        Hint::InstallAuthorities => "install ca-certificates, or name a file with --ca or SSL_CERT_FILE",
        Hint::MakePasswordLine => "make a line with `gridlane auth password NAME` or `htpasswd -nB NAME`",
        Hint::TakeDownOrRename => "take it down first (gridlane wan down), or give this one another --name",
        Hint::TakeDownAgain => "run gridlane wan down again",
        Hint::TakeDown => "gridlane wan down ends it, and removes what is left of it",
        Hint::TakeDownRemains => {
            "one was, and its process died without cleaning up: gridlane wan down removes what is left of it"
        }
        Hint::BringUp => "bring one up: gridlane wan up SCENARIO.toml",
        Hint::AllowAddress => "the operator can allow its network with --tpc-allow",
        Hint::ShowAllRows => "see all names without --only and --quick",
    };
    words.to_owned()
}

/// The limit of a copy's rate.
pub(crate) fn limit(limit: Limit) -> String {
    match limit {
        Limit::Rate => "--limit-rate".to_owned(),
        other => other.to_string(),
    }
}

/// The party whose word the bytes were compared with.
pub(crate) fn basis(basis: Basis) -> String {
    match basis {
        Basis::User => "as --checksum says".to_owned(),
        other => PlainWords.basis(other),
    }
}

/// The reason for which nothing may be changed in an export that is read-only.
pub(crate) const READ_ONLY: &str = "this export is read-only; its operator can change that, \
                                    with --allow-write, or by taking `read-only` out of its [[export]]";

/// The reason for which a file was left out.
pub(crate) fn left_out(why: LeftOut) -> String {
    match why {
        LeftOut::Link => "it is a symbolic link (--links follow copies what it leads to)".to_owned(),
        other => other.to_string(),
    }
}

/// A copy that goes another way than it was to go, for this reason. Its `target` need not be named again.
pub(crate) fn detour(detour: Detour, why: &Error, target: Option<&str>) -> String {
    let way = match detour {
        Detour::Streamed => "the bytes go through this machine",
        Detour::OtherMode(Mode::Pull) => "now the target's server is asked to fetch it",
        Detour::OtherMode(Mode::Push) => "now the source's server is asked to send it",
        Detour::OneSource => "the other sources are used only if the first one does not do",
    };
    match why.endpoint_text() {
        Some(endpoint) if Some(endpoint) != target && !why.message().contains(endpoint) => {
            format!("{way}: {endpoint}: {}", why.message())
        }
        _ => format!("{way}: {}", why.message()),
    }
}

/// An answer of the diagnosis.
pub(crate) fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Text(words) => words.clone(),
        Answer::Authorities { system, named } => {
            format!("{system} of the system, {named} named (--ca, X509_CERT_DIR)")
        }
        Answer::NothingShown => "none is sent: --no-credentials".to_owned(),
    }
}
