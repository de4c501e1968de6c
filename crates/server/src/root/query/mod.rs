//! Facts about the server, a file or a file system.

mod checksum;
mod config;
mod space;
mod stats;
mod xattr;

use gridlane_core::ChecksumKind;
use gridlane_xrd::request::Query;
use gridlane_xrd::{ErrorCode, PathArg, QueryKind};

use super::places::Context;
use super::prepare;
use gridlane_front::root::answer::{Answer, Failure, Outcome, printable_path};

/// Answers `query`. A checksum may take half an hour: the caller tells a client that has waited for a while that the
/// answer comes later, and drops this when the client is gone.
pub(crate) async fn query(context: &Context, request: &Query) -> Outcome {
    let by_handle = matches!(request.kind, QueryKind::VISA | QueryKind::OPAQUE_HANDLE);
    if request.argument.is_empty() || by_handle && QueryKind::KNOWN.contains(&request.kind) {
        // XRootD takes a question without an argument for one about a handle.
        let file = context.session.files.get(request.handle, "query")?;
        if let (Some(pull), b"ofs.tpc cancel") = (file.pull(), request.argument.as_slice())
            && request.kind == QueryKind::OPAQUE_HANDLE
        {
            pull.cancel().await;
            return Ok(Answer::done());
        }
        return match by_handle {
            true => Err(Failure::new(ErrorCode::UNSUPPORTED, "Unable to fctl; operation not supported")),
            false => Err(Failure::new(ErrorCode::ARG_MISSING, "Required argument not present")),
        };
    }
    let about = || PathArg::parse(&request.argument);
    match request.kind {
        QueryKind::CONFIG => config::config(context, &request.argument),
        QueryKind::CHECKSUM => checksum::checksum(context, &about()).await,
        QueryKind::SPACE => space::space(context, &about()).await,
        QueryKind::XATTR => xattr::xattr(context, &about()).await,
        QueryKind::STATS => Ok(stats::stats(context, &request.argument)),
        QueryKind::PREPARE => prepare::progress(context, &request.argument).await,
        // Computations end by themselves when no request waits for them any longer.
        QueryKind::CHECKSUM_CANCEL => Ok(Answer::done()),
        QueryKind::OPAQUE | QueryKind::OPAQUE_FILE => {
            Err(Failure::new(ErrorCode::UNSUPPORTED, "Unable to FSctl; operation not supported"))
        }
        _ => Err(Failure::new(ErrorCode::ARG_INVALID, "Invalid information query type code")),
    }
}

/// The checksums that clients can ask for: those of HTTP, and XRootD's `crc32`.
fn offered() -> impl Iterator<Item = ChecksumKind> {
    ChecksumKind::OFFERED.into_iter().chain([ChecksumKind::PosixCrc])
}

