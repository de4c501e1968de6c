//! XRootD's authorisation database, as rules.
//!
//! A record is an identifier and pairs of a path and privileges. What holds for somebody in XRootD is the sum of all
//! records about them, as here. Within one record the first path that begins the name counts alone; here grants add up.
//! Where that makes a difference, and where privileges are taken away, a comment says so, and no rule is made that grants
//! more than the record did.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::quoted;

/// The keys of a rule that say whom it is about: `vo = "atlas"`.
type Conditions = Vec<(&'static str, String)>;

/// The rules that say what the file says.
pub(super) fn tables(text: &str) -> String {
    let mut reader = Reader::default();
    for (number, line) in joined(text) {
        reader.record(number, &line);
    }
    if !reader.has_rules {
        reader.out.push_str("# There is nothing in it that grants anything.\n");
    }
    reader.out
}

/// The lines with those that a backslash goes on behind, without comments.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if !goes_on && (line.is_empty() || line.starts_with('#')) {
            continue;
        }
        let (part, more) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, last)) => {
                last.push(' ');
                last.push_str(part);
            }
            None => lines.push((index + 1, part.to_owned())),
        }
        goes_on = more;
    }
    lines
}

#[derive(Default)]
struct Reader {
    out: String,
    has_rules: bool,
    /// Compound identifiers: `= prod o: atlas r: production`.
    compounds: HashMap<String, Conditions>,
    /// `t name path privileges …`.
    templates: HashMap<String, Vec<(String, String)>>,
}

impl Reader {
    fn comment(&mut self, number: usize, what: &str) {
        let _ = writeln!(self.out, "# Line {number}: {what}");
    }

    fn record(&mut self, number: usize, line: &str) {
        let mut words = line.split_whitespace();
        let (Some(kind), Some(name)) = (words.next(), words.next()) else {
            return self.comment(number, &format!("{line:?} is no record."));
        };
        let rest: Vec<&str> = words.collect();
        if kind == "=" {
            match compound(&rest) {
                Ok(conditions) => {
                    self.compounds.insert(name.to_owned(), conditions);
                }
                Err(why) => {
                    self.comment(number, &format!("the compound identifier {name} is left out: {why}."))
                }
            }
            return;
        }
        let pairs = match self.pairs(&rest) {
            Ok(pairs) => pairs,
            Err(why) => return self.comment(number, &format!("left out: {why}.")),
        };
        if kind == "t" {
            self.templates.insert(name.to_owned(), pairs);
            return;
        }
        let conditions = match self.conditions(kind, name) {
            Ok(conditions) => conditions,
            Err(why) => return self.comment(number, &format!("{kind} {name} is left out: {why}.")),
        };
        if kind == "x" {
            self.comment(
                number,
                &format!(
                    "x {name} is exclusive in XRootD: other records do not add to it there; here they do."
                ),
            );
        }
        for (index, (path, privileges)) in pairs.iter().enumerate() {
            let hides = |(outer, more): &&(String, String)| {
                path.starts_with(outer.as_str()) && more.chars().any(|c| !privileges.contains(c))
            };
            if let Some((outer, _)) = pairs[index + 1..].iter().find(hides) {
                let what = format!(
                    "{outer} grants below {path} what XRootD did not: its first path that fits counts alone. Look at it."
                );
                self.comment(number, &what);
            }
            self.rule(number, &conditions, path, privileges, kind == "u" && name == "=");
        }
    }

