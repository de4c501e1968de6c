//! Which files of a tree are wanted: patterns in the order in which they were given, the first that matches
//! decides, as in rsync and rclone.
//!
//! A pattern without a slash is about a name at any depth; one with a slash is about the path from the
//! tree's root. What matches a directory matches everything below it. What no pattern matches has the
//! opposite fate of the last pattern: after an `--include` the rest is left out, after an `--exclude` it is
//! copied.

use gridlane_core::limits::GLOB_BYTES_MAX;
use gridlane_core::{Error, ErrorKind, Fault, Result};

use crate::tree_path::TreePath;

/// Patterns, in order.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    includes: bool,
    /// About paths from the root, and not about names at any depth.
    anchored: bool,
    directories_only: bool,
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    /// `**`: any number of directories.
    Any,
    /// One name.
    Name(String),
}

impl Filter {
    /// Adds a pattern behind the others: `*`, `?`, `[a-z]`, `{a,b}` within a name, `**` for any number of
    /// directories; with a slash at its end it is about directories only.
    pub fn add(&mut self, pattern: &str, includes: bool) -> Result<()> {
        let wrong = |why: String| {
            let message = format!("the pattern {pattern:?} {why}");
            Error::new(ErrorKind::Usage, message).fault(Fault::Caller)
        };
        if pattern.len() > GLOB_BYTES_MAX {
            return Err(wrong(format!("is longer than {GLOB_BYTES_MAX} bytes")));
        }
        let (body, directories_only) = match pattern.strip_suffix('/') {
            Some(body) => (body, true),
            None => (pattern, false),
        };
        let anchored = body.contains('/');
        let body = body.strip_prefix('/').unwrap_or(body);
        let mut parts = Vec::new();
        for part in body.split('/') {
            parts.push(match part {
                "" | "." | ".." => return Err(wrong("has a part that is no name".into())),
                "**" => Part::Any,
                part => {
                    // In front of a name it is a character like others, as in a shell.
                    let part = if part.starts_with('!') { format!("\\{part}") } else { part.to_owned() };
                    fast_glob::validate(&part).map_err(|cause| wrong(format!("has {cause}")))?;
                    Part::Name(part)
                }
            });
        }
        if let Some(Part::Any) = parts.last() {
            // What is below, and not the directory itself.
            parts.push(Part::Name("*".into()));
        }
        self.rules.push(Rule { includes, anchored, directories_only, parts });
        Ok(())
    }

    /// True if everything is wanted.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// True if a file is wanted.
    pub fn wants(&self, file: &TreePath) -> bool {
        let first = self.rules.iter().find(|rule| rule.matches(file, false));
        first.map_or_else(|| self.wants_rest(), |rule| rule.includes)
    }

    /// True if something below a directory may be wanted.
    pub fn descends(&self, directory: &TreePath) -> bool {
        let mut possible = false;
        for rule in &self.rules {
            if rule.matches(directory, true) {
                return rule.includes || possible;
            }
            possible |= rule.includes && rule.may_match_below(directory);
        }
        possible || self.wants_rest()
    }

    fn wants_rest(&self) -> bool {
        self.rules.last().is_none_or(|last| !last.includes)
    }
}

impl Rule {
    /// True if it matches this path or a directory above it.
    fn matches(&self, path: &TreePath, is_directory: bool) -> bool {
        let count = path.names().count();
        let fits = |at: usize| !self.directories_only || is_directory || at + 1 < count;
        if !self.anchored {
            let [Part::Name(glob)] = self.parts.as_slice() else {
                // `**` alone, with what was put behind it.
                return (0..count).any(fits);
            };
            return path.names().enumerate().any(|(at, name)| fast_glob::glob_match(glob, name) && fits(at));
        }
        let mut walk = Walk::new(&self.parts);
        path.names().enumerate().any(|(at, name)| {
            walk.step(name);
            walk.is_at_end() && fits(at)
        })
    }

    /// True if it may match something below a directory that it does not match.
    fn may_match_below(&self, directory: &TreePath) -> bool {
        if !self.anchored {
            return true;
        }
        let mut walk = Walk::new(&self.parts);
        directory.names().for_each(|name| walk.step(name));
        walk.is_alive()
    }
}

/// The parts of a pattern that may come next, as bits: every way to read a path at once.
struct Walk<'a> {
    parts: &'a [Part],
    at: Vec<bool>,
}

