//! Conversations of real peers, as `fuzz/record-root.py` writes them down.

use std::path::Path;

/// Bytes that came at once on a connection.
#[derive(Clone, Debug)]
pub struct Said {
    /// Which connection of the conversation.
    pub connection: u32,
    /// The client has sent them, not the server.
    pub is_client: bool,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A conversation, in the order in which things were said.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The operation.
    pub name: String,
    /// The messages, in order.
    pub said: Vec<Said>,
}

/// The conversations in a directory.
///
/// # Panics
/// When they cannot be read.
pub fn conversations(dir: &Path) -> Vec<Conversation> {
    let mut found = Vec::new();
    let files = std::fs::read_dir(dir).unwrap_or_else(|cause| panic!("{}: {cause}", dir.display()));
    for path in files.flatten().map(|file| file.path()) {
        if path.extension().is_some_and(|kind| kind == "txt") {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let said = text.lines().map(|line| said(line).unwrap_or_else(|| panic!("{line:?}"))).collect();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            found.push(Conversation { name, said });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn said(line: &str) -> Option<Said> {
    let mut words = line.split(' ');
    let (connection, who, digits) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = digits.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?;
    matches!(who, "C" | "S").then_some(Said { connection, is_client: who == "C", bytes })
}
