//! XRootD's authorisation database, as rules.
//!
//! A record is an identifier and pairs of a path and privileges. The rights of a client in XRootD are the sum of all
//! records about them, as here. Within one record the first path that begins the name counts alone; here grants add up:
//! a rule that would grant more than its record did is left as a comment. Where a record takes away what others grant, or
//! keeps them from adding to it, a comment says that here nothing does.
//!
//! What XRootD's privileges are good for (`XrdAccPrivs`): to read and to list is `r`, to look `l`, to change what is there
//! `rw`, to store a file `irw`, to make a directory `i`, to remove `d`, to rename `n`. There is no word here for some of
//! these alone.

use std::collections::HashMap;
use std::fmt::Write as _;

use gridlane_core::Network;
use gridlane_dav::path::encode_name;

use super::quoted;

/// The keys of a rule that name its clients: `vo = "atlas"`.
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
            // An earlier path inside of this one has less, and counts alone there.
            let hides = |(inner, less): &&(String, String)| {
                inner.starts_with(path.as_str()) && privileges.chars().any(|c| !less.contains(c))
            };
            let hidden = pairs[..index].iter().find(hides);
            if let Some((inner, _)) = hidden {
                let what = format!(
                    "{path} would grant below {inner} what XRootD does not: its first path that fits counts alone. Look at it."
                );
                self.comment(number, &what);
            }
            let is_own = kind == "u" && name == "=";
            self.rule(number, &conditions, (path, privileges), is_own, hidden.is_some());
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

    fn rule(
        &mut self,
        number: usize,
        conditions: &Conditions,
        (path, privileges): (&str, &str),
        is_own: bool,
        is_shadowed: bool,
    ) {
        let (granted, taken) = privileges.split_once('-').unwrap_or((privileges, ""));
        if let Some(letter) = granted.chars().find(|letter| !"arlwidnk".contains(*letter)) {
            let what = format!("{letter:?} is no privilege; the rule for {path} is left out.");
            return self.comment(number, &what);
        }
        if !taken.is_empty() {
            self.comment(number, &format!("the privileges -{taken} on {path} are taken away in XRootD; here nothing forbids. See that no other rule grants them."));
        }
        let is_left = |letter: &char| !taken.contains(['a', *letter]);
        let granted = if granted.contains('a') { "rlwidn" } else { granted };
        let granted: String = granted.chars().filter(is_left).collect();
        let has = |letters: &str| letters.chars().all(|letter| granted.contains(letter));
        let changes = match (has("rw"), has("irw")) {
            (_, true) => Some("write"),
            (true, false) => Some("overwrite"),
            (false, false) => None,
        };
        let reads = has("r").then_some(["read", "list"]);
        let removes = has("d").then_some("delete");
        let may: Vec<&str> = reads.into_iter().flatten().chain(changes).chain(removes).collect();
        for (letter, is_alone, what) in [
            ('l', !has("r"), "to look without reading"),
            ('w', !has("rw"), "to write without reading"),
            ('i', !has("irw"), "to make directories without storing files"),
            ('n', !has("d"), "to rename without deleting"),
        ] {
            if granted.contains(letter) && is_alone {
                let what =
                    format!("there is no word here for {letter} alone ({what}) on {path}: not granted.");
                self.comment(number, &what);
            }
        }
        if may.is_empty() {
            return;
        }
        if path.contains(['{', '}']) || path.split('/').any(|name| name == "." || name == "..") {
            let what = format!("{path} would mean something else here; the rule is left out.");
            return self.comment(number, &what);
        }
        // There names stand as they are; here they are encoded, as in a URL.
        let encoded = |path: &str| {
            path.split('/').map(|name| encode_name(name.as_bytes())).collect::<Vec<_>>().join("/")
        };
        let path = match (is_own, path.contains("@=")) {
            (_, false) => encoded(path),
            (true, true) if path.split('/').all(|name| name == "@=" || !name.contains("@=")) => {
                path.split("@=").map(encoded).collect::<Vec<_>>().join("{user}")
            }
            _ => {
                return self
                    .comment(number, &format!("in {path}, @= is not a whole name; the rule is left out."));
            }
        };
        let trimmed = path.trim_end_matches('/');
        let under = if trimmed.is_empty() { "/" } else { trimmed };
        // What is commented out has to be looked at first.
        let lead = if is_shadowed { "# " } else { "" };
        self.has_rules |= !is_shadowed;
        let _ = writeln!(self.out, "{lead}[[rule]] # line {number}");
        for (key, value) in conditions {
            let _ = writeln!(self.out, "{lead}{key} = {}", quoted(value));
        }
        let may: Vec<String> = may.iter().map(|word| quoted(word)).collect();
        let _ = writeln!(self.out, "{lead}may = [{}]\n{lead}under = {}\n", may.join(", "), quoted(under));
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
        // A word such as `any` is a host's name there.
        "h" if name.contains(['.', ':']) && Network::parse_list([name]).is_ok() => {
            Ok(("addresses", name.to_owned()))
        }
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
            "group = \"/cms/users\"\nmay = [\"read\", \"list\", \"overwrite\"]\nunder = \"/scratch\"\n",
            "who = \"authenticated\"\nmay = [\"read\", \"list\", \"write\", \"delete\"]\nunder = \"/own/{user}\"\n",
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
            ("h any /a r", "addresses"),
            ("u ada /a l", "to look"),
            ("u ada /a w", "without reading"),
            ("u ada /a i", "make directories"),
            ("u ada /a n", "to rename"),
            ("u ada /home/{user} r", "something else"),
            ("u ada /a/../b r", "something else"),
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
        let nothing = "u ada /a -w\nn net /a a\nu eve /b z\nu ada /a lwin\nh any /a a\nu eve /{vo} a\n";
        assert!(!tables(nothing).contains("[[rule]]"));
        let found = tables("u ada /a/b r /a rw\n");
        assert!(found.contains("[[rule]] # line 1\nuser") && found.contains("\nunder = \"/a/b\""), "{found}");
        assert!(
            found.contains("# [[rule]] # line 1\n# user") && found.contains("\n# under = \"/a\""),
            "{found}"
        );
        assert!(tables("u ada /a a-d\n").contains("may = [\"read\", \"list\", \"write\"]"));
        assert!(tables("u ada /50%25 r\n").contains("under = \"/50%2525\""));
    }
}
