//! What a request does to what is at a path, and sets of that.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The effect of a request on what is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Asks if something is there, and what is known of it: allowed to a client that may do anything at all with it.
    Stat,
    /// Reads the bytes of a file.
    Read,
    /// Asks what is in a directory.
    List,
    /// Stores a file where none was.
    Create,
    /// Makes a directory.
    Mkdir,
    /// Changes or replaces a file that is there, its mode or its attributes.
    Overwrite,
    /// Removes a file or a tree.
    Delete,
    /// Gives a file or a tree another name. What is at the new name is created there.
    Rename,
    /// Has a file brought to where it can be read at once, and lets go of it.
    Stage,
    /// Asks for what is an operator's business: metrics, and revoking macaroons.
    Admin,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 10] = [
        Operation::Stat,
        Operation::Read,
        Operation::List,
        Operation::Create,
        Operation::Mkdir,
        Operation::Overwrite,
        Operation::Delete,
        Operation::Rename,
        Operation::Stage,
        Operation::Admin,
    ];

    /// Its name in logs, and where `gridlane auth explain` is asked for it.
    pub fn word(self) -> &'static str {
        match self {
            Operation::Stat => "stat",
            Operation::Read => "read",
            Operation::List => "list",
            Operation::Create => "create",
            Operation::Mkdir => "mkdir",
            Operation::Overwrite => "overwrite",
            Operation::Delete => "delete",
            Operation::Rename => "rename",
            Operation::Stage => "stage",
            Operation::Admin => "admin",
        }
    }

    /// Its name in messages: "may not overwrite /a".
    pub fn verb(self) -> &'static str {
        match self {
            Operation::Stat => "look at",
            Operation::Read => "read",
            Operation::List => "list",
            Operation::Create => "create",
            Operation::Mkdir => "make a directory at",
            Operation::Overwrite => "overwrite",
            Operation::Delete => "delete",
            Operation::Rename => "rename",
            Operation::Stage => "stage",
            Operation::Admin => "administer",
        }
    }
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grants(u16);

impl Grants {
    /// Nothing.
    pub const NONE: Grants = Grants(0);
    /// To read files.
    pub const READ: Grants = Grants::of(Operation::Read);
    /// To list directories.
    pub const LIST: Grants = Grants::of(Operation::List);
    /// To store new files and make directories.
    pub const CREATE: Grants = Grants::of(Operation::Create).with(Grants::of(Operation::Mkdir));
    /// To change what is there.
    pub const OVERWRITE: Grants = Grants::of(Operation::Overwrite);
    /// To remove and rename.
    pub const DELETE: Grants = Grants::of(Operation::Delete).with(Grants::of(Operation::Rename));
    /// To stage.
    pub const STAGE: Grants = Grants::of(Operation::Stage);
    /// Everything.
    pub const ADMIN: Grants = Grants(0x3ff);
    /// To store new files and to change what is there.
    pub const WRITE: Grants = Grants::CREATE.with(Grants::OVERWRITE);

    /// To do this alone.
    pub const fn of(operation: Operation) -> Grants {
        Grants(1 << operation as u16)
    }

    /// Both.
    pub const fn with(self, other: Grants) -> Grants {
        Grants(self.0 | other.0)
    }

    /// The part in both.
    pub const fn and(self, other: Grants) -> Grants {
        Grants(self.0 & other.0)
    }

    /// True if it is nothing.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if this may be done. The right to do anything is the right to look.
    pub const fn includes(self, operation: Operation) -> bool {
        match operation {
            Operation::Stat => self.0 != 0,
            operation => self.0 & Grants::of(operation).0 != 0,
        }
    }

    /// True if it holds anything that changes something.
    pub const fn changes(self) -> bool {
        self.and(Grants::WRITE.with(Grants::DELETE)).0 != 0
    }
}

/// The words of a rule, `read list create overwrite delete stage admin`; what no word stands for alone, in full.
impl fmt::Display for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Grants::ADMIN {
            return f.write_str("admin");
        }
        let words = [
            ("read", Grants::READ),
            ("list", Grants::LIST),
            ("create", Grants::of(Operation::Create)),
            ("mkdir", Grants::of(Operation::Mkdir)),
            ("overwrite", Grants::OVERWRITE),
            ("delete", Grants::of(Operation::Delete)),
            ("rename", Grants::of(Operation::Rename)),
            ("stage", Grants::STAGE),
            ("stat", Grants::of(Operation::Stat)),
        ];
        let mut first = true;
        for (word, grants) in words {
            let is_implied = (word == "mkdir" && self.includes(Operation::Create))
                || (word == "rename" && self.includes(Operation::Delete));
            if self.and(grants).is_empty() || is_implied {
                continue;
            }
            if !first {
                f.write_str(" ")?;
            }
            first = false;
            f.write_str(word)?;
        }
        if first { f.write_str("nothing") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_what_may_be_done() {
        assert!(Grants::READ.includes(Operation::Stat) && !Grants::NONE.includes(Operation::Stat));
        assert!(Grants::CREATE.includes(Operation::Mkdir) && !Grants::CREATE.includes(Operation::Overwrite));
        assert!(
            Grants::ADMIN.includes(Operation::Admin)
                && !Grants::WRITE.with(Grants::DELETE).includes(Operation::Admin)
        );
        assert!(Grants::DELETE.changes() && !Grants::READ.with(Grants::LIST).with(Grants::STAGE).changes());
        assert_eq!(
            Grants::READ.with(Grants::WRITE).with(Grants::DELETE).to_string(),
            "read create overwrite delete"
        );
        assert_eq!(
            Grants::of(Operation::Rename).with(Grants::of(Operation::Mkdir)).to_string(),
            "mkdir rename"
        );
        assert_eq!(
            (Grants::ADMIN.to_string().as_str(), Grants::NONE.to_string().as_str()),
            ("admin", "nothing")
        );
    }
}
