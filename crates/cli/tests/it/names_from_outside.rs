//! Names that a server, or a document that it sends, may give to files here.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::support::apache::Apache;
use crate::support::client::{cp, cp_r, gridlane, run};
use crate::support::object::{Answer, Object, Then};
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::tree::read_tree;
use crate::support::xrootd::Xrootd;
use crate::support::{Scratch, assert_copied, content, names};

const META4: &str = "application/metalink4+xml";

/// A metalink of files of these names, all of them at one URL.
fn metalink(names: &[&str], url: &str) -> Arc<Vec<u8>> {
    let file = |name: &&str| format!("<file name=\"{name}\"><url>{url}</url></file>");
    let files: String = names.iter().map(file).collect();
    let text = format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{files}</metalink>");
    Arc::new(text.into_bytes())
}

/// Answers every request with a document of this type; `/redirect/…` leads to one that is called a metalink.
fn answering(document: &Arc<Vec<u8>>) -> Rogue {
    let object = Object::bare(document);
    Rogue::start(move |request| match request.path.starts_with("/redirect/") {
        true => Answer::redirect(302, "/evil.meta4"),
        false => object.answer(request).header("Content-Type", META4),
    })
}

#[test]
fn no_answer_names_the_target_of_a_url_that_is_called_no_metalink() {
    let bytes = content(3301, 1000);
    let object = Object::bare(&bytes);
    let data = Rogue::start(move |request| object.answer(request));
    let scratch = Scratch::new();
    for (number, name) in
        [".ssh/authorized_keys", ".bashrc", "sub/evil", "evil", "../evil", "/etc/evil", ".f.gridlane-journal"]
            .into_iter()
            .enumerate()
    {
        let server = answering(&metalink(&[name], &data.url("payload")));
        for (path, force) in [("run.root", false), ("redirect/run.root", true), ("run.root?x=/y.meta4", true)]
        {
            let into = scratch.dir(&format!("into-{number}/{}-{}", path.len(), force));
            fs::write(into.join(".bashrc"), b"mine").unwrap();
            let mut command = cp(server.url(path), ".");
            command.current_dir(&into).args(force.then_some("--force"));
            run(command).ok();
            assert_copied(&into.join("run.root"), &bytes);
            assert_eq!(names(&into), [".bashrc", "run.root"], "{name} {path}");
            assert_eq!(fs::read(into.join(".bashrc")).unwrap(), b"mine");
        }
    }
    // One file was asked for: several have no names.
    let server = answering(&metalink(&["a", "b"], &data.url("payload")));
    let into = scratch.dir("several");
    run(cp(server.url("run.root"), &into)).fails(1, "peer", false, &["metalink of 2", "NAME.meta4"]);
    assert!(names(&into).is_empty());
}

#[test]
fn a_metalink_chooses_no_name_that_begins_with_a_dot_and_few_directories() {
    let bytes = content(3302, 1000);
    let object = Object::bare(&bytes);
    let data = Rogue::start(move |request| object.answer(request));
    let scratch = Scratch::new();
    let into = scratch.dir("into");
    fs::write(into.join(".bashrc"), b"mine").unwrap();
    for files in [
        &[".bashrc"][..],
        &[".ssh/authorized_keys"],
        &["data/.hidden"],
        &["a", ".config/autostart/x.desktop"],
        &["a", "b/.f.gridlane-part"],
        &["a&#x202e;b"],
    ] {
        let document = metalink(files, &data.url("payload"));
        let server = answering(&document);
        let local = scratch.file("of-mine.meta4", &document);
        for source in [server.url("set.meta4"), local.display().to_string()] {
            let mut command = cp(&source, &into);
            command.arg("--force");
            run(command).fails(1, "peer", false, &["a file of the metalink", "name the target file"]);
            assert_eq!(names(&into), [".bashrc"], "{files:?}");
        }
        assert_eq!(fs::read(into.join(".bashrc")).unwrap(), b"mine");
    }
    // A name that the user gives is the user's own matter.
    let server = answering(&metalink(&[".bashrc"], &data.url("payload")));
    run(cp(server.url("set.meta4"), into.join("mine"))).ok();
    assert_copied(&into.join("mine"), &bytes);
    // One file makes no directory, several do.
    let server = answering(&metalink(&["sub/dir/f"], &data.url("payload")));
    run(cp(server.url("set.meta4"), &into)).ok();
    assert_eq!(names(&into), [".bashrc", "f", "mine"]);
    let server = answering(&metalink(&["sub/dir/f", "sub/g"], &data.url("payload")));
    run(cp(server.url("set.meta4"), &into)).ok();
    assert_copied(&into.join("sub/dir/f"), &bytes);
    assert_copied(&into.join("sub/g"), &bytes);
}

/// Names of a tree beside `.zarray` and `sub/f` that no copy is to have.
const OWN: [&str; 5] = [
    ".f.gridlane-part",
    ".f.gridlane-journal",
    "sub/.F.GridLane-Part",
    ".gridlane/x",
    ".gridlane-failed-a1b2",
];

