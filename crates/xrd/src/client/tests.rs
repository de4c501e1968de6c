use super::*;

#[test]
fn what_may_be_sent_twice() {
    use crate::request::{Call, Mkdir, Open, Ping};
    use crate::{Handle, PathArg, StreamId, flags::OpenMore};
    let open = |options| {
        let (about, template) = (PathArg::new("/f"), Handle::default());
        Open { mode: 0, options, more: OpenMore::NONE, template, about }.to_bytes(StreamId([0, 1]))
    };
    assert!(is_repeatable(&open(OpenOptions::READ)));
    assert!(!is_repeatable(&open(OpenOptions::UPDATE | OpenOptions::DELETE)));
    assert!(is_repeatable(&Ping.to_bytes(StreamId::default())));
    let mkdir = Mkdir { about: PathArg::new("/d"), mode: 0, parents: false };
    assert!(!is_repeatable(&mkdir.to_bytes(StreamId::default())));
    assert!(!is_repeatable(b"short"));
}
