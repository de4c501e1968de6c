//! Bodies as clients send them, bodies that are wrong, and our own, which are read back.

use super::*;
use crate::property::{LCGDM, LiveProperty, OWNCLOUD};
use proptest::prelude::*;

fn shown(names: &[PropertyName]) -> Vec<String> {
    names.iter().map(|name| format!("{{{}}}{}", name.namespace(), name.local())).collect()
}

fn prop(body: &str) -> Vec<String> {
    match PropfindRequest::parse(body.as_bytes()) {
        Ok(PropfindRequest::Prop(names)) => shown(&names),
        other => panic!("{other:?}: {body}"),
    }
}

fn status(body: &[u8]) -> Option<u16> {
    PropfindRequest::parse(body).err().map(|rejection| rejection.status.code())
}

#[test]
fn listings_of_real_clients() {
    // davix, gfal2: a listing. What is inside `resourcetype` is no name.
    let davix = "<D:propfind xmlns:D=\"DAV:\" xmlns:L=\"LCGDM:\"><D:prop><D:displayname/><D:getlastmodified/>\
                 <D:creationdate/><D:getcontentlength/><D:quota-used-bytes/><D:resourcetype><D:collection/>\
                 </D:resourcetype><L:mode/></D:prop></D:propfind>";
    assert_eq!(
        prop(davix),
        [
            "{DAV:}displayname",
            "{DAV:}getlastmodified",
            "{DAV:}creationdate",
            "{DAV:}getcontentlength",
            "{DAV:}quota-used-bytes",
            "{DAV:}resourcetype",
            "{LCGDM:}mode"
        ]
    );
    let rclone = "<?xml version=\"1.0\"?>\n<d:propfind  xmlns:d=\"DAV:\" xmlns:oc=\"http://owncloud.org/ns\" \
                  xmlns:nc=\"http://nextcloud.org/ns\">\n <d:prop>\n  <d:displayname />\n  <d:getlastmodified />\n  \
                  <d:getcontentlength />\n  <d:resourcetype />\n  <d:getcontenttype />\n  <oc:checksums />\n  \
                  <oc:permissions />\n </d:prop>\n</d:propfind>\n";
    let names = prop(rclone);
    assert_eq!(names.len(), 7);
    assert_eq!(names[5..], ["{http://owncloud.org/ns}checksums", "{http://owncloud.org/ns}permissions"]);
    // cadaver and davfs2, by neon: no prefix, and Apache's namespace.
    let neon = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\r\n<propfind xmlns=\"DAV:\"><prop>\r\n\
                <getcontentlength xmlns=\"DAV:\"/>\r\n<executable xmlns=\"http://apache.org/dav/props/\"/>\r\n\
                <checked-in xmlns=\"DAV:\"/>\r\n</prop></propfind>\r\n";
    assert_eq!(
        prop(neon),
        ["{DAV:}getcontentlength", "{http://apache.org/dav/props/}executable", "{DAV:}checked-in"]
    );
    let finder = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:propfind xmlns:D=\"DAV:\">\n<D:prop>\n\
                  <D:quota-available-bytes/>\n<D:quota-used-bytes/>\n<D:quota/>\n<D:quotaused/>\n</D:prop>\n</D:propfind>\n";
    assert_eq!(prop(finder).len(), 4);
    // Windows: Office asks with a namespace for each property; nothing else in it is remarkable.
    let windows = "<?xml version=\"1.0\" encoding=\"utf-8\" ?><a:propfind xmlns:a=\"DAV:\" \
                   xmlns:b=\"urn:schemas-microsoft-com:datatypes\"><a:prop><a:name/><a:parentname/><a:href/>\
                   <a:ishidden/><a:iscollection/><a:lockdiscovery/></a:prop></a:propfind>";
    assert_eq!(prop(windows).len(), 6);
    // As dCache's handbook has it for curl: prefixes declared further in.
    let dcache = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:propfind xmlns:D=\"DAV:\">\n<D:prop \
                  xmlns:R=\"http://www.dcache.org/2013/webdav\" xmlns:S=\"http://srm.lbl.gov/StorageResourceManager\">\
                  <R:Checksums/><S:FileLocality/></D:prop></D:propfind>";
    match PropfindRequest::parse(dcache.as_bytes()).unwrap() {
        PropfindRequest::Prop(names) => {
            assert_eq!(names[0].live(), Some(LiveProperty::DcacheChecksums));
            assert_eq!(names[1].live(), None);
        }
        other => panic!("{other:?}"),
    }
    // litmus: a name in no namespace, and one beyond the basic plane.
    let litmus = "<propfind xmlns=\"DAV:\"><prop><nonamespace xmlns=\"\"/><p:x xmlns:p='&#65;&lt;'/></prop></propfind>";
    assert_eq!(prop(litmus), ["{}nonamespace", "{A<}x"]);
    assert_eq!(prop("<propfind xmlns='DAV:'><prop/></propfind>"), Vec::<String>::new());
    assert_eq!(prop("<propfind xmlns='DAV:'><prop><a/><a/><b/>text</prop></propfind>").len(), 2);
}