fn make_tree(dir: &Path) {
    fs::create_dir_all(dir.join("sub")).unwrap();
    fs::create_dir_all(dir.join(".gridlane")).unwrap();
    for name in OWN.iter().chain(&[".zarray", "sub/f"]) {
        fs::write(dir.join(name), name).unwrap();
    }
}

/// Copies a tree and looks at what came.
#[track_caller]
fn assert_only_data_comes(source: &str, scratch: &Scratch) {
    let into = scratch.join(format!("into-{}", names(scratch.path()).len()));
    let outcome = run(cp_r(source, &into)).ok();
    let found: Vec<String> = read_tree(&into).into_keys().map(|path| path.display().to_string()).collect();
    assert_eq!(found, [".zarray", "sub", "sub/f"], "{}", outcome.describe());
    assert_eq!(outcome.number("left_out"), OWN.len() as u64, "{}", outcome.describe());
}

#[test]
fn a_tree_brings_no_unfinished_copies() {
    let scratch = Scratch::new();
    let tree = scratch.dir("tree");
    make_tree(&tree);
    assert_only_data_comes(&format!("{}/", tree.display()), &scratch);
    // By WebDAV.
    let apache = Apache::start(&tree);
    assert_only_data_comes(&apache.url(""), &scratch);
    // By root://.
    let xrootd = Xrootd::start();
    make_tree(&xrootd.exported("t"));
    xrootd.give();
    assert_only_data_comes(&xrootd.url("t/"), &scratch);
    // From a page.
    let server = Rogue::start(|request| {
        let (page, file) = match request.path.as_str() {
            "/" => {
                (".f.gridlane-part .f.gridlane%2Djournal .gridlane/ .gridlane-failed-a1b2 .zarray sub/", "")
            }
            "/sub/" => (".F.GridLane-Part f", ""),
            path => ("", path),
        };
        let links =
            page.split_whitespace().map(|name| format!("<a href=\"{name}\">x</a>")).collect::<String>();
        let body = Arc::new(if file.is_empty() { links } else { file.to_owned() }.into_bytes());
        match request.method.as_str() {
            "PROPFIND" => Answer::status(405).then(Then::Close),
            _ if file.is_empty() => {
                Answer::status(200).header("Content-Type", "text/html").body(&body, 0..body.len())
            }
            _ => Object::bare(&body).answer(request),
        }
    });
    assert_only_data_comes(&server.url(""), &scratch);
}

#[test]
fn what_a_person_names_is_no_unfinished_copy_either() {
    let scratch = Scratch::new();
    let part = scratch.file("from/.f.gridlane-part", b"half of it");
    let into = scratch.dir("into");
    let unfit = ["gridlane keeps for unfinished copies"];
    run(cp(&part, &into)).fails(2, "caller", false, &unfit);
    let mut several = cp(&part, scratch.file("from/g", b"g"));
    several.arg(format!("{}/", into.display()));
    // The last one is the target.
    run(several).exits(2);
    assert!(names(&into).is_empty());
    run(cp(&part, into.join("rescued"))).ok();
    assert_eq!(fs::read(into.join("rescued")).unwrap(), b"half of it");
    fs::write(scratch.join("list"), "g\n.f.gridlane-part\n").unwrap();
    // The list is read while copies run: there may be something of it.
    let into = scratch.dir("listed");
    let mut listed = cp(scratch.join("from"), &into);
    listed.arg("--files-from").arg(scratch.join("list"));
    assert_ne!(run(listed).says(&["unfinished copies"]).code, Some(0));
    assert!(read_tree(&into).into_keys().all(|path| !path.ends_with(".f.gridlane-part")));
}

#[test]
fn a_server_shows_and_takes_no_unfinished_copies() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    make_tree(&export);
    // The server makes one of its own.
    fs::remove_dir_all(export.join(".gridlane")).unwrap();
    let server = Server::with(&export, &["--allow-write"]);
    let file = scratch.file("x", b"forged");
    for scheme in ["http", "root"] {
        let url = |path: &str| server.url_over(scheme, path);
        let mut ls = gridlane();
        ls.args(["ls", &url("")]);
        assert_eq!(run(ls).ok().text(), ".zarray\nsub/\n", "{scheme}");
        let mut cat = gridlane();
        cat.args(["cat", &url(".f.gridlane-part")]);
        run(cat).exits(3);
        for name in [".f.gridlane-journal", "sub/.g.gridlane-part", ".GRIDLANE-x"] {
            let outcome = run(cp(&file, url(name)));
            assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
        }
        run(cp_r(url(""), scratch.join(scheme))).ok();
        let came: Vec<_> = read_tree(&scratch.join(scheme)).into_keys().collect();
        assert_eq!(came, [".zarray", "sub", "sub/f"].map(std::path::PathBuf::from));
    }
    assert_eq!(fs::read(export.join(".f.gridlane-journal")).unwrap(), b".f.gridlane-journal");
    assert_eq!(names(&export.join("sub")), [".F.GridLane-Part", "f"]);
}
