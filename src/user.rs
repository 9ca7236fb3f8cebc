//! Users by name. A static binary cannot load the C library's name services, so this reads the two files; users known
//! only to a directory service can be given by number.

use nix::unistd::{Gid, Uid};

use crate::sys::text_of;

/// The user to run a command as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub uid: Uid,
    pub gid: Gid,
    /// All groups, including the primary one.
    pub groups: Vec<Gid>,
}

impl User {
    /// Finds a user by name or number; `None` if there is none.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        let read = |path| text_of(path).unwrap_or_default();
        Self::find_in(name, &read("/etc/passwd"), &read("/etc/group"))
    }

    /// Reads the contents of passwd(5) and group(5).
    fn find_in(name: &str, passwd: &str, group: &str) -> Option<Self> {
        let number: Option<u32> = name.parse().ok();
        let entry = passwd
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| {
                let uid = fields.get(2).and_then(|uid| uid.parse::<u32>().ok());
                fields.first() == Some(&name) || (number.is_some() && uid == number)
            });
        let Some(fields) = entry else {
            return number.map(|number| Self {
                uid: Uid::from_raw(number),
                gid: Gid::from_raw(number),
                groups: vec![Gid::from_raw(number)],
            });
        };
        let id = |index: usize| fields.get(index)?.parse::<u32>().ok();
        let (login, uid, gid) = (fields.first()?, id(2)?, Gid::from_raw(id(3)?));
        let mut groups = vec![gid];
        for line in group.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            let [_, _, number, members] = fields[..] else { continue };
            if members.split(',').any(|member| member == *login)
                && let Ok(number) = number.parse()
            {
                groups.push(Gid::from_raw(number));
            }
        }
        Some(Self {
            uid: Uid::from_raw(uid),
            gid,
            groups,
        })
    }
}

/// The names of all users in `/etc/passwd`.
#[must_use]
pub fn names() -> Vec<String> {
    let passwd = text_of("/etc/passwd").unwrap_or_default();
    let names = passwd
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.to_owned()));
    names.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nbroken\nwww:x:33:34::/var/www:/bin/false\n";
    const GROUP: &str = "root:x:0:\nadm:x:4:syslog,www\nbroken:x\nssl:x:99:www\nwwwx:x:5:wwwx\n";

    fn user(uid: u32, groups: &[u32]) -> User {
        let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
        User {
            uid: Uid::from_raw(uid),
            gid: groups[0],
            groups,
        }
    }

    #[test]
    fn by_name_and_by_number_with_all_groups() {
        assert_eq!(User::find_in("www", PASSWD, GROUP), Some(user(33, &[34, 4, 99])));
        assert_eq!(User::find_in("33", PASSWD, GROUP), Some(user(33, &[34, 4, 99])));
        assert_eq!(User::find_in("4000", PASSWD, GROUP), Some(user(4000, &[4000])));
    }

    #[test]
    fn who_is_not_there_is_not_found() {
        for name in ["ww", "", "-1", "broken", "x"] {
            assert_eq!(User::find_in(name, PASSWD, GROUP), None, "{name}");
        }
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_files_are_read(name in fuzz::text_like("33"), passwd in fuzz::text_like(PASSWD), group in fuzz::text_like(GROUP)) {
            let _ = User::find_in(&name, &passwd, &group);
            let _ = User::find_in("www", &passwd, &group);
        }
    }
}
