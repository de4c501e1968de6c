//! The place where a rule holds: a path in which names may stand for the client.

use std::fmt;

use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_dav::ResourcePath;

use super::Extent;
use super::principal::Membership;
use crate::identity::Identity;

/// A path of the server in which `{vo}`, `{group}`, `{role}`, `{user}` and `{subject}` stand for the client:
/// `/data/{vo}`,
/// `/home/{user}`. They are whole names of the path; `{group}` may be several, without the VO's. By default
/// it is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Name(Vec<u8>),
    Vo,
    Group,
    Role,
    User,
    Subject,
}

impl Template {
    /// Reads one. Fails for a path that leads nowhere, and for a `{name}` that stands for nothing.
    pub fn parse(text: &str) -> Result<Template> {
        let wrong = |what: String| Error::new(ErrorKind::Usage, what).fault(Fault::Caller);
        let path = ResourcePath::parse(text).map_err(|rejection| wrong(rejection.message.into_owned()))?;
        let part = |name: &[u8]| {
            Ok(match name {
                b"{vo}" => Part::Vo,
                b"{group}" => Part::Group,
                b"{role}" => Part::Role,
                b"{user}" => Part::User,
                b"{subject}" => Part::Subject,
                name if name.contains(&b'{') || name.contains(&b'}') => {
                    let name = String::from_utf8_lossy(name);
                    return Err(wrong(format!(
                        "{name:?} in {text} stands for nothing: whole names may be {{vo}}, {{group}}, {{role}}, {{user}} and {{subject}}"
                    )));
                }
                name => Part::Name(name.to_vec()),
            })
        };
        Ok(Template { parts: path.names().map(part).collect::<Result<_>>()? })
    }

    /// The same below another path.
    pub fn below(self, base: &ResourcePath) -> Template {
        let base = base.names().map(|name| Part::Name(name.to_vec()));
        Template { parts: base.chain(self.parts).collect() }
    }

    /// True if anything that is `base` or below it could be meant, by any client.
    pub fn may_meet(&self, base: &ResourcePath) -> bool {
        let literal = self.parts.iter().map_while(|part| match part {
            Part::Name(name) => Some(name.as_slice()),
            _ => None,
        });
        literal.zip(base.names()).all(|(own, of_base)| own == of_base)
    }

    /// True if it says anything of groups.
    pub(super) fn is_about_membership(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Vo | Part::Group | Part::Role))
    }

    /// True if it says anything of the client.
    pub(super) fn is_about_asker(&self) -> bool {
        self.parts.iter().any(|part| !matches!(part, Part::Name(_)))
    }

    /// True if a path is what this stands for, or below it; or, as far as `extent` says, above it.
    pub(super) fn holds<'p>(
        &self,
        identity: &Identity,
        member: Membership<'_>,
        mut path: impl Iterator<Item = &'p [u8]>,
        extent: Extent,
    ) -> bool {
        let mut is_next = |wanted: &[u8]| match path.next() {
            Some(name) => name == wanted,
            None => extent == Extent::ThereOrBelow,
        };
        self.parts.iter().all(|part| {
            let wanted: Option<&[u8]> = match part {
                Part::Name(name) => Some(name),
                Part::Vo => member.vo.map(str::as_bytes),
                Part::Role => member.role.map(str::as_bytes),
                Part::User => identity.user().map(str::as_bytes),
                Part::Subject => match identity {
                    Identity::Token(token) => Some(token.subject.as_bytes()),
                    _ => None,
                },
                Part::Group => {
                    let Some(group) = member.group else { return false };
                    // Behind the VO's name; `/atlas` itself is no group of it.
                    let mut inside = group.split('/').skip(2).peekable();
                    return inside.peek().is_some() && inside.all(|name| is_next(name.as_bytes()));
                }
            };
            // What stands for nothing, or could never be a name, fits nothing.
            wanted.is_some_and(|wanted| !wanted.is_empty() && is_next(wanted))
        })
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.parts.is_empty() {
            return f.write_str("/");
        }
        for part in &self.parts {
            match part {
                Part::Name(name) => {
                    let path = ResourcePath::root().join(name);
                    f.write_str(path.to_string().trim_end_matches('/'))?;
                }
                Part::Vo => f.write_str("/{vo}")?,
                Part::Group => f.write_str("/{group}")?,
                Part::Role => f.write_str("/{role}")?,
                Part::User => f.write_str("/{user}")?,
                Part::Subject => f.write_str("/{subject}")?,
            }
        }
        Ok(())
    }
}
