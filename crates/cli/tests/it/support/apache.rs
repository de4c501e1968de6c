//! Apache with WebDAV on a free port, in the foreground.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};

use super::nginx::{free_port, is_open};
use super::tools::tool;
use super::{Scratch, until};

/// A running Apache; it is killed when the value is dropped.
pub(crate) struct Apache {
    child: Child,
    port: u16,
    _prefix: Scratch,
}

impl Apache {
    /// Serves a directory, which anyone may read and write.
    pub(crate) fn start(dir: &Path) -> Apache {
        let prefix = Scratch::new();
        // As root it works as another user, which must get to its files.
        for open in [dir, prefix.path(), &prefix.dir("lock")] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let mut above = dir.parent();
        while let Some(parent) =
            above.filter(|parent| parent.starts_with(std::env::temp_dir()) && *parent != std::env::temp_dir())
        {
            fs::set_permissions(parent, fs::Permissions::from_mode(0o755)).unwrap();
            above = parent.parent();
        }
        for _ in 0..20 {
            let port = free_port();
            fs::write(prefix.join("apache.conf"), configuration(prefix.path(), dir, port)).unwrap();
            let mut child = tool("apache2", "apache2-bin")
                .arg("-X")
                .arg("-f")
                .arg(prefix.join("apache.conf"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut ended = false;
            until("apache2 listens", || {
                ended = child.try_wait().unwrap().is_some();
                ended || is_open(port)
            });
            if !ended {
                return Apache { child, port, _prefix: prefix };
            }
        }
        panic!(
            "apache2 does not start: {}",
            fs::read_to_string(prefix.join("error.log")).unwrap_or_default()
        );
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(prefix: &Path, dir: &Path, port: u16) -> String {
    let modules: String =
        ["mpm_event", "authz_core", "mime", "dir", "autoindex", "alias", "setenvif", "dav", "dav_fs"]
            .iter()
            .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
            .collect();
    let (prefix, dir) = (prefix.display(), dir.display());
    format!(
        "ServerRoot {prefix}
PidFile apache.pid
ServerName localhost
Listen 127.0.0.1:{port}
Mutex file:{prefix} default
MaxKeepAliveRequests 0
{modules}
User www-data
Group www-data
ErrorLog error.log
TypesConfig /dev/null
DocumentRoot {dir}
DavLockDB {prefix}/lock/db
<Directory {dir}>
    Require all granted
    Dav On
    Options +Indexes
    DirectoryIndex disabled
</Directory>
"
    )
}
