//! Every verb of xrdfs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use gridlane_core::ChecksumKind;

use super::{Site, assert_refused};
use crate::support::client::text;
use crate::support::{assert_same, checksum, content, until};

/// The value of a line `Name:   value`.
#[track_caller]
fn value<'a>(said: &'a str, name: &str) -> &'a str {
    let found = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("no {name} in {said}")).trim()
}

fn lines(said: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn ls() {
    let site = Site::new();
    let bytes = content(3201, 5000);
    site.put("d/one", &bytes);
    site.put("d/a name with %20 and ü", b"x");
    site.put("d/sub/deep/f", b"y");
    fs::create_dir(site.exported("d/none")).unwrap();
    site.give();

    let all = ["/d/a name with %20 and ü", "/d/none", "/d/one", "/d/sub"];
    let said = site.xrdfs(&["ls", "/d"]).ok().text();
    assert_eq!(lines(&said), all);
    let said = site.xrdfs(&["ls", "/d/"]).ok().text();
    assert_eq!(lines(&said).len(), 4, "{said}");
    let said = site.xrdfs(&["ls", "/d/none"]).ok().text();
    assert_eq!(said, "");
    // Of a file, which it learns from stat.
    let said = site.xrdfs(&["ls", "/d/one"]).ok().text();
    assert_eq!(said, "/d/one\n");

    let said = site.xrdfs(&["ls", "-l", "/d"]).ok().text();
    let line = |end: &str| said.lines().find(|line| line.ends_with(end)).unwrap_or_else(|| panic!("{said}"));
    assert!(line(" /d/one").starts_with("-rw") && line(" /d/one").contains(" 5000 20"), "{said}");
    assert!(line(" /d/sub").starts_with("drwx"), "{said}");
    assert!(line(" /d/a name with %20 and ü").contains(" 1 20"), "{said}");
    assert_eq!(said.lines().count(), 4, "{said}");

    let said = site.xrdfs(&["ls", "-u", "/d/sub"]).ok().text();
    assert_eq!(said, format!("{}\n", site.url("d/sub/deep")));
    let said = site.xrdfs(&["ls", "-D", "/d"]).ok().text();
    assert_eq!(lines(&said), all);
    let said = site.xrdfs(&["ls", "-R", "/d"]).ok().text();
    let deep = ["/d/a name with %20 and ü", "/d/none", "/d/one", "/d/sub", "/d/sub/deep", "/d/sub/deep/f"];
    assert_eq!(lines(&said), deep);
    // With a checksum, as far as it is known: asked for, it is, unless the file had only just been written.
    let adler32 = format!("adler32:{}", checksum(ChecksumKind::Adler32, &bytes).hex());
    until("a listing tells the checksum", || {
        site.xrdfs(&["query", "checksum", "/d/one"]).ok();
        let said = site.xrdfs(&["ls", "-C", "/d"]).ok().text();
        said.lines().any(|line| line.contains(&adler32) && line.ends_with("/d/one"))
    });

    assert_refused(site.xrdfs(&["ls", "/missing"]), &[3011], &["no such file"]);
}

/// More than one part of an answer.
#[test]
fn ls_of_many() {
    let site = Site::new();
    fs::create_dir(site.exported("many")).unwrap();
    for number in 0..3000 {
        fs::write(site.exported(&format!("many/a somewhat longer name {number:05}")), b"").unwrap();
    }
    site.give();
    for how in ["-u", "-l"] {
        let said = site.xrdfs(&["ls", how, "/many"]).ok().text();
        let mut found: Vec<&str> = said.lines().map(|line| &line[line.len() - 5..]).collect();
        found.sort_unstable();
        assert_eq!(found.len(), 3000);
        assert_eq!((found[0], found[2999]), ("00000", "02999"));
        found.dedup();
        assert_eq!(found.len(), 3000);
    }
}

#[test]
fn stat() {
    let site = Site::new();
    site.put("d/f", &content(3202, 5000));
    site.put("d/a name with %20 and ü", b"x");
    let said = site.xrdfs(&["stat", "/d/f"]).ok().text();
    assert_eq!(value(&said, "Path"), "/d/f");
    assert_eq!(value(&said, "Size"), "5000");
    assert!(value(&said, "Flags").ends_with("(IsReadable|IsWritable)"), "{said}");
    assert_eq!(value(&said, "Mode"), "0644");
    for time in ["MTime", "CTime", "ATime"] {
        assert!(value(&said, time).starts_with("20"), "{said}");
    }
    assert!(value(&said, "Id").parse::<u64>().is_ok(), "{said}");
    let said = site.xrdfs(&["stat", "/d/a name with %20 and ü"]).ok().text();
    assert_eq!(value(&said, "Size"), "1");
    for directory in ["/d", "/d/", "/"] {
        let said = site.xrdfs(&["stat", directory]).ok().text();
        assert!(value(&said, "Flags").contains("(XBitSet|IsDir|IsReadable|IsWritable)"), "{said}");
    }
    site.xrdfs(&["stat", "-q", "IsReadable&IsWritable", "/d/f"]).ok();
    site.xrdfs(&["stat", "-q", "IsDir|IsReadable", "/d/f"]).ok();
    site.xrdfs(&["stat", "-q", "IsDir", "/d/f"]).exits(55);
    for flag in ["IsDir", "XBitSet"] {
        site.xrdfs(&["stat", "-q", flag, "/d"]).ok();
    }
    for flag in ["Offline", "Other", "POSCPending"] {
        site.xrdfs(&["stat", "-q", flag, "/d/f"]).exits(55);
    }
    assert_refused(site.xrdfs(&["stat", "/d/missing"]), &[3011], &["no such file"]);
}

#[test]
fn space() {
    let site = Site::new();
    let said = site.xrdfs(&["statvfs", "/"]).ok().text();
    assert_eq!(value(&said, "Nodes with RW space"), "1");
    let free_mb: u64 = value(&said, "Size of largest RW space (MB)").parse().unwrap();
    let used: u64 = value(&said, "Utilization of RW space (%)").parse().unwrap();
    assert!(used <= 100, "{said}");
    let said = site.xrdfs(&["spaceinfo", "/"]).ok().text();
    let number = |name: &str| value(&said, name).parse::<u64>().unwrap();
    assert!(number("Free") <= number("Total") && number("Used") <= number("Total"), "{said}");
    // In the same units; others use the same disk meanwhile.
    assert!((number("Free") >> 20).abs_diff(free_mb) <= 20_000, "{free_mb} {said}");
    let said = site.xrdfs(&["query", "space", "/"]).ok().text();
    for key in ["oss.cgroup=", "oss.space=", "oss.free=", "oss.maxf=", "oss.used=", "oss.quota="] {
        assert!(said.contains(key), "{said}");
    }
}

#[test]
fn locate() {
    let site = Site::new();
    site.put("d/f", b"x");
    let port = site.authority().rsplit(':').next().unwrap().to_owned();
    for options in [&[][..], &["-d"], &["-m"], &["-r"], &["-n"]] {
        for path in ["/d/f", "/d"] {
            let arguments: Vec<&str> = ["locate"].iter().chain(options).chain(&[path]).copied().collect();
            let said = site.xrdfs(&arguments).ok().text();
            let words: Vec<&str> = said.split_whitespace().collect();
            assert!(words[0].ends_with(&format!(":{port}")), "{said}");
            assert_eq!(words[1..], ["Server", "ReadWrite"], "{options:?} {path}: {said}");
        }
    }
    assert_refused(site.xrdfs(&["locate", "/missing"]), &[3011], &["no such file"]);
}

#[test]
fn directories() {
    let site = Site::new();
    site.xrdfs(&["mkdir", "/d"]).ok();
    assert!(site.exported("d").is_dir());
    site.xrdfs(&["mkdir", "-p", "/d/e/f ü %41"]).ok();
    assert!(site.exported("d/e/f ü %41").is_dir());
    site.xrdfs(&["mkdir", "-p", "/d/e"]).ok();
    site.xrdfs(&["mkdir", "-mrwxr-x---", "/private"]).ok();
    assert_eq!(fs::metadata(site.exported("private")).unwrap().permissions().mode() & 0o777, 0o750);
    // No parent: a real xrootd makes it by "-p" alone as well.
    assert_refused(site.xrdfs(&["mkdir", "/x/y"]), &[3011], &["no such file"]);
    // Not empty: 3005 says xrootd 5, 3018 xrootd 6.
    assert_refused(site.xrdfs(&["rmdir", "/d"]), &[3005, 3018], &["not empty"]);
    site.xrdfs(&["rmdir", "/d/e/f ü %41"]).ok();
    site.xrdfs(&["rmdir", "/d/e/"]).ok();
    assert!(!site.exported("d/e").exists());
    site.put("f", b"x");
    assert_refused(site.xrdfs(&["rmdir", "/f"]), &[3005, 3015, 3018], &["not a directory"]);
    assert_refused(site.xrdfs(&["mkdir", "/f"]), &[3018], &["exists"]);
    assert!(site.exported("f").is_file());
}

#[test]
fn files() {
    let site = Site::new();
    let bytes = content(3203, 70_000);
    site.put("a b %", &bytes);
    site.put("d/old", b"old");
    // Paths with blanks cannot be told from two paths by all of its verbs.
    assert_same(&site.xrdfs(&["cat", "/a b %"]).ok().stdout, &bytes);
    site.put("f", &bytes);
    site.put("g", b"second");
    let both = site.xrdfs(&["cat", "/f", "/g"]).ok().stdout;
    assert_same(&both, &[&bytes, &b"second"[..]].concat());
    let target = site.scratch.join("target");
    site.xrdfs(&["cat", "-o", text(&target), "/f"]).ok();
    assert_same(&fs::read(&target).unwrap(), &bytes);
    assert_same(&site.xrdfs(&["tail", "-c", "10", "/f"]).ok().stdout, &bytes[bytes.len() - 10..]);
    assert_same(&site.xrdfs(&["tail", "/f"]).ok().stdout, &bytes[bytes.len() - 512..]);

    site.xrdfs(&["mv", "/f", "/d/f"]).ok();
    assert!(!site.exported("f").exists());
    assert_same(&site.read("d/f"), &bytes);
    site.xrdfs(&["mv", "/d/f", "/d/old"]).ok();
    assert_same(&site.read("d/old"), &bytes);
    site.xrdfs(&["mv", "/d", "/e"]).ok();
    assert!(site.exported("e/old").is_file());

    site.xrdfs(&["truncate", "/e/old", "1234"]).ok();
    assert_same(&site.read("e/old"), &bytes[..1234]);
    site.xrdfs(&["truncate", "/e/old", "3000"]).ok();
    assert_same(&site.read("e/old")[1234..], &[0; 3000 - 1234]);
    site.xrdfs(&["chmod", "/e/old", "r--r-----"]).ok();
    assert_eq!(fs::metadata(site.exported("e/old")).unwrap().permissions().mode() & 0o777, 0o440);
    site.xrdfs(&["chmod", "/e/old", "rw-r--r--"]).ok();

    site.xrdfs(&["rm", "/e/old", "/g"]).ok();
    assert!(!site.exported("e/old").exists() && !site.exported("g").exists());

    for verb in [
        &["cat", "/missing"][..],
        &["tail", "/missing"],
        &["mv", "/missing", "/there"],
        &["rm", "/missing"],
        &["truncate", "/missing", "1"],
    ] {
        assert_refused(site.xrdfs(verb), &[3011], &["no such file"]);
    }
    assert_refused(site.xrdfs(&["cat", "/e"]), &[3016], &["is a directory"]);
    assert_refused(site.xrdfs(&["truncate", "/e", "0"]), &[3016], &["is a directory"]);
}

#[test]
fn queries() {
    let site = Site::new();
    let bytes = content(3204, 300_000);
    site.put("d/f", &bytes);
    let config = |key: &str| site.xrdfs(&["query", "config", key]).ok().text().trim().to_owned();
    assert_eq!(config("readv_iov_max"), "1024");
    let longest: u64 = config("readv_ior_max").parse().unwrap();
    assert!(longest >= 2_097_136, "{longest}");
    let bound: u64 = config("bind_max").parse().unwrap();
    assert!(bound >= 1, "{bound}");
    assert!(config("chksum").starts_with("0:adler32,"), "{}", config("chksum"));
    assert!(config("version").starts_with('v'), "{}", config("version"));
    assert_eq!(config("role"), "server");
    assert_eq!(config("cms"), "none|");
    assert_eq!(config("fattr").split(' ').count(), 2);
    assert!(config("pio_max").parse::<u64>().is_ok());
    assert!(!config("window").is_empty());
    assert_eq!(config("tpc"), "1");
    // What is not known, or not set, comes back.
    for key in ["nonsense", "tpcdlg", "sitename", "proxy"] {
        assert_eq!(config(key), key);
    }

    for kind in [ChecksumKind::Adler32, ChecksumKind::Crc32c, ChecksumKind::Md5] {
        let expected = format!("{kind} {}", checksum(kind, &bytes).hex());
        // Computed, then known.
        for _ in 0..2 {
            let path = format!("/d/f?cks.type={kind}");
            let said = site.xrdfs(&["query", "checksum", &path]).ok().text();
            assert_eq!(said.trim_end_matches(['\n', '\0']), expected);
        }
    }
    let said = site.xrdfs(&["query", "checksum", "/d/f"]).ok().text();
    assert!(said.starts_with("adler32 "), "{said}");
    assert_refused(site.xrdfs(&["query", "checksum", "/missing"]), &[3011], &["no such file"]);
    assert_refused(site.xrdfs(&["query", "checksum", "/d"]), &[3016], &["is a directory"]);
    assert_refused(
        site.xrdfs(&["query", "checksum", "/d/f?cks.type=nonsense"]),
        &[3012, 3013],
        &["not supported"],
    );
    site.xrdfs(&["query", "checksumcancel", "/d/f"]).ok();

    let said = site.xrdfs(&["query", "xattr", "/d/f"]).ok().text();
    for part in ["oss.type=f", "oss.used=300000", "oss.mt="] {
        assert!(said.contains(part), "{said}");
    }
    assert!(site.xrdfs(&["query", "xattr", "/d"]).ok().text().contains("oss.type=d"));
    let said = site.xrdfs(&["query", "stats", "a"]).ok().text();
    assert!(said.starts_with("<statistics ") && said.trim_end().ends_with("</statistics>"), "{said}");
    for kind in ["opaque", "opaquefile"] {
        assert_refused(site.xrdfs(&["query", kind, "/d/f"]), &[3013], &["support"]);
    }
}

/// There is no tape behind it.
#[test]
fn prepare() {
    let site = Site::new();
    site.put("d/f", b"x");
    site.put("d/g", b"x");
    site.xrdfs(&["prepare", "/d/f"]).ok();
    site.xrdfs(&["prepare", "-f", "-w", "-p", "2", "/d/f", "/d/g"]).ok();
    let staged = site.xrdfs(&["prepare", "-s", "/d/f"]).ok();
    let name = staged.text().trim().to_owned();
    assert!(!name.is_empty(), "no id: {}", staged.describe());
    site.xrdfs(&["query", "prepare", &name, "/d/f"]).ok();
    site.xrdfs(&["prepare", "-c", &name]).ok();
    let asked = site.xrdfs(&["query", "prepare", "nonsense", "/d/f"]);
    assert_refused(asked, &[3000, 3011, 3013], &[]);
    assert_refused(site.xrdfs(&["prepare", "-a", "nonsense", "/d/f"]), &[3000, 3011, 3013], &[]);
}

#[test]
fn attributes() {
    let site = Site::new();
    site.put("d/f", b"x");
    let xattr = |path: &str, rest: &[&str]| {
        let arguments: Vec<&str> = ["xattr", path].iter().chain(rest).copied().collect();
        site.xrdfs(&arguments)
    };
    for path in ["/d/f", "/d"] {
        xattr(path, &["set", "colour=blue"]).ok();
        xattr(path, &["set", "a.b-c=1 2=3 ü"]).ok();
        xattr(path, &["get", "colour"]).ok().says(&["colour=\"blue\""]);
        xattr(path, &["get", "a.b-c"]).ok().says(&["a.b-c=\"1 2=3 ü\""]);
        xattr(path, &["set", "colour=red"]).ok();
        let listed = xattr(path, &["list"]).ok().text();
        assert!(listed.contains("colour=\"red\"\n") && listed.contains("a.b-c="), "{listed}");
        // What others keep there (checksums among it) is not its business.
        assert_eq!(listed.lines().count(), 3, "{listed}");
        xattr(path, &["del", "colour"]).ok();
        assert_refused(xattr(path, &["get", "colour"]), &[3027], &[]);
        assert!(!xattr(path, &["list"]).ok().text().contains("colour"));
    }
    assert_refused(xattr("/missing", &["list"]), &[3011], &["no such file"]);
    assert_refused(xattr("/missing", &["get", "colour"]), &[3011], &[]);
}

/// One connection, on which many things are said.
#[test]
fn interactive() {
    let site = Site::new();
    site.put("d/f", b"words\n");
    let commands = "cd d\nls\nstat f\nmkdir sub\ncat f\nrm f\nls /\nexit\n";
    let script = site.scratch.file("commands", commands.as_bytes());
    let mut command = site.prepare(crate::support::tools::tool("xrdfs", "xrootd-client"));
    command.arg(format!("root://{}", site.authority())).stdin(fs::File::open(script).unwrap());
    let outcome = crate::support::client::run(command).ok().says(&["/d/f", "Size:   6", "words"]);
    assert!(site.exported("d/sub").is_dir(), "{}", outcome.describe());
    assert!(!site.exported("d/f").exists(), "{}", outcome.describe());
}
