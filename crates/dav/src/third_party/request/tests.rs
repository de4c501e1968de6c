use super::*;
use proptest::prelude::*;

fn headers(fields: &[(&str, &str)]) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in fields {
        headers.push(name, value.as_bytes());
    }
    headers
}

/// A pull with further fields.
fn pull(more: &[(&str, &str)]) -> Result<CopyRequest, Rejection> {
    let fields = [&[("Source", "https://h/a")], more].concat();
    CopyRequest::parse(&headers(&fields)).map(Option::unwrap)
}

fn shown(remote: &Remote) -> (String, Vec<(&str, &str)>) {
    let fields = remote.fields.iter().map(|field| (field.name.as_str(), field.value.expose()));
    (remote.url.typed(), fields.collect())
}

#[test]
fn what_gfal2_sends() {
    let request = CopyRequest::parse(&headers(&[
        ("Source", "davs://storage.example:8443/a%20b?x=1"),
        ("X-Number-Of-Streams", "0"),
        ("Secure-Redirection", "1"),
        ("Authorization", "Bearer active"),
        ("TransferHeaderAuthorization", "Bearer passive"),
        ("Credential", "none"),
        ("RequireChecksumVerification", "false"),
        ("ClientInfo", "job-id=1;file-id=2;retry=0"),
        ("SciTag", "65"),
        ("ArchiveMetadata", "e30="),
        ("User-Agent", "gfal2-util/1.8 gfal2/2.21 neon/0.0.29"),
    ]));
    let expected = CopyRequest {
        direction: Direction::Pull,
        remotes: vec![Remote {
            url: Url::parse_absolute("https://storage.example:8443/a%20b?x=1").unwrap(),
            fields: vec![Field { name: "Authorization".into(), value: Secret::new("Bearer passive") }],
        }],
        overwrite: true,
        requires_checksum: false,
        streams: None,
        scitag: Some(65),
        archive_metadata: Some("e30=".into()),
        client_info: Some("job-id=1;file-id=2;retry=0".into()),
        no_head: false,
    };
    assert_eq!(request, Ok(Some(expected)));
}

#[test]
fn a_push_and_copies_within_a_server() {
    let push = headers(&[
        ("Destination", "dav://user:secret@h/a"),
        ("transferheaderauthorization", "bearer  t"),
        ("TransferHeaderArchiveMetadata", "e30="),
        ("ArchiveMetadata", "not for a push"),
        ("Overwrite", "F"),
    ]);
    let request = CopyRequest::parse(&push).unwrap().unwrap();
    assert_eq!(
        (request.direction, request.overwrite, request.archive_metadata),
        (Direction::Push, false, None)
    );
    assert_eq!(
        shown(&request.remotes[0]),
        ("http://h/a".into(), vec![("Authorization", "Bearer t"), ("ArchiveMetadata", "e30=")])
    );
    for path in ["/a/b", "/a://b", "//h/a"] {
        assert_eq!(CopyRequest::parse(&headers(&[("Destination", path)])), Ok(None), "{path}");
    }
}

#[test]
fn urls() {
    for (value, status) in [
        ("http://h/a", 0),
        ("HTTPS://h/a", 0),
        ("dav://h/a", 0),
        ("https://[2001:db8::7]:8443/a?authz=x", 0),
        ("https://ada:secret@h/a", 0),
        ("ftp://h/secret", 501),
        ("s3://h/a", 501),
        ("file:///etc/passwd", 501),
        ("root://h//a", 501),
        ("", 400),
        ("/a", 400),
        ("h/a", 400),
        ("https://", 400),
        ("https://secret@/a", 400),
        ("https://h:0/a", 400),
        ("https://h:99999/a", 400),
        ("https://h/a#secret", 400),
        ("https://h/a secret", 400),
        ("https://h/a\tb", 400),
        ("https:\\\\h\\a", 400),
        ("https://[::1/a", 400),
        ("https://h/a, https://g/b", 400),
    ] {
        for (field, direction) in [("Source", Direction::Pull), ("Destination", Direction::Push)] {
            let answer = CopyRequest::parse(&headers(&[(field, value)]));
            match answer {
                Ok(Some(request)) => {
                    assert_eq!((status, request.direction), (0, direction), "{field}: {value}");
                    assert!(request.remotes[0].url.credentials().is_none());
                }
                // A Destination that is a path.
                Ok(None) => assert!(field == "Destination" && value == "/a", "{value}"),
                Err(rejection) => {
                    assert_eq!(rejection.status.code(), status, "{field}: {value}");
                    assert!(!rejection.message.contains("secret"), "{}", rejection.message);
                }
            }
        }
    }
    let long = format!("https://h/{}", "a".repeat(limits::METALINK_URL_BYTES_MAX));
    assert!(CopyRequest::parse(&headers(&[("Source", &long)])).is_err());
}

