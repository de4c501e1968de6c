//! Texts that are XML and texts that are not, in a table; that pieces make no difference; that nothing panics and nothing
//! grows.

use super::*;
use proptest::prelude::*;

const BOUNDS: Bounds = Bounds { depth_max: 8, elements_max: 100, token_bytes_max: 4096 };

/// The document as a line: `{namespace}local(` where an element begins, `)` where it ends, text in between.
fn read_in(pieces: &[&[u8]]) -> Result<String, XmlError> {
    let mut reader = XmlReader::new(BOUNDS);
    let mut shown = String::new();
    for piece in pieces {
        reader.feed(piece);
        while let Some(token) = reader.next()? {
            match token {
                Token::Open(name, _) => shown.push_str(&format!("{{{}}}{}(", name.namespace, name.local)),
                Token::Close => shown.push(')'),
                Token::Text(text) => shown.push_str(&text),
            }
        }
        assert!(reader.buffer.len() - reader.done <= BOUNDS.token_bytes_max + piece.len());
    }
    reader.finish()?;
    Ok(shown)
}

fn read(document: &[u8]) -> Result<String, XmlError> {
    let whole = read_in(&[document]);
    let bytes: Vec<&[u8]> = document.chunks(1).collect();
    assert_eq!(read_in(&bytes), whole, "{:?}", String::from_utf8_lossy(document));
    whole
}

#[test]
fn what_is_xml() {
    for (document, expected) in [
        ("<a/>", "{}a()"),
        ("\u{feff}<a/>", "{}a()"),
        ("<?xml version=\"1.0\"?><a/>", "{}a()"),
        ("<?xml version='1.1' encoding='UTF-8' standalone=\"yes\" ?>\r\n<a></a>\n", "{}a()"),
        (" <!-- - a<b>&c - --><?php \"?\"><?><a ><?x?><b\n/><!----></a\t><!--x--> <?y z?> ", "{}a({}b())"),
        ("<a>x<b>y</b>z</a>", "{}a(x{}b(y)z)"),
        ("<a>&lt;&gt;&amp;&apos;&quot;&#65;&#x41;&#x1F600;</a>", "{}a(<>&'\"AA\u{1f600})"),
        ("<a>1\r\n2\r3&#13;4\n</a>", "{}a(1\n2\n3\r4\n)"),
        ("<a><![CDATA[<b>&amp;]]]]><![CDATA[>]]>]]</a>", "{}a(<b>&amp;]]>]])"),
        ("<a b='>' c=\"'>'\" d = '/' />", "{}a()"),
        ("<a b='x/'>/</a>", "{}a(/)"),
        ("<é·-.1 ü='ß'>ñ</é·-.1>", "{}é·-.1(ñ)"),
        // Namespaces.
        ("<a xmlns='n'><b/></a>", "{n}a({n}b())"),
        ("<p:a xmlns:p='n'><b/><p:b/></p:a>", "{n}a({}b(){n}b())"),
        ("<p:a xmlns:p='n'><p:b xmlns:p='m'><p:c/></p:b><p:d/></p:a>", "{n}a({m}b({m}c()){n}d())"),
        ("<a xmlns='n'><b xmlns=''><c/></b><d/></a>", "{n}a({}b({}c()){n}d())"),
        ("<a xmlns='n' xmlns:p='n'><p:b xmlns='m'/><b/></a>", "{n}a({n}b(){n}b())"),
        ("<a xmlns='&#68;AV&#x3a;'/>", "{DAV:}a()"),
        ("<a><b xmlns='n'/><b/></a>", "{}a({n}b(){}b())"),
        (
            "<a xml:lang='de' xmlns:b='n' b:c='d'><xml:x/></a>",
            "{}a({http://www.w3.org/XML/1998/namespace}x())",
        ),
        ("<a xmlns:xml='http://www.w3.org/XML/1998/namespace'/>", "{}a()"),
    ] {
        assert_eq!(read(document.as_bytes()).as_deref(), Ok(expected), "{document}");
    }
}