#[test]
fn other_questions() {
    let all = |include: &[LiveProperty]| PropfindRequest::AllProp {
        include: include.iter().map(|live| PropertyName::from(*live)).collect(),
    };
    for (body, expected) in [
        ("", all(&[])),
        ("<propfind xmlns='DAV:'><allprop/></propfind>", all(&[])),
        ("<D:propfind xmlns:D='DAV:'><D:allprop></D:allprop></D:propfind>", all(&[])),
        (
            "<D:propfind xmlns:D='DAV:'><D:allprop/><D:include><D:quota-used-bytes/></D:include></D:propfind>",
            all(&[LiveProperty::QuotaUsedBytes]),
        ),
        (
            "<D:propfind xmlns:D='DAV:'>\n<!-- all of them -->\n<D:propname/></D:propfind>",
            PropfindRequest::PropName,
        ),
        // RFC 4918, 17: what is unknown is skipped, with a question inside.
        (
            "<D:propfind xmlns:D='DAV:' xmlns:x='x'><x:prop><D:allprop/></x:prop><D:propname/></D:propfind>",
            PropfindRequest::PropName,
        ),
        (
            "<?xml version='1.0'?><?x y?><propfind xmlns='DAV:'><![CDATA[ ]]><propname/></propfind>",
            PropfindRequest::PropName,
        ),
    ] {
        assert_eq!(PropfindRequest::parse(body.as_bytes()), Ok(expected), "{body}");
    }
}

