//! Completion of what is being typed: commands, options and their values, and names on servers.
//!
//! A shell asks this binary at every TAB (`gridlane complete SHELL WORD…`). Names on this machine are the shell's
//! own business: it does that better. Names on a server are asked for with a deadline that a person does
//! not notice, and remembered for a while, since several TABs ask for the same directory.

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use clap::CommandFactory as _;
use clap_complete::engine::CompletionCandidate;
use gridlane_client::{EntryKind, Item, Lister, encode_name};
use gridlane_core::text::is_unprintable;
use gridlane_core::{Result, Url};
use gridlane_net::tls::Trust;
use gridlane_peer::Client;
use tokio::time::timeout;

use crate::args::{Cli, CompleteArgs, CompletionArgs, Shell};
use crate::output;

/// Longest wait for a server's names.
const ANSWER_MAX: Duration = Duration::from_millis(300);

/// Time for which an answer is remembered.
const FRESH: Duration = Duration::from_secs(30);

/// Names of one directory that are offered.
const NAMES_MAX: usize = 1000;

/// The trust of the command that is being typed.
static TRUST: OnceLock<Trust> = OnceLock::new();

/// Prints the script that makes a shell ask.
pub(crate) fn script(args: &CompletionArgs) -> Result<ExitCode> {
    let text = match args.shell {
        Shell::Bash => include_str!("completion/gridlane.bash"),
        Shell::Zsh => include_str!("completion/gridlane.zsh"),
        Shell::Fish => include_str!("completion/gridlane.fish"),
    };
    output::print(text.as_bytes())
}

/// Answers a shell: a candidate a line; nothing when the shell shall look at its own files.
pub(crate) fn complete(args: &CompleteArgs) -> Result<ExitCode> {
    let words: Vec<OsString> = match args.shell {
        // bash cuts words at colons; the line as it was typed does not.
        Shell::Bash => {
            split(&args.words.join(OsStr::new(" ")).to_string_lossy()).into_iter().map(Into::into).collect()
        }
        Shell::Zsh | Shell::Fish => args.words.clone(),
    };
    let Some(current) = words.last().map(|word| word.to_string_lossy().into_owned()) else {
        return Ok(ExitCode::SUCCESS);
    };
    let _ = TRUST.set(trust_of(&words));
    let index = words.len() - 1;
    // What cannot be understood cannot be completed, which is no failure.
    let found = clap_complete::engine::complete(&mut Cli::command(), words, index, None).unwrap_or_default();
    // What bash does not replace: everything up to the last place where it cuts.
    let kept = match args.shell {
        Shell::Bash => current.rfind([':', '=']).map_or(0, |at| at + 1),
        Shell::Zsh | Shell::Fish => 0,
    };
    let mut out = Vec::new();
    for candidate in found {
        let value = candidate.get_value().to_string_lossy().into_owned();
        if candidate.is_hide_set() || value.contains(is_unprintable) || !value.is_char_boundary(kept) {
            continue;
        }
        if value.len() >= kept {
            out.extend_from_slice(&value.as_bytes()[kept..]);
            out.push(b'\n');
        }
    }
    output::print(&out)
}

/// The names on a server that begin as what was typed.
pub(crate) fn names_at(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(text) = current.to_str().filter(|text| text.contains("://")) else { return Vec::new() };
    let Ok(typed) = Url::parse_absolute(text) else { return Vec::new() };
    let Some((directory, begun)) = text.rsplit_once('/') else { return Vec::new() };
    // `https:/` and `https://host` are not there yet.
    if typed.to_path().is_some() || text.contains(['?', '#']) || directory.ends_with(['/', ':']) {
        return Vec::new();
    }
    let directory = format!("{directory}/");
    let names = names_in(&directory).unwrap_or_default();
    let fitting = names.into_iter().filter(|name| name.starts_with(begun));
    fitting.take(NAMES_MAX).map(|name| CompletionCandidate::new(format!("{directory}{name}"))).collect()
}

/// The names in a directory on a server, as they are typed, directories with a slash behind them.
fn names_in(directory: &str) -> Option<Vec<String>> {
    let url = Url::parse_absolute(directory).ok()?;
    // What only the holder of a secret may see is not kept.
    let kept = (!url.has_secrets()).then(|| kept_file(directory)).flatten();
    if let Some(names) = kept.as_deref().and_then(read_kept) {
        return Some(names);
    }
    let runtime = gridlane_client::runtime(1).ok()?;
    let client = crate::connect::connect_quietly(&url, TRUST.get().cloned().unwrap_or_default());
    let asked = runtime.block_on(async { timeout(ANSWER_MAX, tokio::spawn(ask(client, url))).await });
    runtime.shutdown_background();
    let names = asked.ok()?.ok()?.ok()?;
    if let Some(file) = kept {
        // A cache that cannot be written costs a question more.
        let _ = keep(&file, &names);
    }
    Some(names)
}

