//! Hints: what to do about a failure, as values.
//!
//! A command line, a daemon and a Python module call the same thing by different names: an option, a key of a
//! configuration file, an argument. So what would name an option is a value here, each front end has its own words for it,
//! and where it has none the words here do, which name nothing of any of them. Advice that is the same everywhere is
//! [`Hint::Text`].

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! hints {
    ($($(#[$doc:meta])+ $variant:ident = $name:literal => $words:literal,)+) => {
        /// Advice about a failure.
        ///
        /// It is serialised by its name, which stays: `"replace"`, `{"text": "wait"}`.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Hint {
            /// Words that are the same for every front end.
            #[serde(rename = "text")]
            Text(String),
            /// Credentials are shown to hosts that were named, and this one was not.
            #[serde(rename = "forward_credentials")]
            ForwardCredentials {
                /// The host that would get them.
                host: String,
            },
            $($(#[$doc])+ #[serde(rename = $name)] $variant,)+
        }

        impl Hint {
            /// Every hint without a part of its own.
            pub const PLAIN: &[Hint] = &[$(Hint::$variant),+];

            /// The name, as in its serialised form.
            pub fn name(&self) -> &'static str {
                match self {
                    Hint::Text(_) => "text",
                    Hint::ForwardCredentials { .. } => "forward_credentials",
                    $(Hint::$variant => $name,)+
                }
            }

            /// The hint without a part of its own that has this name.
            pub fn named(name: &str) -> Option<Hint> {
                Hint::PLAIN.iter().find(|hint| hint.name() == name).cloned()
            }
        }

        impl fmt::Display for Hint {
            /// Words for a reader that no front end has words for.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Hint::Text(words) => f.write_str(words),
                    Hint::ForwardCredentials { host } => write!(
                        f,
                        "credentials go to named hosts only: name {host} as well if it may see them"
                    ),
                    $(Hint::$variant => f.write_str($words),)+
                }
            }
        }
    };
}

