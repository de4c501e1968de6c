//! Metalinks in the shape that real programs give them, what has to be refused, and what we write.

use super::*;
use gridlane_core::{ChecksumKind, limits};
use proptest::prelude::*;

fn parse(text: &str) -> Metalink {
    Metalink::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn v4(files: &str) -> Metalink {
    parse(&format!("<metalink xmlns='urn:ietf:params:xml:ns:metalink'>{files}</metalink>"))
}

fn known(text: &str) -> FileHash {
    FileHash::Known(text.parse().unwrap())
}

fn replicas(file: &File) -> Vec<(&str, u32, &str)> {
    let row = |replica: &'_ Replica| (replica.priority, replica.location.clone());
    file.replicas
        .iter()
        .map(|replica| (replica.url.as_str(), row(replica).0, replica.location.as_deref().unwrap_or("")))
        .collect()
}

/// Fills in `%` with `count` hexadecimal digits.
fn digits(text: &str, count: usize) -> String {
    text.replace('%', &"5a".repeat(count / 2))
}

#[test]
fn rucio() {
    let metalink = parse(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<metalink xmlns="urn:ietf:params:xml:ns:metalink">
 <file name="DAOD.12345._000001.pool.root.1">
  <parents>
   <did>mc23:DAOD.12345</did>
  </parents>
  <identity>mc23:DAOD.12345._000001.pool.root.1</identity>
  <hash type="adler32">091e01de</hash>
  <hash type="md5">900150983cd24fb0d6963f7d28e17f72</hash>
  <size>4294967297</size>
  <glfn name="/atlas/rucio/mc23:DAOD.12345._000001.pool.root.1"></glfn>
  <url location="SITE-B_DATADISK" domain="wan" priority="3" client_extract="false">davs://b.example.org:443/x?a=1&amp;b=2</url>
  <url location="SITE-A_DATADISK" domain="lan" priority="1" client_extract="false">root://a.example.org:1094//x</url>
  <url location="SITE-A_DATADISK" domain="lan" priority="2" client_extract="false">https://a.example.org/x</url>
 </file>
 <file name="/store/data/Run3/file.root"><size>0</size></file>
</metalink>
"#,
    );
    assert_eq!((metalink.format, metalink.files.len()), (Format::V4, 2));
    let file = &metalink.files[0];
    assert_eq!(file.name.as_ref().unwrap().as_str(), "DAOD.12345._000001.pool.root.1");
    assert_eq!(file.identity.as_deref(), Some("mc23:DAOD.12345._000001.pool.root.1"));
    assert_eq!(file.size, Some(4_294_967_297));
    assert_eq!(file.hashes, [known("adler32:091e01de"), known("md5:900150983cd24fb0d6963f7d28e17f72")]);
    assert_eq!(
        replicas(file),
        [
            ("root://a.example.org:1094//x", 1, "SITE-A_DATADISK"),
            ("https://a.example.org/x", 2, "SITE-A_DATADISK"),
            ("davs://b.example.org:443/x?a=1&b=2", 3, "SITE-B_DATADISK"),
        ]
    );
    let fetchable: Vec<_> =
        file.replicas.iter().filter_map(Replica::remote_url).map(|url| url.to_string()).collect();
    assert_eq!(fetchable[0], "root://a.example.org//x");
    assert_eq!(fetchable.len(), 3, "{fetchable:?}");
    assert_eq!(metalink.files[1].name, Err(NameFault::Absolute));
}

#[test]
fn mirror_brain_v4_and_aria2() {
    let text = digits(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<metalink xmlns="urn:ietf:params:xml:ns:metalink">
  <generator>MirrorBrain/2.19.0</generator>
  <origin dynamic="true">https://download.example.org/iso/a.iso.meta4</origin>
  <published>2026-01-02T03:04:05Z</published>
  <publisher><name>Example</name><url>https://www.example.org/</url></publisher>
  <file name="iso/a.iso">
    <size>786430</size>
    <language>en</language><description>A &lt;file&gt;</description>
    <hash type="md5">5a</hash>
    <hash type="tiger">XYZ</hash>
    <hash type="sha-256">%</hash>
    <pieces length="262144" type="sha-256">
      <hash>%</hash><hash>%</hash>
      <hash>%</hash>
    </pieces>
    <pieces length="262144" type="sha-1"><hash>a</hash><hash>b</hash></pieces>
    <pieces length="0" type="sha-1"><hash>a</hash></pieces>
    <pieces length="262144" type="md5"><hash>a</hash><hash>b</hash><hash>c</hash></pieces>
    <signature mediatype="application/pgp-signature">-----BEGIN</signature>
    <metaurl mediatype="torrent" priority="1">https://download.example.org/a.torrent</metaurl>
    <url location="de" priority="2">
      https://mirror.example.de/a.iso
    </url>
    <url>https://last.example.org/a.iso</url>
    <url location="fr" priority="1"><![CDATA[https://mirror.example.fr/a.iso?x=1&y=2]]></url>
    <url location="de" priority="7">https://mirror.example.de/a.iso</url>
    <url priority="0">https://zero.example.org/a</url><url priority="1">two words</url><url/>
  </file>
</metalink>"#,
        64,
    );
    let metalink = parse(&text);
    assert_eq!(metalink.generator.as_deref(), Some("MirrorBrain/2.19.0"));
    let origin = Origin { url: "https://download.example.org/iso/a.iso.meta4".into(), dynamic: true };
    assert_eq!(metalink.origin, Some(origin));
    let file = &metalink.files[0];
    let sha256 = known(&digits("sha256:%", 64));
    let other = FileHash::Other { kind: "tiger".into(), value: "XYZ".into() };
    assert_eq!(file.hashes, [other, sha256.clone()]);
    assert_eq!(file.checksums().count(), 1);
    let hashes = vec![sha256.clone(), sha256.clone(), sha256];
    assert_eq!(file.pieces, [Pieces { piece_bytes: 262_144, hashes }]);
    assert_eq!(
        replicas(file),
        [
            ("https://mirror.example.fr/a.iso?x=1&y=2", 1, "fr"),
            ("https://mirror.example.de/a.iso", 2, "de"),
            ("https://last.example.org/a.iso", PRIORITY_LOWEST, ""),
            ("https://zero.example.org/a", PRIORITY_LOWEST, ""),
        ]
    );
}

#[test]
fn fedora_and_open_suse_v3() {
    let text = digits(
        r#"<?xml version="1.0" encoding="utf-8"?>
<!-- a comment -->
<metalink version="3.0" xmlns="http://www.metalinker.org/" type="dynamic" origin="http://h.example.org/a.metalink"
  pubdate="Thu, 21 May 2026 19:54:04 GMT" generator="mirrormanager" xmlns:mm0="http://fedorahosted.org/mirrormanager">
 <files>
  <file name="repomd.xml">
   <mm0:timestamp>1779326542</mm0:timestamp>
   <size>4057</size>
   <verification>
    <hash type="TIGER">8cc2</hash>
    <hash type="sha256">%</hash>
    <pieces length="4000" type="md5"><hash piece="0">0123456789abcdef0123456789abcdef</hash>
    <hash piece="1">0123456789abcdef0123456789abcdef</hash></pieces>
    <pieces length="4000" type="sha1"><hash piece="1">a</hash><hash piece="0">b</hash></pieces>
   </verification>
   <mm0:alternates>
    <mm0:alternate><size>1</size><verification><hash type="md5">acdc621a282bcc0ec33b30e4bdf25ce5</hash></verification></mm0:alternate>
   </mm0:alternates>
   <resources maxconnections="1">
    <url protocol="rsync" type="rsync" location="CN" preference="99">rsync://a.example.org/repomd.xml</url>
    <url protocol="http" type="http" location="US" preference="100" mm0:private="True" >http://b.example.org/repomd.xml</url>
    <url type="bittorrent" preference="100">http://c.example.org/a.torrent</url>
    <url type="http" preference="0">http://d.example.org/repomd.xml</url>
    <url type="http">http://e.example.org/repomd.xml</url>
    <url type="http" preference="101">http://f.example.org/repomd.xml</url>
   </resources>
  </file>
 </files>
</metalink>"#,
        64,
    );
    let metalink = parse(&text);
    assert_eq!((metalink.format, metalink.generator.as_deref()), (Format::V3, Some("mirrormanager")));
    assert!(metalink.origin.as_ref().unwrap().dynamic);
    let file = &metalink.files[0];
    assert_eq!(file.size, Some(4057));
    assert_eq!(file.hashes.len(), 2);
    assert_eq!((file.pieces.len(), file.pieces[0].hashes.len()), (1, 2));
    assert_eq!(
        replicas(file),
        [
            ("http://b.example.org/repomd.xml", 1, "US"),
            ("rsync://a.example.org/repomd.xml", 2, "CN"),
            ("http://d.example.org/repomd.xml", 101, ""),
            ("http://e.example.org/repomd.xml", PRIORITY_LOWEST, ""),
            ("http://f.example.org/repomd.xml", PRIORITY_LOWEST, ""),
        ]
    );
}

#[test]
fn dynafed_prefixes_and_no_namespace() {
    let dynafed = parse(
        r#"<?xml version="1.0" encoding="UTF-8"?><metalink version="3.0" xmlns="http://www.metalinker.org/" xmlns:lcgdm="LCGDM:" generator="lcgdm-dav" pubdate="Fri, 11 Oct 2013 12:46:10 GMT"><files><file name="/lhcb/L"><size>173272912</size><resources><url type="https">https://a.example.org:2880/pnfs/test.file</url><url type="https" lcgdm:x="y">https://b.example.org:2882/pnfs/test.file</url></resources></file></files></metalink>"#,
    );
    assert_eq!(dynafed.files[0].name, Err(NameFault::Absolute));
    assert_eq!((dynafed.files[0].size, dynafed.files[0].replicas.len()), (Some(173_272_912), 2));

    let prefixed = parse(
        "\u{feff}<m:metalink xmlns:m='urn:ietf:params:xml:ns:metalink' xmlns='urn:x'><m:file name='a'><size>1</size>\
         <m:size> 2 </m:size><u:size xmlns:u='urn:u'>3</u:size><m:url>http://h/<m:x>no</m:x>a</m:url></m:file><file name='b'/></m:metalink>",
    );
    assert_eq!((prefixed.files.len(), prefixed.files[0].size), (1, Some(2)));
    assert_eq!(replicas(&prefixed.files[0]), [("http://h/a", PRIORITY_LOWEST, "")]);

    for (text, format) in [
        ("<metalink><file name='a'/></metalink>", Format::V4),
        // Behind what a script printed.
        ("\r\n<?xml version='1.0'?><metalink><file name='a'/></metalink>", Format::V4),
        ("<metalink version='3.0'><files><file name='a'/></files></metalink>", Format::V3),
    ] {
        let metalink = parse(text);
        assert_eq!((metalink.format, metalink.files.len()), (format, 1), "{text}");
    }
    // What Rucio answers when there is no replica.
    assert_eq!(v4("").files, []);
}

#[test]
fn names() {
    for (name, expected) in [
        ("a", Ok("a")),
        ("a/b c/d.root", Ok("d.root")),
        ("..a/b..", Ok("b..")),
        ("scope:name", Ok("scope:name")),
        ("a&amp;b", Ok("a&b")),
        ("", Err(NameFault::Missing)),
        ("/etc/passwd", Err(NameFault::Absolute)),
        ("../a", Err(NameFault::Traversal)),
        ("a/../../b", Err(NameFault::Traversal)),
        ("a/..", Err(NameFault::Traversal)),
        ("./a", Err(NameFault::Traversal)),
        ("&#46;./a", Err(NameFault::Traversal)),
        ("a//b", Err(NameFault::EmptyComponent)),
        ("a/", Err(NameFault::EmptyComponent)),
        ("a&#9;b", Err(NameFault::ControlCharacter)),
        ("a&#x85;", Err(NameFault::ControlCharacter)),
        (&"x".repeat(256), Err(NameFault::TooLong)),
    ] {
        let metalink = v4(&format!("<file name=\"{name}\"><url>http://h/</url></file>"));
        let file = &metalink.files[0];
        assert_eq!(file.name.as_ref().map(RelativeName::last).map_err(|fault| *fault), expected, "{name}");
        // The file is still there for a caller that has a name for it.
        assert_eq!(file.replicas.len(), 1);
    }
    assert_eq!(v4("<file/>").files[0].name, Err(NameFault::Missing));
    assert_eq!(RelativeName::new("a/b").unwrap().components().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn no_file_of_this_machine() {
    let metalink =
        v4("<file name='a'><url>file:///etc/shadow</url><url>/etc/shadow</url><url>ftp://h/a</url>\
                       <url>HTTPS://h/a</url></file>");
    let urls: Vec<_> = metalink.files[0].replicas.iter().filter_map(Replica::remote_url).collect();
    assert_eq!(urls.len(), 1);
    assert_eq!(urls[0].scheme(), Scheme::Https);
}

#[test]
fn what_is_refused() {
    let deep = "<a>".repeat(limits::METALINK_DEPTH_MAX);
    let wide: String = (0..=limits::XML_ATTRIBUTES_MAX).map(|at| format!(" a{at}=''")).collect();
    let urls = "<url/>".repeat(limits::METALINK_URLS_MAX + 1);
    let files = "<file/>".repeat(limits::METALINK_FILES_MAX + 1);
    let pieces = "<hash/>".repeat(limits::METALINK_PIECES_MAX + 1);
    for (why, text) in [
        ("document type", "<!DOCTYPE metalink [<!ENTITY a 'b'>]><metalink/>".to_owned()),
        ("document type", "<metalink/><!DOCTYPE x>".to_owned()),
        ("entity", "<metalink><file name='a'><url>&a;</url></file></metalink>".to_owned()),
        ("cannot be used", "<metalink><file name='&a;'/></metalink>".to_owned()),
        ("no element", String::new()),
        ("no element", "plain text".to_owned()),
        ("root element", "<html><body/></html>".to_owned()),
        ("root element", "<metalink xmlns='urn:other'/>".to_owned()),
        ("two outermost elements", "<metalink/><metalink/>".to_owned()),
        ("ends within", "<metalink><file name='a'><url>http://h/a</url>".to_owned()),
        ("cannot be used", "<metalink><file name='a'></metalink>".to_owned()),
        ("cannot be used", "<metalink><file name='a".to_owned()),
        ("cannot be used", "<metalink a='1' b></metalink>".to_owned()),
        ("character", "<metalink><file name='a&#27;[2J'/></metalink>".to_owned()),
        ("prefix", "<metalink><file name='a'><x:y/></file></metalink>".to_owned()),
        ("encoding", "<?xml version='1.0' encoding='iso-8859-1'?><metalink/>".to_owned()),
        ("too long", format!("<metalink><!--{}--></metalink>", "x".repeat(limits::METALINK_TOKEN_BYTES_MAX))),
        ("nested too deeply", format!("<metalink>{deep}")),
        ("attributes", format!("<metalink><file{wide}/></metalink>")),
        ("URLs", format!("<metalink><file>{urls}</file></metalink>")),
        ("files", format!("<metalink>{files}</metalink>")),
        ("pieces", format!("<metalink><file><pieces>{pieces}</pieces></file></metalink>")),
    ] {
        let error = Metalink::parse(text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(why), "{error} for {text:.60}");
    }
    assert!(Metalink::parse(b"<metalink>\xff</metalink>").is_err());
    assert!(Metalink::parse(&vec![b' '; limits::METALINK_BYTES_MAX + 1]).is_err());
}

#[test]
fn what_is_one() {
    let xml = b"<?xml version='1.0'?>\n<!-- <a> -->\n<metalink xmlns=''";
    for (content_type, path, first_bytes, expected) in [
        (Some("application/metalink4+xml"), "/a", &b""[..], true),
        (Some("Application/Metalink+XML; charset=utf-8"), "/a", b"", true),
        (Some("application/octet-stream"), "/a.meta4", xml, true),
        (Some("text/xml;charset=utf-8"), "/a.METALINK?x=y.root", xml, true),
        (None, "/a.meta4", b"", true),
        (None, "/a.meta4", b"<?xml vers", true),
        (None, "/a.meta4", b"\xef\xbb\xbf<m:metalink>", true),
        (None, "/a.meta4", b"<meta", true),
        (None, "/a.meta4", b"<metalinks>", false),
        (None, "/a.meta4", b"\x89HDF", false),
        (None, "/a.root?x=.meta4", xml, false),
        (Some("text/plain"), "/a", xml, false),
        (Some("text/html"), "/a.meta4", b"<html>", false),
        (Some("text/html"), "/a.meta4", xml, false),
    ] {
        assert_eq!(is_metalink(content_type, path, first_bytes), expected, "{content_type:?} {path}");
    }
}

#[test]
fn written() {
    let name = RelativeName::new("a & <b>/\"c\"").unwrap();
    let file = File {
        size: Some(5),
        hashes: vec![known("adler32:091e01de"), FileHash::Other { kind: "tiger".into(), value: "<".into() }],
        replicas: vec![Replica { url: "https://h/a?b&c".into(), priority: 1, location: Some("ch".into()) }],
        ..File::new(Ok(name))
    };
    let metalink = Metalink {
        format: Format::V4,
        generator: Some("gridlane".into()),
        origin: Some(Origin { url: "https://h/a?metalink".into(), dynamic: true }),
        files: vec![file, File::new(Err(NameFault::Traversal))],
    };
    assert_eq!(
        metalink.render(Format::V4),
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\n  \
           <generator>gridlane</generator>\n  \
           <origin dynamic=\"true\">https://h/a?metalink</origin>\n  \
           <file name=\"a &amp; &lt;b&gt;/&quot;c&quot;\">\n    \
             <size>5</size>\n    \
             <hash type=\"adler32\">091e01de</hash>\n    \
             <hash type=\"tiger\">&lt;</hash>\n    \
             <url location=\"ch\" priority=\"1\">https://h/a?b&amp;c</url>\n  \
           </file>\n\
         </metalink>\n"
    );
    let v3 = metalink.render(Format::V3);
    assert!(
        v3.contains("<url location=\"ch\" type=\"https\" preference=\"100\">https://h/a?b&amp;c</url>"),
        "{v3}"
    );
}

fn any_file() -> impl Strategy<Value = File> {
    let component = "[a-zA-Z0-9 &<>\"'é:\\\\]{1,10}x";
    let replica =
        ("https?://[a-z]{1,8}/[a-z?&=<>\"'%é]{0,12}", 1u32..=101, prop::option::of("[A-Za-z_&<\"-]{1,9}"));
    let checksum = (0usize..6, prop::collection::vec(any::<u8>(), 64)).prop_map(|(which, bytes)| {
        let kind = ChecksumKind::ALL[which];
        FileHash::Known(Checksum::from_bytes(kind, &bytes[..kind.value_len()]).unwrap())
    });
    (
        (prop::collection::vec(component, 1..4), prop::option::of("[a-z:&<]{1,20}")),
        (any::<u32>(), 1u64..5, any::<u32>()),
        prop::collection::vec(checksum, 0..4),
        prop::collection::vec(replica, 0..6),
    )
        .prop_map(|((components, identity), (first, count, piece_bytes), hashes, urls)| {
            let mut file = File::new(RelativeName::new(&components.join("/")));
            let piece_bytes = u64::from(piece_bytes.max(1));
            file.size = Some(piece_bytes * (count - 1) + 1);
            let hashes_of_pieces =
                (0..count).map(|at| known(&format!("adler32:{:08x}", u64::from(first) ^ at)));
            file.pieces = vec![Pieces { piece_bytes, hashes: hashes_of_pieces.collect() }];
            (file.identity, file.hashes) = (identity, hashes);
            for (url, priority, location) in urls {
                if file.replicas.iter().all(|replica| replica.url != url) {
                    file.replicas.push(Replica { url, priority, location });
                }
            }
            file.replicas.sort_by_key(|replica| replica.priority);
            file
        })
}

proptest! {
    #[test]
    fn round_trips(files in prop::collection::vec(any_file(), 0..4), dynamic: bool, v3: bool) {
        let format = if v3 { Format::V3 } else { Format::V4 };
        let origin = Some(Origin { url: "https://h/a?b&c=\"".into(), dynamic });
        let metalink = Metalink { format, generator: Some("a <b> & c".into()), origin, files };
        let text = metalink.render(format);
        prop_assert_eq!(Metalink::parse(text.as_bytes()).unwrap(), metalink, "{}", text);
    }

    #[test]
    fn cut_short_is_an_error(files in prop::collection::vec(any_file(), 1..3), cut in 1usize..400) {
        let metalink = Metalink { format: Format::V4, generator: None, origin: None, files };
        let text = metalink.render(Format::V4);
        let cut = cut.min(text.len() - 1);
        // The last line end may be missing.
        prop_assert!(Metalink::parse(&text.as_bytes()[..text.len() - 1 - cut]).is_err());
    }

    #[test]
    fn never_panics(
        words in prop::collection::vec(prop::sample::select(vec![
            "<metalink>", "</metalink>", "<metalink xmlns='http://www.metalinker.org/'>", "<files>", "<file name='a'>",
            "<file", "</file>", "</files>", "<url>", "<url priority='1' preference='0'>", "</url>", "<pieces length='1' type='md5'>",
            "</pieces>", "<hash>", "<hash type='adler32' piece='0'>", "</hash>", "<size>", "</size>", "<a:b xmlns:a='c'>",
            "</a:b>", "<x:y>", "&amp;", "&#x0;", "&#65;", "&x;", "<![CDATA[", "]]>", "<!--", "-->", "<?", "?>", "<!DOCTYPE",
            "1", "http://h/", "<resources>", "<verification>", ">", "<", "'", "\u{0}", "é",
        ]), 0..40),
        bytes in prop::collection::vec(any::<u8>(), 0..60)
    ) {
        let text = words.concat();
        let _ = (Metalink::parse(text.as_bytes()), Metalink::parse(&bytes));
        let _ = Metalink::parse(format!("<metalink><file name='a'>{text}</file></metalink>").as_bytes());
        let _ = (is_metalink(None, ".meta4", text.as_bytes()), is_metalink(None, ".meta4", &bytes));
    }

    #[test]
    fn a_name_stays_inside(text in "([./]|\\PC){0,12}") {
        if let Ok(name) = RelativeName::new(&text) {
            let path = std::path::Path::new(name.as_str());
            prop_assert!(path.components().all(|part| matches!(part, std::path::Component::Normal(_))));
            prop_assert_eq!(name.components().count(), path.components().count());
        }
    }
}
