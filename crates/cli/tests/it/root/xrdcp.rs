//! xrdcp, up and down.

use std::fs;

use gridlane_core::ChecksumKind;

use super::{ERROR_OF_SERVER, Site, assert_refused};
use crate::support::client::{Running, run, text};
use crate::support::nginx::free_port;
use crate::support::serve::Server;
use crate::support::tree::read_tree;
use crate::support::xrootd::Xrootd;
use crate::support::{MIB, assert_same, checksum, content, occupied_bytes, until};

#[test]
fn small_files() {
    let site = Site::new();
    let names = ["empty", "one", "page", "a name with %20, ü and 100 %", "d/e/million"];
    for (name, size) in names.into_iter().zip([0, 1, 4096, 8193, 1_000_000]) {
        let bytes = content(3001, size);
        let source = site.scratch.file(&format!("here/{name}"), &bytes);
        // Without -p too it makes the directories that lead there.
        site.xrdcp(&[text(&source), &site.url(name)]).ok();
        assert_same(&site.read(name), &bytes);
        let target = site.scratch.join("there").join(name);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        site.xrdcp(&[&site.url(name), text(&target)]).ok();
        assert_same(&fs::read(&target).unwrap(), &bytes);
    }
}

/// Without page checksums it sends other requests.
#[test]
fn without_page_checksums() {
    let site = Site::new();
    let bytes = content(3002, 20 * MIB + 5);
    let source = site.scratch.file("source", &bytes);
    let target = site.scratch.join("target");
    for arguments in [[text(&source), &site.url("f")], [&site.url("f"), text(&target)]] {
        let mut command = site.xrdcp_command(&arguments);
        command.env("XRD_CPUSEPGWRTRD", "0");
        run(command).ok();
    }
    assert_same(&site.read("f"), &bytes);
    assert_same(&fs::read(&target).unwrap(), &bytes);
}

/// Five connections for the data of one file, whose answers come on the connection that was asked for.
#[test]
fn streams() {
    let site = Site::new();
    let bytes = content(3003, 33 * MIB + 77);
    let source = site.scratch.file("source", &bytes);
    site.xrdcp(&["-S", "4", text(&source), &site.url("f")]).ok();
    assert_same(&site.read("f"), &bytes);
    let target = site.scratch.join("target");
    for pages in ["1", "0"] {
        let mut command = site.xrdcp_command(&["-f", "-S", "4", &site.url("f"), text(&target)]);
        // Many requests, so that all of the connections are used.
        command.env("XRD_CPUSEPGWRTRD", pages).env("XRD_CPCHUNKSIZE", "1048576");
        run(command).ok();
        assert_same(&fs::read(&target).unwrap(), &bytes);
        fs::remove_file(&target).unwrap();
    }
}

#[test]
fn checksums() {
    let site = Site::new();
    let bytes = content(3004, 5 * MIB + 1);
    let source = site.scratch.file("source", &bytes);
    let target = site.scratch.join("target");
    for (kind, name) in
        [(ChecksumKind::Adler32, "adler32"), (ChecksumKind::Crc32c, "crc32c"), (ChecksumKind::Md5, "md5")]
    {
        let value = checksum(kind, &bytes).hex();
        // Compared with what the server says of what it got.
        site.xrdcp(&["-f", "--cksum", name, text(&source), &site.url(name)]).ok();
        site.xrdcp(&["-f", "--cksum", &format!("{name}:print"), text(&source), &site.url(name)])
            .ok()
            .says(&[&format!("{name}: {value} root://")]);
        for how in ["source", &value] {
            site.xrdcp(&["-f", "--cksum", &format!("{name}:{how}"), &site.url(name), text(&target)]).ok();
        }
        site.xrdcp(&["-f", "--cksum", &format!("{name}:source"), &site.url(name), text(&target)])
            .ok()
            .says(&[&format!("{name}: {value} root://")]);
        let wrong = format!("{name}:{}", checksum(kind, b"something else").hex());
        site.xrdcp(&["-f", "--cksum", &wrong, &site.url(name), text(&target)]).exits(53).says(&["checksum"]);
        fs::remove_file(&target).unwrap();
    }
    // The server's first choice.
    let adler32 = checksum(ChecksumKind::Adler32, &bytes).hex();
    site.xrdcp(&["--cksum", "auto:source", &site.url("md5"), text(&target)])
        .ok()
        .says(&[&format!("adler32: {adler32} root://")]);
}

