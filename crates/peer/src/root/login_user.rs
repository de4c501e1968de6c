//! The user and group of this process, for logins.

use std::fs;
use std::sync::OnceLock;

use gridlane_xrd::client::LoginUser;

/// The user and group of this process, looked up once: they do not change.
pub(super) fn login_user() -> LoginUser {
    static LOGIN_USER: OnceLock<LoginUser> = OnceLock::new();
    LOGIN_USER.get_or_init(look_up).clone()
}

fn look_up() -> LoginUser {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let named = |file: &str, number: u32| {
        let found = fs::read_to_string(file).ok().and_then(|text| name_of(&text, number));
        found.unwrap_or_else(|| number.to_string()).into_bytes()
    };
    let user = named("/etc/passwd", user);
    let cgi = format!("xrd.appname=gridlane&xrd.rn=v{}", env!("CARGO_PKG_VERSION"));
    LoginUser {
        process: std::process::id(),
        login: user.clone(),
        user,
        group: named("/etc/group", group),
        cgi: cgi.into_bytes(),
        token: None,
    }
}

/// The name of a number in a file of lines `name:…:number:…`.
fn name_of(text: &str, number: u32) -> Option<String> {
    let number = number.to_string();
    let mut lines = text.lines().map(|line| line.split(':'));
    lines.find_map(|mut line| {
        let name = line.next()?;
        (line.nth(1)? == number && !name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_a_name() {
        let text = "root:x:0:0:root:/root:/bin/sh\n\nbad\nsome:x:1000:1000::/:\n";
        assert_eq!(name_of(text, 1000).as_deref(), Some("some"));
        assert_eq!(name_of(text, 7), None);
        assert!(!login_user().login.is_empty());
    }
}