#[test]
fn what_is_refused() {
    let inside = |inside: &str| format!("<D:propfind xmlns:D='DAV:'>{inside}</D:propfind>");
    for (body, expected) in [
        // litmus, propfind_invalid and propfind_invalid2.
        ("<foo>".to_owned(), 400),
        (inside("<D:prop><bar:foo xmlns:bar=''/></D:prop>"), 400),
        (" ".to_owned(), 400),
        ("<propfind><allprop/></propfind>".to_owned(), 400),
        ("<propfind xmlns='dav:'><allprop/></propfind>".to_owned(), 400),
        ("<D:propertyupdate xmlns:D='DAV:'><D:allprop/></D:propertyupdate>".to_owned(), 400),
        (inside(""), 400),
        // RFC 4918, A.4 and A.3: an extension is no question; two are one too many.
        (inside("<E:expired-props xmlns:E='e'/>"), 400),
        (inside("<D:allprop/><D:propname/>"), 400),
        (inside("<D:prop/><D:prop/>"), 400),
        (inside("<D:include/>"), 400),
        (inside("<D:propname/><D:include/>"), 400),
        (inside("<D:allprop/><D:include/><D:include/>"), 400),
        (inside("<D:allprop/>") + "<x/>", 400),
        (inside("<D:prop><undeclared:x/></D:prop>"), 400),
        (inside("<D:prop>&nbsp;</D:prop>"), 400),
        (format!("<!DOCTYPE propfind>{}", inside("<D:allprop/>")), 400),
        (inside(&"<x>".repeat(limits::DAV_REQUEST_DEPTH_MAX)), 413),
        (inside(&"<x/>".repeat(limits::DAV_REQUEST_ELEMENTS_MAX)), 413),
        (inside(&format!("<D:prop><{}/></D:prop>", "x".repeat(limits::XML_NAME_BYTES_MAX + 1))), 413),
        (format!("<!--{}-->", "x".repeat(limits::DAV_REQUEST_BYTES_MAX)), 413),
        (
            "<?xml version='1.0' encoding='iso-8859-15'?><propfind xmlns='DAV:'><allprop/></propfind>"
                .to_owned(),
            415,
        ),
    ] {
        assert_eq!(status(body.as_bytes()), Some(expected), "{body:.100}");
    }
    assert_eq!(status(b"\xff\xfe<\0?\0x\0m\0l\0"), Some(415));
    let names: String = (0..=limits::DAV_REQUEST_PROPERTIES_MAX).map(|n| format!("<x{n}/>")).collect();
    assert_eq!(status(inside(&format!("<D:prop>{names}</D:prop>")).as_bytes()), Some(413));
    // Few bytes that say a long namespace once, and want it back with every property of every file.
    let names = |count: usize| (0..count).map(|n| format!("<n:x{n}/>")).collect::<String>();
    let long = "n".repeat(limits::XML_NAME_BYTES_MAX);
    for (count, expected) in [(10, None), (100, Some(413))] {
        let body = inside(&format!("<D:prop xmlns:n='{long}'>{}</D:prop>", names(count)));
        assert_eq!(status(body.as_bytes()), expected, "{count}");
    }
    let laughs = "<?xml version=\"1.0\"?><!DOCTYPE lolz [<!ENTITY lol \"lol\"><!ENTITY lol1 \"&lol;&lol;&lol;\">]>\
                  <D:propfind xmlns:D=\"DAV:\"><D:prop>&lol1;</D:prop></D:propfind>";
    assert_eq!(status(laughs.as_bytes()), Some(400));
}

#[test]
fn changes() {
    let read = |body: &str| ProppatchRequest::parse(body.as_bytes());
    // rclone sets a time so; litmus values have elements in them.
    let body = "<?xml version=\"1.0\"?>\n<d:propertyupdate xmlns:d=\"DAV:\" xmlns:t='t'>\n<d:set><d:prop>\
                <d:lastmodified xmlns=\"DAV:\">1700000000</d:lastmodified><t:x><t:y>&#65536;</t:y></t:x></d:prop></d:set>\
                <d:remove><d:prop><t:x/><t:z/></d:prop></d:remove><t:other><d:set/></t:other></d:propertyupdate>";
    let request = read(body).unwrap();
    let shown: Vec<_> = request.changes.iter().map(|change| (change.name.local(), change.removes)).collect();
    assert_eq!(shown, [("lastmodified", false), ("x", false), ("x", true), ("z", true)]);
    let texts: Vec<_> = request.changes.iter().map(|change| change.text.as_str()).collect();
    assert_eq!(texts, ["1700000000", "", "", ""]);
    let names: Vec<_> = request.names().into_iter().map(PropertyName::local).collect();
    assert_eq!(names, ["lastmodified", "x", "z"]);
    let many: String = (0..=limits::DAV_REQUEST_PROPERTIES_MAX).map(|n| format!("<x{n}/>")).collect();
    for (body, expected) in [
        (String::new(), 400),
        ("<propertyupdate xmlns='DAV:'/>".into(), 400),
        ("<propertyupdate xmlns='DAV:'><set/></propertyupdate>".into(), 400),
        ("<propertyupdate xmlns='DAV:'><set><prop/></set></propertyupdate>".into(), 400),
        ("<propfind xmlns='DAV:'><set><prop><x/></prop></set></propfind>".into(), 400),
        ("<propertyupdate xmlns='DAV:'><set><prop><x></prop></set></propertyupdate>".into(), 400),
        (format!("<propertyupdate xmlns='DAV:'><set><prop>{many}</prop></set></propertyupdate>"), 413),
    ] {
        assert_eq!(read(&body).unwrap_err().status.code(), expected, "{body:.80}");
    }
}