hints! {
    /// The target exists, and may be replaced on request.
    Replace = "replace" => "allow the target to be replaced",
    /// The same, where another name is as good.
    ReplaceOrRename = "replace_or_rename" => "allow the target to be replaced, or choose another name",
    /// The same, where leaving what is up to date is a choice too.
    UpdateOrReplace = "update_or_replace" => "leave what is up to date, or allow targets to be replaced",
    /// The same for a move.
    MoveOver = "move_over" => "allow the move to replace it",
    /// A directory was named where a file is wanted, and trees can be copied.
    CopyTree = "copy_tree" => "copy it as a tree, or list it",
    /// The same by a server's word.
    ListOrCopyTree = "list_or_copy_tree" => "list it, or copy it as a tree",
    /// A directory was named where a file is to be removed.
    RemoveTree = "remove_tree" => "remove it as a tree, with all that is in it",
    /// The directory that something should be in is not there.
    MakeDirectory = "make_directory" => "make the directory first",
    /// A move that is not one step.
    CopyAndRemove = "copy_and_remove" => "copy it, compare, then remove it",
    /// A name has a line break, and the list of names has one in each line.
    SeparateByNul = "separate_by_nul" => "let a byte of value 0 separate the names",
    /// A metalink that cannot be read may be copied as the file that it is.
    CopyMetalink = "copy_metalink" => "copy the metalink itself, as the file that it is",
    /// A metalink with several files came where one file was asked for.
    SaveMetalink = "save_metalink" => "to have them all, save the metalink as a file, and copy that into a directory",
    /// A metalink with several files goes into a directory.
    NameDirectory = "name_directory" => "name an existing directory as the target, without other replicas and without a checksum",
    /// An answer did not come in time.
    WaitLonger = "wait_longer" => "try again later, or wait longer",
    /// The same, and what is there is kept.
    ContinueOrWaitLonger = "continue_or_wait_longer" => "what is there is kept: continue it, or wait longer",
    /// Nothing tells whether bytes are right, and that was demanded.
    StateChecksum = "state_checksum" => "say which checksum is right, or do without the demand for verified bytes",
    /// The same of an upload, which was removed.
    AcceptUnverified = "accept_unverified" => "what was uploaded was removed; do without the demand for verified bytes",
    /// A server named other replicas, and nothing tells whether they are right.
    StateChecksumOrName = "state_checksum_or_name" => "say which checksum is right, or name the replica yourself",
    /// Replicas contradict each other.
    StateChecksumOrAdd = "state_checksum_or_add" => "say which checksum is right, or add a replica",
    /// Every piece is right, and the whole is not.
    PiecesContradict = "pieces_contradict" => "every piece is as the metalink says: it contradicts itself, or the checksum that was given",
    /// A server tells no checksum.
    CompareOtherwise = "compare_otherwise" => "copies are compared with other replicas, or with a checksum that is given",
    /// A credential cannot be used.
    OtherCredentials = "other_credentials" => "name another one, or send none",
    /// A certificate has come without its private key.
    NameKey = "name_key" => "name the file that the private key is in",
    /// There is no login, or it is over.
    LogIn = "log_in" => "log in at the issuer (again, if there was a login)",
    /// A token has expired.
    RenewToken = "renew_token" => "get a new token, or send none; nothing was sent",
    /// A proxy has expired.
    RenewProxy = "renew_proxy" => "make a new proxy, or send none; nothing was sent",
    /// A certificate has expired.
    RenewCertificate = "renew_certificate" => "renew the certificate, or send none; nothing was sent",
    /// Nothing was shown to a server of HTTP that wants something.
    GetCredentials = "get_credentials" => "get a token, or a proxy",
    /// The same with a server of root://.
    ShowCredentials = "show_credentials" => "send a token, or a proxy",
    /// A server takes tokens only.
    ShowToken = "show_token" => "send a token",
    /// A token was taken and gives no right to this.
    CheckScopes = "check_scopes" => "do its scopes cover this path? Else ask the operator of the server",
    /// A token was not taken.
    CheckToken = "check_token" => "has it expired, or is it for another audience?",
    /// A certificate was not taken.
    CheckCertificate = "check_certificate" => "does the server trust its authority, and is it still valid? Else ask the operator of the server",
    /// A certificate was refused because of its time.
    RenewOrSetClock = "renew_or_set_clock" => "renew it; or this machine's clock or the server's is wrong",
    /// A server's certificate has an authority that is not known.
    NameAuthority = "name_authority" => "name its authority: a file, or a directory of authorities with X509_CERT_DIR",
    /// A server's certificate is wrong in another way.
    NameAuthorityOrMend = "name_authority_or_mend" => "name its authority, or fix the server's certificate",
    /// A server wants a certificate.
    NameCertificate = "name_certificate" => "make a proxy (voms-proxy-init), or name one",
    /// A server's own certificate cannot be kept where it was made.
    GiveCertificate = "give_certificate" => "give a certificate and its key",
    /// Nothing is checked.
    CheckServers = "check_servers" => "let certificates of servers be checked",
    /// An operator has not allowed an address.
    AllowAddress = "allow_address" => "the operator can allow its network",
    /// There are no authorities.
    InstallAuthorities = "install_authorities" => "install ca-certificates, or name a file of authorities, or SSL_CERT_FILE",
    /// A line of a file of users is wrong.
    MakePasswordLine = "make_password_line" => "make a line with `htpasswd -nB NAME`",
    /// An emulated network of this name is up.
    TakeDownOrRename = "take_down_or_rename" => "take it down first, or give this one another name",
    /// Processes of an emulated network do not end.
    TakeDownAgain = "take_down_again" => "take it down again",
    /// The process of an emulated network does not answer.
    TakeDown = "take_down" => "taking it down ends it, and removes what is left of it",
    /// The process of an emulated network died.
    TakeDownRemains = "take_down_remains" => "one was, and its process died without cleaning up: taking it down removes what is left of it",
    /// No emulated network is up.
    BringUp = "bring_up" => "bring one up",
    /// No row of the check has this name.
    ShowAllRows = "show_all_rows" => "see all names without a selection",
}

impl From<&str> for Hint {
    fn from(words: &str) -> Hint {
        Hint::Text(words.to_owned())
    }
}

impl From<String> for Hint {
    fn from(words: String) -> Hint {
        Hint::Text(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_and_found_again() {
        for hint in Hint::PLAIN {
            assert_eq!(Hint::named(hint.name()).as_ref(), Some(hint));
            assert!(!hint.to_string().is_empty() && !hint.to_string().contains("--"), "{hint}");
        }
        assert_eq!(Hint::named("text"), None);
    }
}
