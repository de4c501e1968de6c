//! Writing metalinks. Whatever comes from elsewhere is escaped for the place where it stands.

use std::fmt::Write as _;

use gridlane_core::{Checksum, ChecksumKind};

use super::{File, FileHash, Format, Metalink, PRIORITY_LOWEST, Pieces, Replica};
use crate::xml_syntax::Escaped;

// Writing to a string does not fail.
macro_rules! line {
    ($to:expr, $($text:tt)*) => {{ let _ = writeln!($to, $($text)*); }};
}

pub(super) fn render(metalink: &Metalink, format: Format) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let (namespace, generator) = (format.namespace(), metalink.generator.as_deref().map(Escaped));
    match format {
        Format::V3 => {
            // XrdCl wants the namespace on the root element.
            let _ = write!(xml, "<metalink version=\"3.0\" xmlns=\"{namespace}\"");
            if let Some(origin) = &metalink.origin {
                let kind = if origin.dynamic { "dynamic" } else { "static" };
                let _ = write!(xml, " origin=\"{}\" type=\"{kind}\"", Escaped(&origin.url));
            }
            if let Some(generator) = generator {
                let _ = write!(xml, " generator=\"{generator}\"");
            }
            xml.push_str(">\n<files>\n");
        }
        Format::V4 => {
            line!(xml, "<metalink xmlns=\"{namespace}\">");
            if let Some(generator) = generator {
                line!(xml, "  <generator>{generator}</generator>");
            }
            if let Some(origin) = &metalink.origin {
                let dynamic = if origin.dynamic { " dynamic=\"true\"" } else { "" };
                line!(xml, "  <origin{dynamic}>{}</origin>", Escaped(&origin.url));
            }
        }
    }
    for file in &metalink.files {
        render_file(&mut xml, file, format);
    }
    xml.push_str(if format == Format::V3 { "</files>\n</metalink>\n" } else { "</metalink>\n" });
    xml
}

fn render_file(xml: &mut String, file: &File, format: Format) {
    let Ok(name) = &file.name else { return };
    line!(xml, "  <file name=\"{}\">", Escaped(name.as_str()));
    if let Some(size) = file.size {
        line!(xml, "    <size>{size}</size>");
    }
    if let Some(identity) = &file.identity {
        line!(xml, "    <identity>{}</identity>", Escaped(identity));
    }
    let (before, after) = match format {
        Format::V3 => ("    <verification>\n", "    </verification>\n    <resources>\n"),
        Format::V4 => ("", ""),
    };
    xml.push_str(before);
    for hash in &file.hashes {
        let (kind, value) = kind_and_value(hash, format);
        line!(xml, "    <hash type=\"{}\">{}</hash>", Escaped(kind), Escaped(&value));
    }
    for pieces in &file.pieces {
        render_pieces(xml, pieces, format);
    }
    xml.push_str(after);
    for replica in &file.replicas {
        render_url(xml, replica, format);
    }
    xml.push_str(if format == Format::V3 { "    </resources>\n  </file>\n" } else { "  </file>\n" });
}

fn render_pieces(xml: &mut String, pieces: &Pieces, format: Format) {
    let Some(first) = pieces.hashes.first() else { return };
    let kind = Escaped(kind_and_value(first, format).0);
    line!(xml, "    <pieces length=\"{}\" type=\"{kind}\">", pieces.piece_bytes);
    for (index, hash) in pieces.hashes.iter().enumerate() {
        let (_, value) = kind_and_value(hash, format);
        let value = Escaped(&value);
        match format {
            Format::V3 => line!(xml, "      <hash piece=\"{index}\">{value}</hash>"),
            Format::V4 => line!(xml, "      <hash>{value}</hash>"),
        }
    }
    xml.push_str("    </pieces>\n");
}

fn render_url(xml: &mut String, replica: &Replica, format: Format) {
    xml.push_str("    <url");
    if let Some(location) = &replica.location {
        let _ = write!(xml, " location=\"{}\"", Escaped(location));
    }
    match format {
        Format::V3 => {
            let scheme = replica.url.split_once(':').map_or("http", |(scheme, _)| scheme);
            // Beyond 101, preferences are all 0 and say no more than the order.
            let preference = 101u32.saturating_sub(replica.priority).min(100);
            let _ = write!(xml, " type=\"{}\" preference=\"{preference}\"", Escaped(scheme));
        }
        Format::V4 => {
            let priority = replica.priority.clamp(1, PRIORITY_LOWEST);
            let _ = write!(xml, " priority=\"{priority}\"");
        }
    }
    line!(xml, ">{}</url>", Escaped(&replica.url));
}

fn kind_and_value(hash: &FileHash, format: Format) -> (&str, String) {
    match hash {
        FileHash::Known(checksum) => (kind_name(checksum, format), checksum.hex()),
        FileHash::Other { kind, value } => (kind, value.clone()),
    }
}

/// The name in a `type` attribute: version 4 takes it from IANA's registry of hash functions (RFC 5854,
/// 4.2.7.1), which has no adler32 and no crc32c; the grid's own names are understood by xrdcp and Rucio and
/// passed over by others.
fn kind_name(checksum: &Checksum, format: Format) -> &'static str {
    match (checksum.kind(), format) {
        (ChecksumKind::Sha1, Format::V4) => "sha-1",
        (ChecksumKind::Sha256, Format::V4) => "sha-256",
        (ChecksumKind::Sha512, Format::V4) => "sha-512",
        (kind, _) => kind.name(),
    }
}