#[test]
fn values_that_fields_have() {
    type Field = (&'static str, &'static str);
    let cases: &[(&[Field], bool)] = &[
        (&[("Credential", "none")], true),
        (&[("Credential", "NONE")], true),
        (&[("Credential", "gridsite")], false),
        (&[("Credential", "oidc")], false),
        (&[("Credential", "")], false),
        (&[("Credential", "none"), ("Credential", "none")], false),
        (&[("Overwrite", "T")], true),
        (&[("Overwrite", "true")], false),
        (&[("RequireChecksumVerification", "True")], true),
        (&[("RequireChecksumVerification", "1")], false),
        (&[("RequireChecksumVerification", "")], false),
        (&[("X-Number-Of-Streams", "100")], true),
        (&[("X-Number-Of-Streams", "101")], false),
        (&[("X-Number-Of-Streams", "-1")], false),
        (&[("X-Number-Of-Streams", "+1")], false),
        (&[("X-Number-Of-Streams", "")], false),
        (&[("X-Number-Of-Streams", "99999999999999999999")], false),
        (&[("Source", "https://g/b")], true),
        (&[("Source", "root://g//b")], true),
        (&[("Source", "ftp://g//b")], false),
        (&[("Destination", "https://g/b")], false),
        (&[("X-No-Delegate", "true"), ("Want-Digest", "adler32"), ("Nonsense", "x")], true),
    ];
    for (fields, is_good) in cases {
        let answer = pull(fields);
        assert_eq!(answer.is_ok(), *is_good, "{fields:?}: {answer:?}");
    }
    let refused = pull(&[("Credential", "gridsite")]).unwrap_err();
    assert_eq!(refused.status, Status::BAD_REQUEST);
    for word in ["Credential: none", "TransferHeaderAuthorization"] {
        assert!(refused.message.contains(word), "{}", refused.message);
    }
    for (value, streams) in [("0", None), ("00", None), ("1", Some(1)), ("8", Some(8)), ("100", Some(100))] {
        assert_eq!(pull(&[("X-Number-Of-Streams", value)]).unwrap().streams, streams, "{value}");
    }
    for (value, scitag) in
        [("65", Some(65)), ("65535", Some(65535)), ("64", None), ("65536", None), ("0", None), ("x", None)]
    {
        assert_eq!(pull(&[("SciTag", value)]).unwrap().scitag, scitag, "{value}");
    }
    assert!(pull(&[("RequireChecksumVerification", "true")]).unwrap().requires_checksum);
    assert!(!pull(&[]).unwrap().requires_checksum);
    assert!(pull(&[("Copy-Flags", "other, noHEAD")]).unwrap().no_head);
    assert_eq!(pull(&[("TransferMetadata", "e30=")]).unwrap().archive_metadata.as_deref(), Some("e30="));
    assert!(CopyRequest::parse(&Headers::new()).is_err());
    let two = headers(&[("Destination", "https://h/a"), ("Destination", "/b")]);
    assert!(CopyRequest::parse(&two).is_err());
}

#[test]
fn fields_for_the_remote() {
    for (name, value, expected) in [
        ("TransferHeaderAuthorization", "BEARER abc", Some(("Authorization", "Bearer abc"))),
        ("TransferHeaderAuthorization", "Digest x", Some(("Authorization", "Digest x"))),
        ("TransferHeaderAuthorization", "", Some(("Authorization", ""))),
        ("TRANSFERHEADERX-MY-FIELD", "x, \ty", Some(("X-My-Field", "x, \ty"))),
        ("TransferHeaderSciTag", "65", Some(("SciTag", "65"))),
        ("transferheaderclientinfo", "x", Some(("ClientInfo", "x"))),
        ("TransferHeaderCookie", "a=b; c", Some(("Cookie", "a=b; c"))),
        ("Copy-Header", "authorization : Bearer x", None),
        ("Copy-Header", "Authorization: Bearer x", Some(("Authorization", "Bearer x"))),
        ("Copy-Header", "Host: x", None),
        ("Copy-Header", "x", None),
        ("Copy-Header", ": x", None),
        ("TransferHeader", "x", None),
        ("TransferHeaderContent-Length", "5", None),
        ("TransferHeaderTransfer-Encoding", "chunked", None),
        ("TransferHeaderHOST", "h", None),
        ("TransferHeaderRange", "bytes=0-", None),
        ("TransferHeaderTE", "trailers", None),
        ("TransferHeaderExpect", "x", None),
        ("TransferHeaderProxy-Authorization", "x", None),
        ("TransferHeaderAccept-Encoding", "gzip", None),
        ("TransferHeaderX", "a\u{1}b", None),
        ("TransferHeaderX", "a\nb", None),
        ("TransferHeaderX", "a\u{85}b", None),
        ("TransferHeaderX Y", "x", None),
        ("TransferHeaderé", "x", None),
    ] {
        match pull(&[(name, value)]) {
            Ok(request) => assert_eq!(shown(&request.remotes[0]).1, Vec::from_iter(expected), "{name}"),
            Err(rejection) => {
                assert_eq!((rejection.status.code(), expected), (400, None), "{name}: {rejection:?}");
                assert!(value.is_empty() || !rejection.message.contains("Bearer"), "{rejection:?}");
            }
        }
    }
    let twice = [("TransferHeaderX", "1"), ("Copy-Header", "x: 1")];
    assert_eq!(shown(&pull(&twice).unwrap().remotes[0]).1, [("X", "1")]);
    assert!(pull(&[("TransferHeaderX", "1"), ("TransferHeaderX", "2")]).is_err());
    // The copy's own label counts, though it may say nothing.
    let labels = [("TransferHeaderSciTag", "70"), ("SciTag", "65")];
    let request = pull(&labels).unwrap();
    assert_eq!((request.scitag, request.remotes[0].fields.len()), (Some(65), 0));
}

