//! Fully qualified attribute names: the groups and roles that VOMS states.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::refusal::{Cause, Refusal};

/// A group of a virtual organisation, and perhaps a role in it: `/atlas/production/Role=manager`. Without a role that is
/// how WLCG tokens write a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fqan {
    /// `/atlas/production`: begins with a slash and the name of the VO, does not end with a slash.
    group: String,
    role: Option<String>,
}

impl Fqan {
    /// The group with all that it is in: `/atlas/production`.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The role, if it is one.
    pub fn role(&self) -> Option<&str> {
        self.role.as_deref()
    }

    /// The virtual organisation: the group's first name.
    pub fn vo(&self) -> &str {
        self.group[1..].split('/').next().unwrap_or_default()
    }
}

impl FromStr for Fqan {
    type Err = Refusal;

    /// `Role=NULL` and `Capability=NULL` mean nothing and are left out; other capabilities were never used and are
    /// refused. Names have letters, digits and `-_.`, as in VOMS.
    fn from_str(text: &str) -> Result<Fqan, Refusal> {
        let refused = || Refusal::new(Cause::Malformed, format!("{text:?} is no VOMS attribute"));
        let is_name = |name: &str| {
            !name.is_empty()
                && name != "."
                && name != ".."
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        let names = text.strip_prefix('/').ok_or_else(refused)?;
        let mut group = String::with_capacity(text.len());
        let mut role = None;
        let mut is_behind_groups = false;
        for name in names.split('/') {
            if let Some(named) = name.strip_prefix("Role=").filter(|_| !is_behind_groups) {
                is_behind_groups = true;
                if named != "NULL" {
                    role = Some(named.to_owned()).filter(|name| is_name(name));
                    role.as_ref().ok_or_else(refused)?;
                }
            } else if name == "Capability=NULL" {
                is_behind_groups = true;
            } else if !is_behind_groups && is_name(name) {
                group.push('/');
                group.push_str(name);
            } else {
                return Err(refused());
            }
        }
        match group.is_empty() {
            true => Err(refused()),
            false => Ok(Fqan { group, role }),
        }
    }
}

impl fmt::Display for Fqan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.group)?;
        match &self.role {
            Some(role) => write!(f, "/Role={role}"),
            None => Ok(()),
        }
    }
}

impl TryFrom<String> for Fqan {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Fqan, Refusal> {
        text.parse()
    }
}

impl From<Fqan> for String {
    fn from(fqan: Fqan) -> String {
        fqan.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read() {
        for (text, vo, group, role, shown) in [
            ("/atlas", "atlas", "/atlas", None, "/atlas"),
            ("/atlas/Role=NULL/Capability=NULL", "atlas", "/atlas", None, "/atlas"),
            (
                "/atlas/prod/Role=pilot/Capability=NULL",
                "atlas",
                "/atlas/prod",
                Some("pilot"),
                "/atlas/prod/Role=pilot",
            ),
            (
                "/vo.example.org/a-b_c",
                "vo.example.org",
                "/vo.example.org/a-b_c",
                None,
                "/vo.example.org/a-b_c",
            ),
            ("/cms/Role=production", "cms", "/cms", Some("production"), "/cms/Role=production"),
        ] {
            let fqan: Fqan = text.parse().unwrap();
            assert_eq!((fqan.vo(), fqan.group(), fqan.role()), (vo, group, role), "{text}");
            assert_eq!(fqan.to_string(), shown);
            assert_eq!(shown.parse::<Fqan>().unwrap(), fqan);
        }
        for text in [
            "",
            "/",
            "atlas",
            "//atlas",
            "/atlas/",
            "/atlas/..",
            "/Role=x",
            "/a/Role=",
            "/a/Role=x/b",
            "/a/Role=x/Role=y",
            "/a/Capability=x",
            "/a b",
            "/a\0",
            "/a/Role=..",
        ] {
            assert!(text.parse::<Fqan>().is_err(), "{text}");
        }
    }
}
