//! Apache with its WebDAV modules, in the foreground, on a free port.

use std::fs;
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
    /// Serves a directory by WebDAV, to read and to write.
    pub(crate) fn start(dir: &Path) -> Apache {
        let prefix = Scratch::new();
        // As root it becomes somebody who must be able to read and write here.
        let open = |path: &Path| {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        };
        [prefix.path(), dir, dir.parent().unwrap()].into_iter().for_each(open);
        for _ in 0..20 {
            let port = free_port();
            fs::write(prefix.join("httpd.conf"), configuration(dir, prefix.path(), port)).unwrap();
            let mut child = tool("apache2", "apache2-bin")
                .args(["-D", "FOREGROUND", "-f"])
                .arg(prefix.join("httpd.conf"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut ended = false;
            until("apache listens", || {
                ended = child.try_wait().unwrap().is_some();
                ended || is_open(port)
            });
            if !ended {
                return Apache { child, port, _prefix: prefix };
            }
        }
        panic!("apache does not start");
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        // Its parent ends the workers when it is asked to, and leaves them when it is killed.
        super::client::signal(&self.child.id().to_string(), "TERM");
        let _ = self.child.wait();
    }
}

fn configuration(dir: &Path, prefix: &Path, port: u16) -> String {
    let (dir, prefix) = (dir.display(), prefix.display());
    format!(
        "ServerName localhost
ServerRoot /usr/lib/apache2
PidFile {prefix}/pid
DefaultRuntimeDir {prefix}
Listen 127.0.0.1:{port}
Mutex file:{prefix} default
LoadModule mpm_event_module modules/mod_mpm_event.so
LoadModule authz_core_module modules/mod_authz_core.so
LoadModule dav_module modules/mod_dav.so
LoadModule dav_fs_module modules/mod_dav_fs.so
LoadModule dir_module modules/mod_dir.so
<IfModule !unixd_module>
LoadModule unixd_module modules/mod_unixd.so
</IfModule>
User www-data
Group www-data
MaxKeepAliveRequests 0
ErrorLog {prefix}/error.log
DavLockDB {prefix}/lock
DocumentRoot {dir}
<Directory {dir}>
Dav On
Require all granted
</Directory>
"
    )
}