#[test]
fn what_is_not() {
    let deep = "<a>".repeat(BOUNDS.depth_max + 1);
    let many = format!("<a>{}</a>", "<b/>".repeat(BOUNDS.elements_max as usize));
    let long_text = format!("<a>{}</a>", "x".repeat(BOUNDS.token_bytes_max + 1));
    let long_tag = format!("<a b='{}'/>", "x".repeat(BOUNDS.token_bytes_max));
    let long_comment = format!("<a><!--{}", "x".repeat(BOUNDS.token_bytes_max));
    let long_name = format!("<{}/>", "a".repeat(limits::XML_NAME_BYTES_MAX + 1));
    let long_namespace = format!("<a xmlns='{}'/>", "a".repeat(limits::XML_NAME_BYTES_MAX + 1));
    let attributes: String = (0..=limits::XML_ATTRIBUTES_MAX).map(|n| format!(" a{n}=''")).collect();
    let many_attributes = format!("<a{attributes}/>");
    let laughs = "<?xml version=\"1.0\"?><!DOCTYPE l [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;\">]><l>&b;</l>";
    let outside = "<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>";
    let (bad, large, encoding) = (Problem::Malformed, Problem::TooLarge, Problem::Encoding);
    for (document, expected) in [
        ("", bad),
        (" ", bad),
        ("x", bad),
        ("<a>", bad),
        ("<a", bad),
        ("<a/", bad),
        ("</a>", bad),
        ("<a></b>", bad),
        ("<a></A>", bad),
        ("<a><b></a></b>", bad),
        ("<a/><b/>", bad),
        ("<a/>x", bad),
        ("x<a/>", bad),
        ("<a/></a>", bad),
        ("<a/><![CDATA[x]]>", bad),
        ("<a/><!-", bad),
        ("< a/>", bad),
        ("<a / >", bad),
        ("<1/>", bad),
        ("<a:/>", bad),
        ("<:a/>", bad),
        ("<a xmlns:b='n'><b:c:d/></a>", bad),
        ("<a b/>", bad),
        ("<a b=c/>", bad),
        ("<a b='c/>", bad),
        ("<a b='c'd='e'/>", bad),
        ("<a b='<'/>", bad),
        ("<a b='&'/>", bad),
        ("<a b='' b=''/>", bad),
        ("<a>&b;</a>", bad),
        ("<a>& </a>", bad),
        ("<a>&#0;</a>", bad),
        ("<a>&#xD800;</a>", bad),
        ("<a>&#+65;</a>", bad),
        ("<a>&#x;</a>", bad),
        ("<a>&#99999999999;</a>", bad),
        ("<a>]]></a>", bad),
        ("<a>\u{1}</a>", bad),
        ("<a>\u{ffff}</a>", bad),
        ("<a><!-- -- --></a>", bad),
        ("<a><!-- ---></a>", bad),
        ("<a><![cdata[]]></a>", bad),
        ("<a><!b></a>", bad),
        ("<a><? ?></a>", bad),
        (" <?xml version='1.0'?><a/>", bad),
        ("<a><?XML x?></a>", bad),
        ("<?xml?><a/>", bad),
        ("<?xml encoding='utf-8'?><a/>", bad),
        ("<?xml version='2.0'?><a/>", bad),
        ("<?xml version='1.0' encoding='iso-8859-1'?><a/>", encoding),
        ("<?xml version='1.0' encoding='UTF-16'?><a/>", encoding),
        ("<b:a/>", bad),
        ("<a b:c=''/>", bad),
        ("<a xmlns:b='n' xmlns:c='n' b:d='' c:d=''/>", bad),
        ("<a><b:c xmlns:b='n'/><b:d/></a>", bad),
        ("<b:a xmlns:b=''/>", bad),
        ("<a xmlns:xmlns='n'/>", bad),
        ("<a xmlns:xml='n'/>", bad),
        ("<a xmlns:b='http://www.w3.org/XML/1998/namespace'/>", bad),
        ("<a xmlns='http://www.w3.org/2000/xmlns/'/>", bad),
        (laughs, bad),
        (outside, bad),
        (&deep, large),
        (&many, large),
        (&long_text, large),
        (&long_tag, large),
        (&long_comment, large),
        (&long_name, large),
        (&long_namespace, large),
        (&many_attributes, large),
    ] {
        assert_eq!(read(document.as_bytes()).unwrap_err().problem, expected, "{document:.60}");
    }
    for document in
        [&b"\xfe\xff\0<\0a\0/\0>"[..], b"\xff\xfe<\0a\0/\0>\0", b"<\0a\0/\0>\0", b"\0<\0a", b"<a>\xe9</a>"]
    {
        assert_eq!(read(document).unwrap_err().problem, encoding, "{document:?}");
    }
}