/// xrdcp 5.5.3 itself does so only downwards: of an upload it says that the file exists.
#[test]
fn continued() {
    let site = Site::new();
    let bytes = content(3005, 12 * MIB + 3);
    site.put("f", &bytes);
    // Its first byte is another: what is there is not fetched again.
    let mut begun = bytes[..5 * MIB + 1].to_vec();
    begun[0] ^= 1;
    let target = site.scratch.file("target", &begun);
    site.xrdcp(&["--continue", &site.url("f"), text(&target)]).ok();
    let found = fs::read(&target).unwrap();
    assert_eq!(found[0], begun[0]);
    assert_same(&found[1..], &bytes[1..]);
}

#[test]
fn what_exists_is_replaced_only_when_told() {
    let site = Site::new();
    let (old, new) = (content(3006, 3 * MIB), content(3007, MIB + 1));
    site.put("f", &old);
    let source = site.scratch.file("source", &new);
    let refused = site.xrdcp(&[text(&source), &site.url("f")]);
    assert_ne!(refused.code, Some(0), "{}", refused.describe());
    refused.says(&["exists"]);
    assert_same(&site.read("f"), &old);
    site.xrdcp(&["-f", text(&source), &site.url("f")]).ok();
    assert_same(&site.read("f"), &new);
    // Into a directory, by the name that it has here.
    fs::create_dir(site.exported("d")).unwrap();
    site.give();
    site.xrdcp(&[text(&source), &site.url("d/")]).ok();
    assert_same(&site.read("d/source"), &new);
}

#[test]
fn persist_on_successful_close() {
    let site = Site::new();
    let bytes = content(3008, 9 * MIB + 9);
    let source = site.scratch.file("source", &bytes);
    site.xrdcp(&["--posc", text(&source), &site.url("d/f")]).ok();
    assert_same(&site.read("d/f"), &bytes);
    site.xrdcp(&["--posc", "--force", "--cksum", "adler32", text(&source), &site.url("d/f")]).ok();
    assert_same(&site.read("d/f"), &bytes);
}

/// Killed half-way, nothing is there afterwards, and what was there before is whole.
#[test]
fn killed_before_the_close() {
    let site = Site::ours(&["--allow-write"]);
    let bytes = content(3009, 16 * MIB);
    let source = site.scratch.file("source", &bytes);
    let old = content(3010, MIB);
    site.put("old", &old);
    let before = site.occupied_bytes();
    for name in ["new", "old"] {
        let mut command =
            site.xrdcp_command(&["--posc", "--force", "--xrate", "2m", text(&source), &site.url(name)]);
        command.env("XRD_CPCHUNKSIZE", "262144");
        let mut copying = Running::start(command);
        until("some of it has arrived", || {
            assert!(copying.is_running(), "it ended early");
            site.occupied_bytes() > before + MIB as u64
        });
        copying.kill();
        until("nothing is left of it", || site.occupied_bytes() == before);
        assert!(!site.exported("new").exists());
        assert_same(&site.read("old"), &old);
    }
    // No session holds the name.
    site.xrdcp(&["--posc", "--force", text(&source), &site.url("old")]).ok();
    assert_same(&site.read("old"), &bytes);
}