#[test]
fn times_that_are_to_be_set() {
    for (inside, expected_s) in [
        ("<lastmodified>1700000000</lastmodified>", Some(1_700_000_000)),
        ("<getlastmodified> Tue, 14 Nov 2023 22:13:20 GMT </getlastmodified>", Some(1_700_000_000)),
        (
            "<x:Win32LastModifiedTime xmlns:x='urn:schemas-microsoft-com:'>Tue, 14 Nov 2023 22:13:20 GMT\
             </x:Win32LastModifiedTime>",
            Some(1_700_000_000),
        ),
        ("<lastmodified/>", None),
        ("<lastmodified>-5</lastmodified>", None),
        ("<lastmodified>99999999999999999999</lastmodified>", None),
        ("<lastmodified>9999999999999999</lastmodified>", None),
        ("<lastmodified><x>5</x></lastmodified>", None),
        ("<lastmodified xmlns='x'>5</lastmodified>", None),
        ("<creationdate>5</creationdate>", None),
    ] {
        let body = format!("<propertyupdate xmlns='DAV:'><set><prop>{inside}</prop></set></propertyupdate>");
        let request = ProppatchRequest::parse(body.as_bytes()).unwrap();
        let expected = expected_s.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(request.changes[0].modified(), expected, "{inside}");
    }
    let body = b"<propertyupdate xmlns='DAV:'><remove><prop><lastmodified>5</lastmodified></prop></remove></propertyupdate>";
    assert_eq!(ProppatchRequest::parse(body).unwrap().changes[0].modified(), None);
}

fn names() -> impl Strategy<Value = Vec<PropertyName>> {
    let live = (0..LiveProperty::all().count())
        .prop_map(|at| LiveProperty::all().nth(at).map(PropertyName::from).unwrap());
    let other = ("(DAV:|LCGDM:|\\PC{0,8})", "[a-zé_][a-z0-9.é-]{0,8}").prop_filter_map(
        "reserved",
        |(namespace, local)| {
            (!namespace.starts_with("http://www.w3.org/")).then(|| PropertyName::from_xml(&namespace, &local))
        },
    );
    prop::collection::vec(prop_oneof![live, other], 0..8).prop_map(|names| {
        let mut unique = Vec::new();
        names.into_iter().for_each(|name| add(&mut unique, name).unwrap());
        unique
    })
}

proptest! {
    #[test]
    fn what_we_ask_is_what_we_read(names in names(), which in 0..3) {
        let request = match which {
            0 => PropfindRequest::PropName,
            1 => PropfindRequest::AllProp { include: names },
            _ => PropfindRequest::Prop(names),
        };
        prop_assert_eq!(PropfindRequest::parse(request.to_xml().as_bytes()), Ok(request));
    }

    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), inside in "(<(D:|x:)?(prop|allprop|include|set|remove)/?>|</D:prop>|\\PC){0,12}") {
        let _ = (PropfindRequest::parse(&bytes), ProppatchRequest::parse(&bytes));
        for root in ["propfind", "propertyupdate"] {
            let body = format!("<D:{root} xmlns:D='DAV:' xmlns:x='x'>{inside}</D:{root}>");
            let _ = (PropfindRequest::parse(body.as_bytes()), ProppatchRequest::parse(body.as_bytes()));
        }
    }
}

#[test]
fn namespaces_are_what_the_grid_uses() {
    assert_eq!(PropertyName::from_xml(LCGDM, "mode").live(), Some(LiveProperty::Mode));
    assert_eq!(PropertyName::from_xml(OWNCLOUD, "checksums").live(), Some(LiveProperty::OwncloudChecksums));
}
