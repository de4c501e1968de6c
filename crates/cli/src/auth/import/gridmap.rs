//! A grid-mapfile, as rules.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gridlane_auth::gridmap::GridMap;

use super::quoted;

/// One rule for each subject, beneath the directory of the user that it is mapped to.
pub(super) fn tables(text: &str) -> String {
    let (users, warnings) = GridMap::read(text.as_bytes());
    let mut out = String::new();
    for warning in warnings {
        let _ = writeln!(out, "# {warning}");
    }
    out.push_str(
        "# The server reads a grid-mapfile itself: `gridmap = \"FILE\"` in [auth] gives each of these subjects the name\n\
         # of its user, which rules know as `user = \"NAME\"` and paths as {user}. One rule then holds for all of them:\n#\n\
         # [[rule]]\n# who = \"authenticated\"\n# may = [\"read\", \"list\", \"write\", \"delete\"]\n# under = \"/home/{user}\"\n#\n\
         # Without it, one rule for each, which grants nothing until `may` says what.\n\n",
    );
    for (dn, user) in users.iter().collect::<BTreeMap<_, _>>() {
        let _ = writeln!(out, "[[rule]] # {user}\ndn = {}\nmay = []\nunder = \"/\"\n", quoted(dn));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subject_gets_a_rule() {
        let found =
            tables("# a comment\n\"/DC=org/CN=Ada Lovelace\" ada\n\"/DC=org/CN=Eve\" eve,guest\nnonsense\n");
        assert!(found.contains("[[rule]] # ada\ndn = \"/DC=org/CN=Ada Lovelace\"\nmay = []"), "{found}");
        assert!(found.contains("# eve\n") && found.matches("\n[[rule]]").count() == 2, "{found}");
    }
}