    /// Paths and privileges, with templates replaced by what they stand for.
    fn pairs(&self, words: &[&str]) -> Result<Vec<(String, String)>, String> {
        let mut pairs = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if !word.starts_with('/') {
                let template =
                    self.templates.get(*word).ok_or(format!("{word:?} is neither a path nor a template"))?;
                pairs.extend(template.iter().cloned());
                continue;
            }
            let privileges = words.next().ok_or(format!("the path {word} has no privileges"))?;
            pairs.push(((*word).to_owned(), (*privileges).to_owned()));
        }
        match pairs.is_empty() {
            true => Err("it has no paths".to_owned()),
            false => Ok(pairs),
        }
    }

    fn conditions(&self, kind: &str, name: &str) -> Result<Conditions, String> {
        match (kind, name) {
            ("u", "*") => Ok(vec![("who", "anyone".to_owned())]),
            ("u", "=") => Ok(vec![("who", "authenticated".to_owned())]),
            ("u" | "g" | "o" | "r" | "h", name) => condition(kind, name).map(|condition| vec![condition]),
            ("x" | "s", name) => {
                self.compounds.get(name).cloned().ok_or("nothing defines that identifier".to_owned())
            }
            ("n", _) => Err("there are no netgroups here".to_owned()),
            _ => Err("XRootD has no such kind of record".to_owned()),
        }
    }

    fn rule(&mut self, number: usize, conditions: &Conditions, path: &str, privileges: &str, is_own: bool) {
        if privileges.starts_with('-') || privileges.contains('-') {
            let taken = privileges.split_once('-').map_or("", |(_, taken)| taken);
            self.comment(number, &format!("the privileges -{taken} on {path} are taken away in XRootD; here nothing forbids. See that no other rule grants them."));
        }
        let granted = privileges.split('-').next().unwrap_or_default();
        let mut may: Vec<&str> = Vec::new();
        for letter in granted.chars() {
            let words: &[&str] = match letter {
                'a' => &["read", "list", "write", "delete"],
                'r' => &["read"],
                'l' => &["list"],
                'w' => &["write"],
                'i' => &["create"],
                'd' | 'n' => &["delete"],
                'k' => &[],
                _ => {
                    return self.comment(
                        number,
                        &format!("{letter:?} is no privilege; the rule for {path} is left out."),
                    );
                }
            };
            may.extend(words.iter().filter(|word| !may.contains(word)).copied().collect::<Vec<_>>());
        }
        if granted.contains('n') && !granted.contains(['d', 'a']) {
            self.comment(number, "whoever may rename there may delete as well here.");
        }
        if may.is_empty() {
            return;
        }
        let path = match (is_own, path.contains("@=")) {
            (_, false) => path.to_owned(),
            (true, true) if path.split('/').all(|name| name == "@=" || !name.contains("@=")) => {
                path.replace("@=", "{user}")
            }
            _ => {
                return self
                    .comment(number, &format!("in {path}, @= is not a whole name; the rule is left out."));
            }
        };
        let trimmed = path.trim_end_matches('/');
        let under = if trimmed.is_empty() { "/" } else { trimmed };
        self.has_rules = true;
        let _ = writeln!(self.out, "[[rule]] # line {number}");
        for (key, value) in conditions {
            let _ = writeln!(self.out, "{key} = {}", quoted(value));
        }
        let may: Vec<String> = may.iter().map(|word| quoted(word)).collect();
        let _ = writeln!(self.out, "may = [{}]\nunder = {}\n", may.join(", "), quoted(under));
    }
}

/// `o: atlas r: production`.
fn compound(words: &[&str]) -> Result<Conditions, String> {
    let (pairs, []) = words.as_chunks::<2>() else { return Err("it is not made of pairs".to_owned()) };
    let one = |[kind, name]: &[&str; 2]| condition(kind.strip_suffix(':').unwrap_or(kind), name);
    let conditions: Conditions = pairs.iter().map(one).collect::<Result<_, _>>()?;
    match conditions.is_empty() {
        true => Err("it says nothing".to_owned()),
        false => Ok(conditions),
    }
}

fn condition(kind: &str, name: &str) -> Result<(&'static str, String), String> {
    match kind {
        "u" => Ok(("user", name.to_owned())),
        "o" => Ok(("vo", name.to_owned())),
        "r" => Ok(("role", name.to_owned())),
        "g" if name.starts_with('/') => Ok(("group", name.to_owned())),
        "g" => Ok(("group", format!("/{name}"))),
        "h" if gridlane_core::Network::parse_list([name]).is_ok() => Ok(("addresses", name.to_owned())),
        "h" => Err("hosts are known by their addresses here, not by names".to_owned()),
        _ => Err(format!("{kind} is no kind of identifier that is known here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_become_rules() {
        let found = tables(
            "# who may what\n\
             u * /public rl\n\
             u ada /home/ada a /data rl\n\
             = prod o: atlas r: production\n\
             s prod /atlas \\\n   a\n\
             t scratch /scratch rlw\n\
             g /cms/users scratch\n\
             u = /own/@=/ lriwd\n",
        );
        for rule in [
            "[[rule]] # line 2\nwho = \"anyone\"\nmay = [\"read\", \"list\"]\nunder = \"/public\"\n",
            "user = \"ada\"\nmay = [\"read\", \"list\", \"write\", \"delete\"]\nunder = \"/home/ada\"\n",
            "user = \"ada\"\nmay = [\"read\", \"list\"]\nunder = \"/data\"\n",
            "vo = \"atlas\"\nrole = \"production\"\nmay = [\"read\", \"list\", \"write\", \"delete\"]\nunder = \"/atlas\"\n",
            "group = \"/cms/users\"\nmay = [\"read\", \"list\", \"write\"]\nunder = \"/scratch\"\n",
            "who = \"authenticated\"\nmay = [\"list\", \"read\", \"create\", \"write\", \"delete\"]\nunder = \"/own/{user}\"\n",
        ] {
            assert!(found.contains(rule), "{rule}\n{found}");
        }
        assert!(!found.contains("# Line"), "{found}");
    }

    #[test]
    fn what_cannot_be_said_is_not_granted() {
        for (record, word) in [
            ("n net /a r", "netgroups"),
            ("h node.example /a r", "addresses"),
            ("u ada /a -w", "forbids"),
            ("u ada /a/b r /a rw", "first path"),
            ("s nobody /a r", "defines"),
            ("u ada /a z", "no privilege"),
            ("u ada /a", "no privileges"),
            ("x", "no record"),
            ("u ada /a/@= r", "@="),
            ("= a q: b", "left out"),
        ] {
            let found = tables(record);
            assert!(found.contains(word), "{record}: {found}");
        }
        assert!(!tables("u ada /a -w\nn net /a a\nu eve /b z\n").contains("[[rule]]"));
    }
}