impl Walk<'_> {
    fn new(parts: &[Part]) -> Walk<'_> {
        let mut at = vec![false; parts.len() + 1];
        at[0] = true;
        let mut walk = Walk { parts, at };
        walk.skip_any();
        walk
    }

    fn step(&mut self, name: &[u8]) {
        let mut next = vec![false; self.at.len()];
        for (place, part) in self.parts.iter().enumerate().filter(|(place, _)| self.at[*place]) {
            match part {
                Part::Any => next[place] = true,
                Part::Name(glob) => next[place + 1] |= fast_glob::glob_match(glob, name),
            }
        }
        self.at = next;
        self.skip_any();
    }

    /// `**` may stand for no directory at all.
    fn skip_any(&mut self) {
        for (place, part) in self.parts.iter().enumerate() {
            if let (true, Part::Any) = (self.at[place], part) {
                self.at[place + 1] = true;
            }
        }
    }

    fn is_at_end(&self) -> bool {
        self.at[self.parts.len()]
    }

    fn is_alive(&self) -> bool {
        self.at[..self.parts.len()].contains(&true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[&str]) -> Filter {
        let mut filter = Filter::default();
        for rule in rules {
            let (sign, pattern) = rule.split_at(1);
            filter.add(pattern, sign == "+").unwrap();
        }
        filter
    }

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).unwrap()
    }

    #[track_caller]
    fn check(rules: &[&str], wanted: &[&str], unwanted: &[&str]) {
        let filter = filter(rules);
        for (files, expected) in [(wanted, true), (unwanted, false)] {
            for file in files {
                let file = path(file);
                assert_eq!(filter.wants(&file), expected, "{rules:?} {file}");
                // No directory above a wanted file may be left out.
                for above in file.with_ancestors().iter().skip(1).take_while(|above| **above != file) {
                    assert!(!expected || filter.descends(above), "{rules:?} {above}");
                }
            }
        }
    }

    #[test]
    fn the_first_that_matches_decides_and_the_last_says_what_becomes_of_the_rest() {
        check(&[], &["a", "d/a"], &[]);
        check(&["+*.root"], &["a.root", "d/e/a.root"], &["a.txt", "d/a"]);
        check(&["-*.tmp"], &["a", "d/a.root"], &["a.tmp", "d/e/a.tmp"]);
        check(&["+keep.tmp", "-*.tmp"], &["keep.tmp", "d/keep.tmp", "x"], &["a.tmp"]);
        check(&["-*.tmp", "+run1/**"], &["run1/a", "run1/d/b"], &["run1/a.tmp", "run2/a"]);
        check(&["+*.root", "-*"], &["a.root", "d/a.root"], &["a"]);
    }

    #[test]
    fn patterns_about_names_and_about_paths() {
        check(&["-cache"], &["a/cached"], &["cache", "a/cache", "a/cache/b"]);
        check(&["-cache/"], &["cache", "a/cache"], &["cache/b", "a/cache/b/c"]);
        check(&["-/cache"], &["a/cache", "a/cache/b"], &["cache", "cache/b"]);
        check(&["-a/cache"], &["b/a/cache"], &["a/cache", "a/cache/x"]);
        check(&["+/run?/**/*.{root,nc}"], &["run1/a.root", "run1/x/y/a.nc"], &["run10/a.root", "run1/a.txt"]);
        check(&["-**/old"], &["older"], &["old", "a/b/old", "old/a"]);
        check(&["-**"], &[], &["a", "a/b"]);
        check(&["-!x", "-[!ab]"], &["a", "xx"], &["!x", "c"]);
        let filter = filter(&["-\\*"]);
        assert!(filter.wants(&path("a")) && !filter.wants(&path("*")));
        assert!(!filter.wants(&TreePath::root().child(b"*").unwrap()));
    }

    #[test]
    fn names_are_bytes() {
        let filter = filter(&["+a*z"]);
        assert!(filter.wants(&TreePath::root().child(b"a\xff\nz").unwrap()));
    }

    #[test]
    fn directories_without_anything_wanted_are_left_out() {
        let descends = |rules: &[&str], directory: &str| filter(rules).descends(&path(directory));
        assert!(!descends(&["-cache"], "a/cache"));
        assert!(!descends(&["-cache/"], "cache"));
        assert!(!descends(&["+/run1/**", "-*"], "run2"));
        assert!(descends(&["+/run1/**", "-*"], "run1"));
        assert!(descends(&["+/run1/deep/x", "-*"], "run1/deep"));
        assert!(!descends(&["+/run1/deep/x", "-*"], "run1/other"));
        assert!(descends(&["+*.root"], "any/where"));
        assert!(descends(&["+keep", "-cache"], "cache"));
        assert!(!descends(&["-cache", "+keep"], "cache"));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for bad in ["", "/", "a//b", "../x", "{a", "[", "a\\", "{a/b,c}"] {
            assert!(Filter::default().add(bad, true).is_err(), "{bad}");
        }
    }
}