#[test]
fn trees() {
    let site = Site::new();
    let here = site.scratch.dir("here");
    for number in 0..24_u64 {
        let name = format!("here/dir {}/sub/file ü {number}", number % 3);
        site.scratch.file(&name, &content(number, 1 + 997 * number as usize));
    }
    // It wants the directory above to be there already, and takes no empty directories along.
    fs::create_dir(site.exported("up")).unwrap();
    site.give();
    site.xrdcp(&["-r", text(&here), &site.url("up")]).ok();
    assert_eq!(read_tree(&site.exported("up/here")), read_tree(&here));
    let down = site.scratch.dir("down");
    site.xrdcp(&["-r", "--parallel", "4", &site.url("up/here"), text(&down)]).ok();
    assert_eq!(read_tree(&down.join("here")), read_tree(&here));
}

#[test]
fn members_of_a_zip_archive() {
    let site = Site::new();
    let (one, two) = (content(3011, 100), content(3012, 300_000));
    site.scratch.file("here/one", &one);
    site.scratch.file("here/sub/two", &two);
    let mut command = crate::support::tools::tool("python3", "python3");
    command.current_dir(site.scratch.join("here")).args(["-m", "zipfile", "-c", "../a.zip", "one", "sub"]);
    // It compresses, which these bytes do not.
    run(command).ok();
    site.put("a.zip", &fs::read(site.scratch.join("a.zip")).unwrap());
    let target = site.scratch.join("target");
    // XrdCl uses an archive before it knows that it is open, by chance and with any server: it crashes now and then, or lists
    // nothing and says so.
    let xrdcp = |args: &[&str]| {
        let mut copies = (0..10).map(|_| site.xrdcp(args));
        copies.find(|copy| copy.code.is_some()).expect("xrdcp crashes each time")
    };
    xrdcp(&["-f", &site.url("a.zip?xrdcl.unzip=sub/two"), text(&target)]).ok();
    assert_same(&fs::read(&target).unwrap(), &two);
    xrdcp(&["-f", "--zip", "one", &site.url("a.zip"), text(&target)]).ok();
    assert_same(&fs::read(&target).unwrap(), &one);
    let missing = xrdcp(&["-f", "--zip", "none", &site.url("a.zip"), text(&target)]);
    assert_ne!(missing.code, Some(0), "{}", missing.describe());
    let mut lists = (0..10).map(|_| site.xrdfs(&["ls", "-Z", "/a.zip"]));
    let listed = lists.find(|listed| listed.code == Some(0)).unwrap().text();
    assert!(listed.contains("/a.zip/one\n") && listed.contains("/a.zip/sub/two\n"), "{listed}");
}

/// A metalink of a file that is there and there, the best place first.
fn metalink(site: &Site, bytes: &[u8], urls: &[String]) -> String {
    let urls =
        urls.iter().zip(1..).map(|(url, priority)| format!("<url priority=\"{priority}\">{url}</url>"));
    let hash = checksum(ChecksumKind::Adler32, bytes).hex();
    let metalink = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><size>{}</size>
<hash type=\"adler32\">{hash}</hash>{}</file></metalink>
",
        bytes.len(),
        urls.collect::<String>()
    );
    text(&site.scratch.file("f.meta4", metalink.as_bytes())).to_owned()
}

/// It counts hosts, so there are three of them.
#[test]
fn three_sources_of_a_metalink() {
    let sites = [Site::at("127.0.0.1"), Site::at("127.0.0.2"), Site::at("127.0.0.3")];
    let bytes = content(3013, 24 * MIB + 1);
    let urls = sites.each_ref().map(|site| {
        site.put("f", &bytes);
        site.url("f")
    });
    let [site, ..] = &sites;
    let metalink = metalink(site, &bytes, &urls);
    let target = site.scratch.join("target");
    let mut command =
        site.xrdcp_command(&["--sources", "3", "--cksum", "adler32:source", &metalink, text(&target)]);
    command.env("XRD_CPCHUNKSIZE", "1048576").env("XRD_XCPBLOCKSIZE", "2097152");
    run(command).ok();
    assert_same(&fs::read(&target).unwrap(), &bytes);
    for site in &sites {
        // A real xrootd logs logins, and not what is read.
        let word = if site.is_ours() { "/f" } else { "login" };
        until("every source was used", || site.log().contains(word));
    }
}