/// The checksum that `cks.type` names, in any case; Adler-32 where it is not said, or `default`.
pub(super) fn kind_named(about: &PathArg) -> Result<ChecksumKind, Failure> {
    let said = about.value("cks.type").filter(|name| !name.is_empty());
    let Some(name) = said.filter(|name| !name.eq_ignore_ascii_case(b"default")) else {
        return Ok(ChecksumKind::Adler32);
    };
    let named = |kind: &ChecksumKind| kind.name().as_bytes().eq_ignore_ascii_case(name);
    offered().find(named).ok_or_else(|| {
        Failure::new(ErrorCode::SERVER_ERROR, format!("{} checksum not supported.", printable_path(name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Export;
    use crate::root::testing::{bytes, code, context, context_of, error, export_at, text};
    use gridlane_xrd::answer::SpaceText;

    async fn ask(context: &Context, kind: QueryKind, argument: &str) -> Outcome {
        query(context, &Query::new(kind, argument)).await
    }

    #[tokio::test]
    async fn settings_by_name() {
        let context = context_of(vec![export_at("/")], |settings| {
            settings.root.site_name = Some("SITE-X".to_owned());
        });
        let config = async |keys: &str| text(ask(&context, QueryKind::CONFIG, keys).await);
        assert_eq!(config("readv_iov_max readv_ior_max").await, "1024\n2097136\n");
        assert_eq!(config("foo\ntpc tpcdlg\nvnid").await, "foo\n1\ntpcdlg\nvnid\n");
        assert_eq!(config("chksum").await, "0:adler32,1:crc32c,2:sha256,3:md5,4:crc32\n");
        assert_eq!(config("bind_max\npio_max\nrole\nfattr").await, "15\n5\nserver\n248 65536\n");
        assert_eq!(config("sitename cms start").await, "SITE-X\nnone|\n261122:061050.0\n");
        assert!(config("version").await.starts_with("v5."));
        assert_eq!(config("xrootd").await, "\n\0");
        let many = "k ".repeat(2000);
        assert_eq!(code(ask(&context, QueryKind::CONFIG, &many).await), ErrorCode::ARG_TOO_LONG);
    }

    #[tokio::test]
    async fn checksums() {
        let context = context();
        let of = async |path: &str| ask(&context, QueryKind::CHECKSUM, path).await;
        assert_eq!(bytes(of("/d/f").await), b"adler32 062c0215\0");
        assert_eq!(bytes(of("/d/f?cks.type=default").await), b"adler32 062c0215\0");
        // `printf hello | cksum` says 3287646509.
        assert_eq!(bytes(of("/d/f?cks.type=crc32").await), b"crc32 c3f5812d\0");
        let md5 = bytes(of("/d/f?cks.type=MD5&authz=x").await);
        assert_eq!(md5, b"md5 5d41402abc4b2a76b9719d911017c592\0");
        let (kind, text) = error(of("/d/f?cks.type=sha1").await);
        assert_eq!((kind, text.as_str()), (ErrorCode::SERVER_ERROR, "sha1 checksum not supported."));
        let (kind, text) = error(of("/d").await);
        assert_eq!((kind, text.as_str()), (ErrorCode::IS_DIRECTORY, "Unable to checksum /d; is a directory"));
        assert_eq!(code(of("/nope").await), ErrorCode::NOT_FOUND);
        assert_eq!(code(of("").await), ErrorCode::FILE_NOT_OPEN);
    }

    #[tokio::test]
    async fn room() {
        let context = context();
        let space = bytes(ask(&context, QueryKind::SPACE, "/").await);
        assert!(SpaceText::parse(&space).unwrap().total_bytes > 0);
        assert_eq!(code(ask(&context, QueryKind::SPACE, "/nope").await), ErrorCode::NOT_FOUND);
        let exports = vec![export_at("/a/b"), Export { allow_write: true, ..export_at("/a/c") }];
        let above = context_of(exports, |_| {});
        let space = bytes(ask(&above, QueryKind::SPACE, "/").await);
        assert!(SpaceText::parse(&space).unwrap().total_bytes > 0);
    }

    #[tokio::test]
    async fn facts() {
        let context = context();
        let facts = text(ask(&context, QueryKind::XATTR, "/d/f").await);
        assert!(facts.starts_with("oss.cgroup=public&oss.type=f&oss.used=5&oss.mt="), "{facts}");
        assert!(facts.ends_with("&oss.u=*&oss.g=*&oss.fs=w&ofs.ap=a\0"), "{facts}");
        let stats = text(ask(&context, QueryKind::STATS, "a").await);
        assert!(
            stats.contains("pgm=\"gridlane\"") && stats.contains("<stats id=\"link\"><num>0</num>"),
            "{stats}"
        );
        assert!(!text(ask(&context, QueryKind::STATS, "x").await).contains("<stats "));
    }

    #[tokio::test]
    async fn unsupported_queries() {
        let context = context();
        for (kind, argument, expected) in [
            (QueryKind::PREPARE, "1:2\n/d/f", ErrorCode::ARG_INVALID),
            (QueryKind::FILE_INFO, "/d/f", ErrorCode::ARG_INVALID),
            (QueryKind::FILE_SYSTEM_INFO, "/", ErrorCode::ARG_INVALID),
            (QueryKind(99), "x", ErrorCode::ARG_INVALID),
            (QueryKind::OPAQUE, "x", ErrorCode::UNSUPPORTED),
            (QueryKind::OPAQUE_FILE, "/d/f?x", ErrorCode::UNSUPPORTED),
            (QueryKind::OPAQUE_HANDLE, "x", ErrorCode::FILE_NOT_OPEN),
            (QueryKind::VISA, "", ErrorCode::FILE_NOT_OPEN),
        ] {
            assert_eq!(code(ask(&context, kind, argument).await), expected, "{kind}");
        }
        assert_eq!(bytes(ask(&context, QueryKind::CHECKSUM_CANCEL, "/d/f").await), b"");
    }
}
