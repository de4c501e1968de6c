//! The beginnings of files of ROOT, made by hand (ROOT, io/doc/TFile/header.md, tdirectory.md, tkey.md).

fn text(text: &str) -> Vec<u8> {
    [&[text.len() as u8][..], text.as_bytes()].concat()
}

/// A key of a directory: of what, where it is with all of its bytes, and what it unpacks to.
pub(crate) fn key(class: &str, name: &str, (at, bytes): (u32, u32), object_bytes: u32) -> Vec<u8> {
    let mut key = bytes.to_be_bytes().to_vec();
    key.extend(4_u16.to_be_bytes());
    key.extend(object_bytes.to_be_bytes());
    key.extend([0; 4]);
    key.extend(((26 + class.len() + name.len() + 3) as u16).to_be_bytes());
    key.extend(1_u16.to_be_bytes());
    key.extend([at, 100].map(u32::to_be_bytes).concat());
    [key, text(class), text(name), text("")].concat()
}

/// The head of a file with its directory: where the streamer information and the list of keys are, with their bytes.
pub(crate) fn head(size_bytes: u32, info: (u32, u32), keys: (u32, u32)) -> Vec<u8> {
    let mut head = b"root".to_vec();
    for field in [63_206_u32, 100, size_bytes, size_bytes - 60, 60, 1, 58] {
        head.extend(field.to_be_bytes());
    }
    head.push(4);
    for field in [101_u32, info.0, info.1] {
        head.extend(field.to_be_bytes());
    }
    head.resize(158, 0);
    head.extend(5_u16.to_be_bytes());
    for field in [0_u32, 0, keys.1, 58, 100, 0, keys.0] {
        head.extend(field.to_be_bytes());
    }
    head
}

/// The list of keys of a directory.
pub(crate) fn keys(of: &[Vec<u8>]) -> Vec<u8> {
    let list = key("TFile", "a.root", (0, 0), 0);
    [list, (of.len() as u32).to_be_bytes().to_vec(), of.concat()].concat()
}
