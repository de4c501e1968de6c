//! Names as OpenSSL prints them.

use gridlane_auth::make::{Name as Made, *};
use gridlane_auth::x509::{Certificate, Name};

use crate::world::{openssl, part};

fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
    assert!(contents.len() < 0x10000);
    let len = contents.len() as u16;
    let head = match len {
        0..=0x7f => vec![tag, len as u8],
        0x80..=0xff => vec![tag, 0x81, len as u8],
        _ => vec![tag, 0x82, (len >> 8) as u8, len as u8],
    };
    [head, contents.to_vec()].concat()
}

fn pair(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
    element(0x30, &[element(6, kind), element(tag, value)].concat())
}

/// Relative names of several pairs each.
fn der(names: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let sets: Vec<u8> = names
        .iter()
        .flat_map(|pairs| {
            let mut pairs = pairs.clone();
            pairs.sort();
            element(0x31, &pairs.concat())
        })
        .collect();
    element(0x30, &sets)
}

#[test]
fn names_are_printed_as_openssl_does() {
    const CN: &[u8] = &[0x55, 4, 3];
    const UTF8: u8 = 12;
    let cn = |tag, value: &[u8]| vec![pair(CN, tag, value)];
    let ou = |value: &[u8]| pair(&[0x55, 4, 11], UTF8, value);
    let x520 =
        (3..=54).chain([65, 72, 97]).map(|number| vec![pair(&[0x55, 4, number], UTF8, &[b'v', number])]);
    let cosine = [1, 3, 25]
        .map(|number| vec![pair(&[9, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, number], 22, b"a")]);
    let pkcs9 = [1, 2, 8]
        .map(|number| vec![pair(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, number], 22, b"a@b.org")]);
    let extended =
        [1, 2, 3].map(|number| vec![pair(&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 0x3c, 2, 1, number], 19, b"CH")]);
    let all = [
        x520.collect::<Vec<_>>(),
        cosine.into_iter().chain(pkcs9).chain(extended).collect(),
        vec![
            cn(UTF8, "Zoë Ærøskøbing 北".as_bytes()),
            cn(20, b"Zo\xeb"),
            cn(30, b"\0Z\0o\x53\x17"),
            cn(28, b"\0\0\0Z"),
        ],
        vec![cn(UTF8, b" space "), cn(UTF8, b"#number"), cn(UTF8, b"a#b c"), cn(UTF8, b" "), cn(UTF8, b"  ")],
        vec![cn(UTF8, br##",+"\<>;=/"##), cn(UTF8, b"host/node.example.org"), cn(UTF8, b"a=b/c=d")],
        vec![cn(UTF8, b"\x01\n\x7f~"), cn(UTF8, b"")],
        vec![vec![pair(CN, UTF8, b"one"), ou(b"two"), ou(b"three")], cn(19, b"last")],
        vec![vec![pair(&[0x2b, 6, 1, 4, 1, 0x86, 0x8d, 0x1f, 7], UTF8, b"unknown")], cn(18, b"123")],
        vec![cn(22, b"ia5")],
        vec![],
    ];
    let dir = tempfile::TempDir::new().unwrap();
    for names in all {
        let der = der(&names);
        let made = part(Made::from_der(&der).unwrap(), 1, crate::world::name("/CN=Root"), 0, 7).make();
        let name = Name::from_der(&der).unwrap();
        assert_eq!(*Certificate::from_der(&made).unwrap().subject(), name);
        std::fs::write(dir.path().join("pem"), pem::encode(pem::CERTIFICATE, &made)).unwrap();
        let mut ours = vec![name.to_string(), name.rfc2253()];
        let mut theirs = Vec::new();
        for form in ["compat", "RFC2253"] {
            let said =
                openssl(&["x509", "-noout", "-subject", "-nameopt", form, "-in", "pem"], Some(dir.path()));
            let said = String::from_utf8(said).unwrap();
            theirs.push(said.trim_end_matches('\n').strip_prefix("subject=").unwrap().to_owned());
        }
        // Where OpenSSL prints different names alike, we do not.
        for (one, other) in
            [(r"\x00Z\x00oS\x17", r"Zo\xE5\x8C\x97"), (r"\x00\x00\x00Z", "Z"), (r#""\<"#, r#""\x5C<"#)]
        {
            theirs[0] = theirs[0].replace(one, other);
        }
        let hash =
            String::from_utf8(openssl(&["x509", "-noout", "-hash", "-in", "pem"], Some(dir.path()))).unwrap();
        theirs.push(hash.trim().to_owned());
        let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &name.canonical());
        let first = <[u8; 4]>::try_from(&digest.as_ref()[..4]).unwrap();
        ours.push(format!("{:08x}", u32::from_le_bytes(first)));
        assert_eq!(ours, theirs);
    }
}