#[test]
fn attributes() {
    let xml = "http://www.w3.org/XML/1998/namespace";
    for (document, expected) in [
        ("<a/>", ""),
        ("<a b='c'/>", "{}b=c;"),
        ("<a\n b = \"c\"\td='&lt;&#65;\n>'></a>", "{}b=c;{}d=<A >;"),
        // What has no prefix is in no namespace, whatever the default is; declarations are left out.
        ("<a xmlns='n' b='c' xmlns:p='m' p:b='d'/>", "{}b=c;{m}b=d;"),
        ("<a xml:lang='de' xmlnsx='n' p:xmlns='m' xmlns:p='m'/>", "{X}lang=de;{}xmlnsx=n;{m}xmlns=m;"),
    ] {
        let mut reader = XmlReader::new(BOUNDS);
        reader.feed(document.as_bytes());
        let Ok(Some(Token::Open(_, attributes))) = reader.next() else { panic!("{document}") };
        let shown: String = attributes
            .map(|(name, value)| format!("{{{}}}{}={value};", name.namespace, name.local))
            .collect();
        assert_eq!(shown.replace(xml, "X"), expected, "{document}");
    }
}

#[test]
fn errors_say_where_and_show_nothing() {
    let error = read(b"<a>secret<b></a>").unwrap_err();
    let rejection = Rejection::from(error.clone());
    assert_eq!(rejection.status, Status::BAD_REQUEST);
    assert_eq!(
        rejection.message,
        "the XML cannot be read: an end tag does not match its start tag (at byte 12)"
    );
    assert_eq!(Error::from(error).kind(), ErrorKind::Protocol);
}

/// Documents that are nearly XML.
fn documents() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => Just("<a>".to_owned()),
        4 => Just("</a>".to_owned()),
        2 => "<(a|p:a|xmlns)( (xmlns|xmlns:p|xmlns:q|b|p:b|q:b|xml:b)=('[np]?'|\"&#65;\")){0,4}/?>",
        1 => "<!--[-x>]{0,4}-->",
        1 => "<!\\[CDATA\\[[\\]x>]{0,4}\\]\\]>",
        1 => "<\\?[xml]{0,3} ?[x?>]{0,4}\\?>",
        2 => "[x&;#lt\\]>]{0,6}",
        1 => "\\PC{0,4}",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| format!("<a xmlns:p='n'>{}</a>", pieces.concat()))
}

proptest! {
    #[test]
    fn pieces_make_no_difference(document in documents(), cut in prop::collection::vec(0usize..200, 0..4)) {
        let whole = read(document.as_bytes());
        let mut pieces = Vec::new();
        let mut rest = document.as_bytes();
        for at in cut {
            let (piece, behind) = rest.split_at(at.min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        pieces.push(rest);
        prop_assert_eq!(read_in(&pieces), whole);
    }

    #[test]
    fn text_is_read_as_it_was_written(text in any::<String>()) {
        let mut document = b"<a b=\"".to_vec();
        syntax::write_text(&mut document, &text);
        document.extend(b"\">");
        syntax::write_text(&mut document, &text);
        document.extend(b"</a>");
        let replace = |c: char| if matches!(c, '\0'..=' ' | '\u{fffe}' | '\u{ffff}') && !"\t\n\r ".contains(c) { '\u{fffd}' } else { c };
        let expected: String = text.chars().map(replace).collect();
        prop_assert_eq!(read_in(&[&document]), Ok(format!("{{}}a({expected})")));
        let mut reader = XmlReader::new(BOUNDS);
        reader.feed(&document);
        let Ok(Some(Token::Open(_, mut attributes))) = reader.next() else { panic!("{text:?}") };
        prop_assert_eq!(attributes.next().map(|(_, value)| value.into_owned()), Some(expected));
    }

    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), document in documents()) {
        let _ = read(&bytes);
        let mut damaged = document.into_bytes();
        for (at, byte) in bytes.iter().enumerate().take(2) {
            let place = (*byte as usize * (at + 7)) % damaged.len();
            damaged[place] = bytes[bytes.len() - 1];
        }
        let _ = read(&damaged);
    }
}