#[test]
fn pipes() {
    let site = Site::new();
    let bytes = content(3014, 10 * MIB + 3);
    let source = site.scratch.file("source", &bytes);
    let mut command = site.xrdcp_command(&["-", &site.url("f")]);
    command.stdin(fs::File::open(&source).unwrap());
    run(command).ok();
    assert_same(&site.read("f"), &bytes);
    assert_same(&site.xrdcp(&[&site.url("f"), "-"]).ok().stdout, &bytes);
}

/// Through the client, on one connection, with the extended attributes.
#[test]
fn from_the_server_to_itself() {
    let site = Site::new();
    let bytes = content(3015, 10 * MIB + 3);
    site.put("f", &bytes);
    site.xrdfs(&["xattr", "/f", "set", "colour=blue"]).ok();
    site.xrdcp(&["--xattr", "--cksum", "adler32", &site.url("f"), &site.url("g")]).ok();
    assert_same(&site.read("g"), &bytes);
    site.xrdfs(&["xattr", "/g", "get", "colour"]).ok().says(&["colour=\"blue\""]);
}

/// Its client waits for a server that is gone, and goes on where it was.
#[test]
fn a_server_that_comes_back() {
    let port = free_port();
    let mut site = Site::ours_at(port, &["--allow-write"]);
    let bytes = content(3017, 16 * MIB + 1);
    site.put("f", &bytes);
    let target = site.scratch.join("target");
    let mut command = site.xrdcp_command(&["--xrate", "8m", &site.url("f"), text(&target)]);
    command
        .env("XRD_CPCHUNKSIZE", "262144")
        .env("XRD_CONNECTIONWINDOW", "1")
        .env("XRD_CONNECTIONRETRY", "60");
    let mut copying = Running::start(command);
    until("some of it is there", || {
        assert!(copying.is_running(), "it ended early");
        occupied_bytes(&target) > 2 * MIB as u64
    });
    site.kill();
    let mut again = Server::command(&site.exported(""));
    again.args(["--listen", &site.authority()]);
    let _again = Server::spawn(again);
    copying.wait().ok();
    assert_same(&fs::read(&target).unwrap(), &bytes);
}

/// Through the client, and from whichever of the two is there.
#[test]
fn between_two_servers() {
    let site = Site::new();
    let mut other = Xrootd::start();
    let bytes = content(3016, 10 * MIB + 3);
    other.put("f", &bytes);
    site.xrdcp(&["--cksum", "crc32c", &other.url("f"), &site.url("f")]).ok();
    assert_same(&site.read("f"), &bytes);
    site.xrdcp(&["--cksum", "crc32c", &site.url("f"), &other.url("d/g")]).ok();
    assert_same(&fs::read(other.exported("d/g")).unwrap(), &bytes);
    // By another name: it does not go back to a host that has failed it.
    let dead = other.url("f").replace("127.0.0.1", "127.0.0.2");
    let metalink = metalink(&site, &bytes, &[dead, site.url("f")]);
    let target = site.scratch.join("target");
    other.kill();
    site.xrdcp(&[&metalink, text(&target)]).ok();
    assert_same(&fs::read(&target).unwrap(), &bytes);
}

#[test]
fn errors() {
    let site = Site::new();
    let target = site.scratch.join("target");
    fs::create_dir(site.exported("d")).unwrap();
    site.give();
    assert_refused(site.xrdcp(&[&site.url("missing"), text(&target)]), &[3011], &["no such file"]);
    assert_refused(site.xrdcp(&[&site.url("d"), text(&target)]), &[3016], &["is a directory"]);
    assert!(!target.exists(), "a failed copy leaves nothing");
    // No server is there.
    let port = free_port();
    let outcome = site.xrdcp(&[&format!("root://127.0.0.1:{port}//f"), text(&target)]);
    assert!(!matches!(outcome.code, Some(0 | ERROR_OF_SERVER)), "{}", outcome.describe());
}
