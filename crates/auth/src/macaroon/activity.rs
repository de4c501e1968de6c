//! The words that macaroons have for what may be done, and what they are worth here.
//!
//! | word | grants |
//! | --- | --- |
//! | `READ_METADATA` | stat; any other word that grants something grants this as well |
//! | `LIST` | list |
//! | `DOWNLOAD` | read |
//! | `UPLOAD` | create, and make directories: what the word `create` of a rule is |
//! | `MANAGE` | make directories, rename, overwrite |
//! | `DELETE` | delete |
//! | `STAGE` | stage |
//! | `UPDATE_METADATA` | nothing: here it would be the right to change content as well, which it does not mean |
//!
//! XRootD and dCache have these. The rights of a client may be less than one of their words: then `CREATE`, `MKDIR`,
//! `OVERWRITE` and `RENAME` are its parts. Others do not know them, and grant nothing for them, as we do for words that
//! we do not know.

use crate::operation::{Grants, Operation};

const STAT: Grants = Grants::of(Operation::Stat);
const MKDIR: Grants = Grants::of(Operation::Mkdir);
const RENAME: Grants = Grants::of(Operation::Rename);

/// In XRootD's order; parts behind the words that hold them.
const WORDS: [(&str, Grants); 11] = [
    ("READ_METADATA", STAT),
    ("UPLOAD", Grants::CREATE),
    ("DOWNLOAD", Grants::READ),
    ("DELETE", Grants::of(Operation::Delete)),
    ("MANAGE", MKDIR.with(RENAME).with(Grants::OVERWRITE)),
    ("LIST", Grants::LIST),
    ("STAGE", Grants::STAGE),
    ("CREATE", Grants::of(Operation::Create)),
    ("MKDIR", MKDIR),
    ("OVERWRITE", Grants::OVERWRITE),
    ("RENAME", RENAME),
];
/// For servers that share a secret with us and know a difference.
const UPDATE_METADATA: &str = "UPDATE_METADATA";

/// The rights that words with commas between them grant.
pub fn grants_of(words: &str) -> Grants {
    let known = |word: &str| WORDS.iter().find(|(known, _)| *known == word).map(|(_, grants)| *grants);
    words.split(',').filter_map(known).fold(Grants::NONE, |all, grants| all.with(grants).with(STAT))
}

/// The fewest words that grant this, and never more; empty for nothing.
pub fn words_of(grants: Grants) -> String {
    if grants.is_empty() {
        return String::new();
    }
    let grants = grants.with(STAT);
    let mut covered = Grants::NONE;
    let mut words = Vec::new();
    for (word, means) in WORDS {
        if grants.and(means) == means && covered.and(means) != means {
            words.push(word);
            covered = covered.with(means);
            if word == "MANAGE" {
                words.push(UPDATE_METADATA);
            }
        }
    }
    words.join(",")
}

/// True if it is a word that grants something, or that others know.
pub fn is_known(word: &str) -> bool {
    word == UPDATE_METADATA || WORDS.iter().any(|(known, _)| *known == word)
}
