//! Paths and URLs.

use std::path::Path;

use gridlane_core::{Scheme, Url, limits};
use gridlane_dav::ResourcePath;
use gridlane_dav::path::encode_query;

/// It cannot lead out of where it begins, and is read as it was written.
pub(crate) fn check_path(path: &ResourcePath) {
    for name in path.names() {
        check_name(name);
        assert!(name.len() <= limits::NAME_BYTES_MAX);
    }
    let shown = path.to_string();
    assert!(shown.starts_with('/') && shown.bytes().all(|byte| byte.is_ascii_graphic()), "{shown:?}");
    assert!(!shown.contains(['<', '>', '"', '\'', '&', '?', '#']), "{shown:?}");
    assert_eq!(ResourcePath::parse(&shown).as_ref(), Ok(path));
}

/// It is the name of something in a directory, and of nothing else.
pub(crate) fn check_name(name: &[u8]) {
    assert!(!matches!(name, b"" | b"." | b".."), "{name:?}");
    assert!(!name.contains(&b'/') && !name.contains(&0), "{name:?}");
}

/// The path of a request.
pub(crate) fn resource_path(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let query = encode_query(&text);
    assert!(query.bytes().all(|byte| byte.is_ascii_graphic()) && query.len() <= 3 * text.len());
    let path = match ResourcePath::parse(&text) {
        Ok(path) => path,
        Err(rejection) => return assert!(matches!(rejection.status.code(), 400 | 414), "{rejection:?}"),
    };
    check_path(&path);
    check_path(&path.to_directory_form());
    assert!(path.to_directory_form().is_directory_form());
    assert!(path.names().len() <= text.matches('/').count());
    match path.split_last() {
        None => assert!(path.is_root() && path.is_directory_form()),
        Some((parent, name)) => {
            check_path(&parent);
            assert_eq!(parent.join(name).to_directory_form(), path.to_directory_form());
        }
    }
}

/// The URL of a replica in the first line, and what a redirect or a link says in the second.
pub(crate) fn url(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (text, reference) = text.split_once('\n').unwrap_or((&text, "../x"));
    if let Ok(typed) = Url::parse(text, Path::new("/data")) {
        check_url(&typed);
    }
    let Ok(url) = Url::parse_absolute(text) else { return };
    check_url(&url);
    // For a file there are no answers with references; and url 2.5.8 stops at an assertion of its own, in debug
    // builds, when `file:///p:` is joined with `../x`.
    if url.scheme() == Scheme::File {
        return;
    }
    if let Ok(target) = url.join(reference) {
        check_url(&target);
        if !target.same_endpoint(&url) {
            let own = Url::parse_absolute(reference).ok();
            let given = own.as_ref().and_then(Url::credentials).is_some() || reference.contains('@');
            assert!(target.credentials().is_none() || given, "a password goes elsewhere");
        }
    }
}

fn check_url(url: &Url) {
    // As it stands it is read again, and means the same; but for a path that a person typed, in which `..` is
    // what the system makes of it.
    let is_typed =
        url.scheme() == Scheme::File && url.encoded_path().split('/').any(|name| matches!(name, "." | ".."));
    // What is no UTF-8 in the path of a `root` URL cannot be typed.
    let is_text = !url.scheme().is_root() || String::from_utf8(url.wire_path()).is_ok();
    let read = || Url::parse_absolute(&url.typed()).ok();
    assert!(is_typed || !is_text || read().as_ref() == Some(url), "{}", url.as_str());
    assert!(url.as_str().bytes().all(|byte| byte.is_ascii_graphic()), "{:?}", url.as_str());
    let shown = url.to_string();
    if let Some((_, password)) = url.credentials().filter(|(_, password)| password.len() > 8) {
        let elsewhere = url.host().contains(password) || url.request_target().contains(password);
        assert!(elsewhere || !shown.contains(password), "a password is shown");
    }
    if url.scheme() == Scheme::File {
        let path = url.to_path().unwrap_or_else(|| panic!("{} is no path", url.as_str()));
        assert!(path.is_absolute());
        return;
    }
    assert!(url.to_path().is_none());
    assert!(!url.host().is_empty() && url.port() > 0 || url.as_str().contains(":0/"), "{}", url.as_str());
    // What goes into a request's head.
    for text in [url.request_target(), &url.host_header()] {
        assert!(
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#'),
            "{text:?}"
        );
    }
    assert!(url.request_target().starts_with('/') && url.request_target().starts_with(url.encoded_path()));
    assert!(!url.host_header().contains(['/', '@', '?']), "{}", url.host_header());
    if let Some(name) = url.file_name() {
        assert!(!name.is_empty() && !name.contains('/'));
    }
}
