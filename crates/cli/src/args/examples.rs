//! Every example of the help, the README and the guides is a command line that is understood.

use std::path::Path;

use super::*;
use clap::{Command as Clap, CommandFactory};

/// The lines of indented blocks, joined where one goes on in the next.
fn lines(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let is_begun = |code: &&str| goes_on || !code.starts_with(' ');
        let code = line.strip_prefix("    ").filter(|code| !code.trim().is_empty()).filter(is_begun);
        let Some(code) = code else {
            goes_on = false;
            continue;
        };
        let (code, more) = match code.trim_end().strip_suffix('\\') {
            Some(begun) => (begun, true),
            None => (code, false),
        };
        match all.last_mut().filter(|_| goes_on) {
            Some(last) => last.push_str(code.trim_start()),
            None => all.push(code.to_owned()),
        }
        goes_on = more;
    }
    all
}

/// The words of a line of shell up to the first operator, without redirections and comments.
fn words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, ' ') => all.extend(word.take()),
            (None, '#') if word.is_none() => break,
            (None, '|' | ';' | '&') => break,
            (None, '<' | '>') => {
                // The next word is a file's name.
                all.extend(word.take());
                while chars.next_if(|c| matches!(c, '>' | ' ')).is_some() {}
                while chars.next_if(|c| *c != ' ').is_some() {}
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    all.extend(word);
    all
}

/// The command lines of `gridlane` in a line of shell: behind variables, `sudo`, or as what `wan exec` runs.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut words = words(line);
    let is_before = |word: &String| {
        word == "sudo"
            || word.split('=').next().is_some_and(|name| {
                name != word && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            })
    };
    let begin = words.iter().take_while(|word| is_before(word)).count();
    words.drain(..begin);
    if words.first().is_none_or(|first| first != "gridlane") {
        return Vec::new();
    }
    let inner = words.iter().skip(1).position(|word| word == "gridlane").map(|at| words[at + 1..].to_vec());
    [words].into_iter().chain(inner).filter(|words| !words.iter().any(|word| word.contains('…'))).collect()
}

fn check(place: &str, text: &str) -> usize {
    let all: Vec<Vec<String>> = lines(text).iter().flat_map(|line| commands(line)).collect();
    for words in &all {
        if let Err(error) = Cli::command().try_get_matches_from(words) {
            assert!(!error.use_stderr(), "{place}: {}\n{error}", words.join(" "));
        }
    }
    all.len()
}

#[test]
fn every_example_of_the_pages_is_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    for dir in ["docs/guides", "docs/reference", "docs/protocol", "docs/performance"] {
        pages.extend(std::fs::read_dir(root.join(dir)).unwrap().map(|entry| entry.unwrap().path()));
    }
    let of_page = |page: &std::path::PathBuf| {
        check(&page.display().to_string(), &std::fs::read_to_string(page).unwrap())
    };
    let count: usize = pages.iter().map(of_page).sum();
    assert!(count > 60, "only {count} examples were found");
}

#[test]
fn every_example_of_the_help_is_understood() {
    fn all(command: &Clap, found: &mut usize) {
        let texts = [command.get_long_about(), command.get_after_help(), command.get_after_long_help()];
        for text in texts.into_iter().flatten() {
            *found += check(command.get_name(), &text.to_string());
        }
        command.get_subcommands().for_each(|inner| all(inner, found));
    }
    let mut found = 0;
    all(&Cli::command(), &mut found);
    assert!(found >= 3, "only {found} examples were found");
}

#[test]
fn a_mistake_in_an_example_would_be_found() {
    let page = "text\n\n    X=1 sudo gridlane cp --mirror 'http://b/a b' \\\n        http://a/f . >out # why\n    gridlane wan exec a -- gridlane ls x | head\n";
    let found: Vec<Vec<String>> = lines(page).iter().flat_map(|line| commands(line)).collect();
    assert_eq!(
        found,
        [
            vec!["gridlane", "cp", "--mirror", "http://b/a b", "http://a/f", "."],
            vec!["gridlane", "wan", "exec", "a", "--", "gridlane", "ls", "x"],
            vec!["gridlane", "ls", "x"],
        ]
    );
    assert!(std::panic::catch_unwind(|| check("page", "    gridlane ls --fast x\n")).is_err());
}