async fn ask(client: Client, url: Url) -> Result<Vec<String>> {
    let mut listing = Lister::new(client).list(&url).await?;
    let (mut names, mut items) = (Vec::new(), Vec::new());
    loop {
        let is_more = listing.next(&mut items).await?;
        for item in items.drain(..) {
            let Item::Entry(entry) = item else { continue };
            let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
            names.extend(typed_name(&url, entry.name).map(|name| format!("{name}{slash}")));
        }
        if !is_more || names.len() >= NAMES_MAX {
            names.sort_unstable();
            return Ok(names);
        }
    }
}

/// The text of a name in a URL like `url`; `None`: it cannot be typed.
fn typed_name(url: &Url, name: Vec<u8>) -> Option<String> {
    match url.scheme().is_root() {
        false => Some(encode_name(&name)),
        true => String::from_utf8(name)
            .ok()
            .filter(|name| !name.contains(|c: char| c == '?' || is_unprintable(c))),
    }
}

fn kept_file(directory: &str) -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|dir| !dir.is_empty());
    let cache =
        of("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(Path::new(&of("HOME")?).join(".cache")))?;
    let mut hasher = DefaultHasher::new();
    directory.hash(&mut hasher);
    Some(cache.join("gridlane/completion").join(format!("{:016x}", hasher.finish())))
}

fn read_kept(file: &Path) -> Option<Vec<String>> {
    let age = std::fs::metadata(file).ok()?.modified().ok()?.elapsed().ok()?;
    if age > FRESH {
        return None;
    }
    Some(std::fs::read_to_string(file).ok()?.lines().map(str::to_owned).collect())
}

fn keep(file: &Path, names: &[String]) -> std::io::Result<()> {
    let dir = file.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let begun = file.with_extension(std::process::id().to_string());
    let mut text = names.join("\n");
    text.push('\n');
    let mut open = std::fs::File::options();
    open.write(true).create(true).truncate(true).mode(0o600).open(&begun)?.write_all(text.as_bytes())?;
    std::fs::rename(&begun, file)
}

/// The options about trust among the words.
fn trust_of(words: &[OsString]) -> Trust {
    let mut trust =
        Trust { ca_dir: std::env::var_os("X509_CERT_DIR").map(PathBuf::from), ..Trust::default() };
    trust.ca_files.extend(std::env::var_os("GRIDLANE_CA").map(PathBuf::from));
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--ca") => trust.ca_files.extend(words.next().map(PathBuf::from)),
            Some("--insecure") => trust.insecure = true,
            Some(text) => trust.ca_files.extend(text.strip_prefix("--ca=").map(PathBuf::from)),
            None => {}
        }
    }
    trust
}

/// The words of a line as a shell sees them; the last one is the one being typed, perhaps empty.
fn split(line: &str) -> Vec<String> {
    let mut words = vec![];
    let mut word = String::new();
    let (mut quote, mut is_begun) = (None, false);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => (quote, is_begun) = (Some(c), true),
            (None | Some('"'), '\\') => word.extend(chars.next()),
            (None, c) if c.is_whitespace() => {
                if is_begun || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                is_begun = false;
            }
            (_, c) => word.push(c),
        }
    }
    words.push(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_as_a_shell_cuts_it() {
        for (line, words) in [
            ("gridlane cp http://h:1/a", &["gridlane", "cp", "http://h:1/a"][..]),
            ("gridlane  cp ", &["gridlane", "cp", ""]),
            ("gridlane cp 'a b' \"c d\" e\\ f", &["gridlane", "cp", "a b", "c d", "e f"]),
            ("gridlane cp '' x", &["gridlane", "cp", "", "x"]),
            ("", &[""]),
            ("a 'open", &["a", "open"]),
        ] {
            assert_eq!(split(line), words, "{line:?}");
        }
    }

    #[test]
    fn names_are_typed_as_their_scheme_has_them() {
        let typed = |url: &str, name: &[u8]| typed_name(&Url::parse_absolute(url).unwrap(), name.to_vec());
        assert_eq!(typed("http://h/", b"a %").as_deref(), Some("a%20%25"));
        assert_eq!(typed("root://h//", b"a %").as_deref(), Some("a %"));
        assert!(typed("root://h//", b"a?").is_none() && typed("roots://h//", b"\xff").is_none());
    }

    #[test]
    fn trust_is_that_of_the_line() {
        let words: Vec<OsString> =
            ["ls", "--ca", "a.pem", "--ca=b.pem", "--insecure"].map(Into::into).to_vec();
        let trust = trust_of(&words);
        assert!(trust.insecure && trust.ca_files.ends_with(&["a.pem".into(), "b.pem".into()]));
    }

    #[test]
    fn only_names_on_servers_are_asked_for() {
        for typed in
            ["", "a/b", "/etc/", "http:/", "http://", "http://127.0.0.1:1", "file:///etc/", "http://h/?x/"]
        {
            assert!(names_at(OsStr::new(typed)).is_empty(), "{typed}");
        }
    }
}
