use super::*;

fn base() -> Url {
    Url::parse_absolute("https://h.example/dir/x.meta4").unwrap()
}

fn read(text: &str) -> Result<Vec<Described>> {
    described(&Metalink::parse(text.as_bytes()).unwrap(), &base())
}

fn file(inside: &str) -> Result<Described> {
    let text = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\">{inside}</file></metalink>"
    );
    read(&text).map(|mut files| files.remove(0))
}

const MD5: &str = "<hash type=\"md5\">900150983cd24fb0d6963f7d28e17f72</hash>";

#[test]
fn replicas_come_in_order_and_only_what_can_be_fetched() {
    let file = file(&format!(
        "{MD5}<url priority=\"3\">http://c.example/f</url><url priority=\"1\">ftp://a.example/f</url>\
         <url priority=\"2\">f%20g?x=1</url><url>file:///etc/passwd</url><url>https://b.example/f</url>\
         <metaurl mediatype=\"torrent\">https://b.example/t</metaurl><url>root://r.example//f%20g</url>"
    ))
    .unwrap();
    let urls: Vec<String> = file.sources.iter().map(Url::typed).collect();
    let expected = [
        "https://h.example/dir/f%20g?x=1",
        "http://c.example/f",
        "https://b.example/f",
        "root://r.example//f%20g",
    ];
    assert_eq!(urls, expected);
    assert_eq!(file.notes.len(), 2, "{:?}", file.notes);
}

#[test]
fn clear_text_needs_a_checksum_where_the_metalink_came_encrypted() {
    for url in ["http://c.example/f", "root://c.example//f"] {
        let error = file(&format!("<url>{url}</url>")).unwrap_err();
        assert!(error.message().contains("not encrypted"), "{error}");
        assert!(file(&format!("<url>{url}</url>{MD5}")).is_ok());
    }
    assert!(file("<url>roots://c.example//f</url>").is_ok());
}

#[test]
fn no_usable_url_is_an_error_that_says_why() {
    for (inside, word) in [("", "no URL"), ("<url>ftp://a/f</url>", "ftp"), ("<url>file:///f</url>", "file")]
    {
        let error = file(inside).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains(word), "{error}");
    }
}

#[test]
fn the_strongest_checksums_are_used() {
    let url = "<url>https://b.example/f</url>";
    let sha1 = "<hash type=\"sha-1\">a9993e364706816aba3e25717850c26c9cd0d89d</hash>";
    let adler32 = "<hash type=\"adler32\">024d0127</hash>";
    let pieces = "<pieces length=\"2\" type=\"md5\"><hash>900150983cd24fb0d6963f7d28e17f72</hash>\
        <hash>900150983cd24fb0d6963f7d28e17f72</hash></pieces>\
        <pieces length=\"3\" type=\"sha-1\"><hash>a9993e364706816aba3e25717850c26c9cd0d89d</hash></pieces>\
        <pieces length=\"3\" type=\"tiger\"><hash>a9</hash></pieces>";
    let known = file(&format!("<size>3</size>{url}{MD5}{adler32}{sha1}{pieces}")).unwrap().known;
    let kinds: Vec<&str> = known.checksums.iter().map(|checksum| checksum.kind().name()).collect();
    assert_eq!((known.size_bytes, kinds), (Some(3), vec!["sha1", "md5", "adler32"]));
    assert_eq!(known.pieces.unwrap().kind().name(), "sha1");
    let without_size = file(&format!("{url}{pieces}")).unwrap();
    assert!(without_size.known.pieces.is_none() && !without_size.notes.is_empty());
}

#[test]
fn names_stay_below_the_target() {
    let dir = tempfile::tempdir().unwrap();
    let file_text = |name: &str| {
        let url = "<url>https://b.example/last%20name</url>";
        format!(
            "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"{name}\">{url}</file></metalink>"
        )
    };
    let resolve_as = |name: &str, naming: Naming<'_>| {
        let file = read(&file_text(name)).unwrap().remove(0);
        file.resolve(".", naming, dir.path()).map(|target| target.name)
    };
    let resolve = |name: &str| resolve_as(name, Naming::OneOfSeveral);
    let below = |name: &str| dir.path().join(name).display().to_string();
    assert_eq!(resolve("a b/c%d").unwrap(), below("a b/c%d"));
    assert_eq!(resolve("/cms/f").unwrap(), below("last name"));
    let own = Url::parse_absolute("https://h.example/mine?metalink").unwrap();
    for name in [
        "../f",
        "a/../../f",
        "",
        "a//b",
        "a\u{7f}b",
        "a\u{202e}b",
        ".bashrc",
        ".ssh/authorized_keys",
        "a/.config",
        "a/.f.gridlane-part",
    ] {
        for naming in [Naming::Only, Naming::OneOfSeveral] {
            assert!(resolve_as(name, naming).is_err(), "{name:?} {naming:?}");
        }
        assert_eq!(resolve_as(name, Naming::Own(&own)).unwrap(), below("mine"), "{name:?}");
    }
    assert_eq!(resolve_as("d/e/f", Naming::Only).unwrap(), below("f"));
    assert!(!dir.path().join("d").exists() && !dir.path().join(".ssh").exists());
    // Nor does the URL of a replica choose what the metalink may not.
    for last in [".bashrc", "%2Ebashrc", "a%2F.bashrc", "..%2Fx", ".f.gridlane-journal"] {
        let text = file_text("/cms/f").replace("last%20name", last);
        let target = read(&text).unwrap().remove(0).resolve(".", Naming::Only, dir.path());
        assert!(target.is_err(), "{last}: {target:?}");
    }
    let mut missing = read(&file_text("a/b")).unwrap();
    let error = missing.remove(0).resolve("missing/", Naming::OneOfSeveral, dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    std::os::unix::fs::symlink("/tmp", dir.path().join("link")).unwrap();
    assert_eq!(resolve("link/f").unwrap_err().kind(), ErrorKind::Precondition);
    // A name that a person gave is taken whatever the metalink says.
    let bad = "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"../f\">\
        <url>https://b.example/f</url></file></metalink>";
    let target = read(bad).unwrap().remove(0).resolve("mine", Naming::Only, dir.path()).unwrap();
    assert_eq!(target.name, below("mine"));
}
