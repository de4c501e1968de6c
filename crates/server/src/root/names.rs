//! Names of users and groups.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;
use std::sync::LazyLock;

use gridlane_core::limits;

/// Names by numbers.
pub(crate) struct Names {
    users: HashMap<u32, Vec<u8>>,
    groups: HashMap<u32, Vec<u8>>,
}

/// The names that this machine's files have: read once, since a listing asks for them at every entry. Users and groups
/// that only a directory service knows are shown as numbers.
static NAMES: LazyLock<Names> =
    LazyLock::new(|| Names { users: read(Path::new("/etc/passwd")), groups: read(Path::new("/etc/group")) });

/// The name of a user; the number if it has none.
pub(crate) fn user(number: u32) -> Vec<u8> {
    name_in(&NAMES.users, number)
}

/// The name of a group; the number if it has none.
pub(crate) fn group(number: u32) -> Vec<u8> {
    name_in(&NAMES.groups, number)
}

fn name_in(names: &HashMap<u32, Vec<u8>>, number: u32) -> Vec<u8> {
    names.get(&number).cloned().unwrap_or_else(|| number.to_string().into_bytes())
}

fn read(path: &Path) -> HashMap<u32, Vec<u8>> {
    match File::open(path) {
        Ok(file) => parse(BufReader::new(file.take(limits::NAMES_BYTES_MAX))),
        Err(_) => HashMap::new(),
    }
}

/// Reads lines of `name:password:number:…`. The first name of a number counts. A name that would be two words of a stat
/// text, or none, is left out.
fn parse(lines: impl std::io::BufRead) -> HashMap<u32, Vec<u8>> {
    let mut names = HashMap::new();
    for line in lines.split(b'\n').map_while(Result::ok) {
        let mut fields = line.split(|byte| *byte == b':');
        let (name, number) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        if let (Some(number), true) = (number, !name.is_empty() && name.iter().all(u8::is_ascii_graphic)) {
            names.entry(number).or_insert_with(|| name.to_vec());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_make_sense() {
        let text = b"root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\nno line\na b:x:5:\n:x:6:\nz:x:many:\nlast:x:7:";
        let names = parse(&text[..]);
        assert_eq!(name_in(&names, 0), b"root");
        assert_eq!(name_in(&names, 7), b"last");
        assert_eq!(name_in(&names, 5), b"5");
        assert_eq!(names.len(), 2);
        assert_eq!(user(0), b"root");
    }
}