#[test]
fn several_sources_have_their_own_fields() {
    let request = pull(&[
        ("Source", "https://g/b"),
        ("Source", "davs://H:443/c"),
        ("Source", "roots://ada@r//d"),
        ("Source", "http://h/e"),
        ("TransferHeaderAuthorization", "Bearer of-h"),
        ("TransferHeaderX", "x"),
        ("SourceHeader2Authorization", "Bearer of-g"),
        ("sourceheader3x", "mine"),
        ("SourceHeader4Authorization", "bearer of-r"),
        ("SciTag", "65"),
        ("SourceHeader2SciTag", "70"),
    ]);
    let of_h = ("Authorization", "Bearer of-h");
    assert_eq!(
        request.unwrap().remotes.iter().map(shown).collect::<Vec<_>>(),
        [
            ("https://h/a".into(), vec![of_h, ("X", "x")]),
            ("https://g/b".into(), vec![("Authorization", "Bearer of-g")]),
            ("https://h/c".into(), vec![("X", "mine"), of_h]),
            ("roots://r//d".into(), vec![("Authorization", "Bearer of-r")]),
            // Another scheme is another server: a secret for TLS does not go there in clear.
            ("http://h/e".into(), vec![]),
        ]
    );
    for name in ["0X", "1X", "3X", "02X", "X", "99999999999999999999X", "2", "2Host", "-1X"] {
        let name = format!("SourceHeader{name}");
        let answer = pull(&[("Source", "https://g/b"), (&name, "x")]);
        assert_eq!(answer.map_err(|rejection| rejection.status.code()), Err(400), "{name}");
    }
    assert!(
        CopyRequest::parse(&headers(&[("Destination", "https://h/a"), ("SourceHeader1X", "x")])).is_err()
    );
    let many = |count| vec![("Source", "https://h/a"); count];
    assert_eq!(
        CopyRequest::parse(&headers(&many(limits::SOURCES_MAX))).unwrap().unwrap().remotes.len(),
        limits::SOURCES_MAX
    );
    assert!(CopyRequest::parse(&headers(&many(limits::SOURCES_MAX + 1))).is_err());
    let token = "x".repeat(limits::COPY_FIELDS_BYTES_MAX / limits::SOURCES_MAX);
    let too_much = [many(limits::SOURCES_MAX), vec![("TransferHeaderAuthorization", &token)]].concat();
    assert!(CopyRequest::parse(&headers(&too_much)).is_err());
}

#[test]
fn no_secret_is_shown() {
    let request = pull(&[
        ("Source", "https://ada:secret@g/b?authz=secret"),
        ("TransferHeaderAuthorization", "Bearer secret"),
        ("SourceHeader2Cookie", "secret"),
    ]);
    let text = format!("{request:?}");
    assert!(!text.contains("secret") && text.contains("Authorization"), "{text}");
}

#[test]
fn fields_of_third_party_copies() {
    for (name, value, is_one) in [
        ("Source", "https://h/a", true),
        ("credential", "none", true),
        ("TransferHeaderAuthorization", "x", true),
        ("X-Number-Of-Streams", "0", true),
        ("RequireChecksumVerification", "true", true),
        ("Secure-Redirection", "1", true),
        ("X-No-Delegate", "true", true),
        ("Copy-Header", "a: b", true),
        ("Accept", "*/*, Text/Perf-Marker-Stream;q=1", true),
        ("Accept", "*/*", false),
        ("Destination", "https://h/a", false),
        ("Overwrite", "F", false),
        ("Depth", "infinity", false),
        ("Authorization", "x", false),
        ("SciTag", "65", false),
        ("TransferMetadata", "x", false),
    ] {
        assert_eq!(is_third_party(&headers(&[(name, value)])), is_one, "{name}: {value}");
    }
}

proptest! {
    #[test]
    fn never_panics(
        name in "(Source|Destination|TransferHeader|SourceHeader|Copy-Header|X-Number-Of-Streams|SciTag)[0-9]{0,3}[a-zA-Z-]{0,9}",
        value in "((https?|davs?|roots?)://)?([/:?#@\\[\\]a0 ]|\\PC){0,40}",
    ) {
        for fields in [&[("Source", "https://h/a"), (&name, &value)][..], &[(&name, &value)]] {
            if let Ok(Some(request)) = CopyRequest::parse(&headers(fields)) {
                prop_assert!((1..=limits::SOURCES_MAX).contains(&request.remotes.len()));
                prop_assert!(request.remotes[0].url.scheme().is_http());
                prop_assert!(request.remotes.iter().all(|remote| remote.url.credentials().is_none()));
            }
            let _ = is_third_party(&headers(fields));
        }
    }
}
