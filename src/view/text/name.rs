//! Shortens names to the available room.

/// A name in at most `room` columns. A path keeps its first directory and its end: `/srv/…/base/16384/2619`. Other
/// names keep their start and end.
pub fn shortened(name: &str, room: usize) -> String {
    let length = name.chars().count();
    if length <= room {
        return name.to_owned();
    }
    if let Some(path) = shortened_path(name, room) {
        return path;
    }
    let kept = room.saturating_sub(1);
    let start = if name.starts_with(['/', '…']) { 0 } else { kept / 2 };
    let start: String = name.chars().take(start).collect();
    let end = end_of(name, kept - start.chars().count());
    format!("{start}…{end}")
}

/// Keeps whole directories, if the last component and something before it fit.
fn shortened_path(name: &str, room: usize) -> Option<String> {
    let slashes = || name.char_indices().filter(|(_, c)| *c == '/').map(|(at, _)| at);
    let first = &name[..slashes().find(|at| *at > 0)?];
    // A path that was shortened before begins with `…`.
    let first = if first == "…" {
        String::from("…")
    } else {
        format!("{first}/…")
    };
    let left = room.checked_sub(first.chars().count())?;
    let mut ends = slashes().filter(|at| *at > 0).map(|at| &name[at..]);
    if let Some(end) = ends.find(|end| end.chars().count() <= left) {
        return Some(format!("{first}{end}"));
    }
    // A last component that is too long keeps its end, if most of the room is left for it.
    (left > room / 2).then(|| format!("{first}{}", end_of(name, left)))
}

/// The beginning of a text, in at most `room` columns: `'sh -c while true; …`
pub fn beginning(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// The last characters of a name.
fn end_of(name: &str, room: usize) -> String {
    let length = name.chars().count();
    name.chars().skip(length.saturating_sub(room)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    #[test]
    fn the_first_directory_and_the_end_of_a_path_are_kept() {
        let path = "/srv/postgresql/17/main/base/16384/2619";
        assert_eq!(shortened(path, 39), path);
        assert_eq!(shortened(path, 38), "/srv/…/17/main/base/16384/2619");
        assert_eq!(shortened(path, 22), "/srv/…/base/16384/2619");
        assert_eq!(shortened(path, 21), "/srv/…/16384/2619");
        assert_eq!(shortened(path, 11), "/srv/…/2619");
        assert_eq!(shortened(path, 10), "…6384/2619");
        assert_eq!(
            shortened("…/somewhere/below/segment-000001.log", 30),
            "…/below/segment-000001.log"
        );
        assert_eq!(
            shortened("/srv/a-name-that-is-longer-than-its-column", 20),
            "/srv/…han-its-column"
        );
        assert_eq!(shortened("/a-directory-of-a-long-name/b", 12), "…long-name/b");
        assert_eq!(shortened("/ä/ö/ü/ß", 6), "/ä/…/ß");
    }

    #[test]
    fn the_start_and_the_end_of_other_names_are_kept() {
        assert_eq!(shortened("postgres 4711", 13), "postgres 4711");
        assert_eq!(
            shortened("kworker/u8:4-events_unbound 30005", 20),
            "kworker/…bound 30005"
        );
        assert_eq!(shortened("others (over 57 files)", 15), "others … files)");
        assert_eq!(shortened("abc", 1), "…");
    }

    #[test]
    fn a_beginning_says_that_it_is_one() {
        assert_eq!(beginning("'sh -c true'", 12), "'sh -c true'");
        assert_eq!(beginning("'sh -c true'", 11), "'sh -c tru…");
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn no_name_is_wider_than_its_room(name in fuzz::text_like("/var/…/ä b/c"), room in 1_usize..50) {
            let shortened = shortened(&name, room);
            prop_assert!(shortened.chars().count() <= room, "{:?}", shortened);
            prop_assert!(name.chars().count() > room || shortened == name);
        }
    }
}
