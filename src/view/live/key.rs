//! Keys, decoded from what a terminal in raw mode sends.

/// What was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Up,
    Down,
    Left,
    Right,
    ShiftLeft,
    ShiftRight,
    Home,
    End,
    PageUp,
    PageDown,
    Tab,
    BackTab,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
    /// Ctrl-L.
    Redraw,
}

/// A sequence that is longer is not one of a key.
const LONGEST: usize = 16;

/// Puts bytes together to keys.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The beginning of a key.
    pending: Vec<u8>,
}

impl Decoder {
    /// Adds bytes, and returns the keys that are complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        while let Some((length, key)) = first(&self.pending) {
            self.pending.drain(..length);
            keys.extend(key);
        }
        keys
    }

    /// Whether the bytes so far may be the beginning of a longer key.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Nothing followed: an ESC that begins no sequence is the key Esc.
    pub fn flush(&mut self) -> Vec<Key> {
        let is_escape = self.pending == [ESCAPE];
        self.pending.clear();
        if is_escape { vec![Key::Escape] } else { Vec::new() }
    }
}

const ESCAPE: u8 = 0x1b;

/// The length of the first sequence, and its key if it has one; `None`: it is incomplete.
fn first(bytes: &[u8]) -> Option<(usize, Option<Key>)> {
    let byte = *bytes.first()?;
    let key = match byte {
        ESCAPE => return escaped(bytes),
        b'\r' | b'\n' => Some(Key::Enter),
        b'\t' => Some(Key::Tab),
        0x7f | 0x08 => Some(Key::Backspace),
        0x03 => Some(Key::Interrupt),
        0x1a => Some(Key::Suspend),
        0x0c => Some(Key::Redraw),
        0x20..0x7f => Some(Key::Char(byte.into())),
        0x80.. => return utf8(bytes),
        _ => None,
    };
    Some((1, key))
}

/// A character of several bytes.
fn utf8(bytes: &[u8]) -> Option<(usize, Option<Key>)> {
    let length = match bytes[0] {
        0xc2..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf5 => 4,
        _ => return Some((1, None)),
    };
    let Some(part) = bytes.get(..length) else {
        let is_continued = bytes[1..].iter().all(|byte| (0x80..0xc0).contains(byte));
        return if is_continued { None } else { Some((1, None)) };
    };
    match std::str::from_utf8(part).ok().and_then(|text| text.chars().next()) {
        Some(c) => Some((length, Some(Key::Char(c)))),
        None => Some((1, None)),
    }
}

/// A sequence that begins with ESC: CSI (`ESC [`) or SS3 (`ESC O`), as xterm and the Linux console send them.
fn escaped(bytes: &[u8]) -> Option<(usize, Option<Key>)> {
    match *bytes.get(1)? {
        b'[' => {}
        b'O' => {
            let last = *bytes.get(2)?;
            return Some((3, cursor(last, false)));
        }
        // ESC and another key: both were pressed, or the latter with Alt.
        _ => return Some((1, Some(Key::Escape))),
    }
    // The Linux console sends F1 to F5 as `ESC [ [ A`.
    if bytes.get(2) == Some(&b'[') {
        return bytes.get(3).map(|_| (4, None));
    }
    let Some(end) = bytes[2..].iter().position(|byte| (0x40..0x7f).contains(byte)) else {
        return (bytes.len() > LONGEST).then_some((bytes.len(), None));
    };
    let parameters = &bytes[2..2 + end];
    let is_shifted = parameters.ends_with(b";2");
    let number = parameters.split(|byte| *byte == b';').next().unwrap_or_default();
    let key = match (bytes[2 + end], number) {
        (b'~', b"1" | b"7") => Some(Key::Home),
        (b'~', b"4" | b"8") => Some(Key::End),
        (b'~', b"5") => Some(Key::PageUp),
        (b'~', b"6") => Some(Key::PageDown),
        (b'Z', _) => Some(Key::BackTab),
        (last, _) => cursor(last, is_shifted),
    };
    Some((3 + end, key))
}

fn cursor(last: u8, is_shifted: bool) -> Option<Key> {
    Some(match (last, is_shifted) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', false) => Key::Right,
        (b'C', true) => Key::ShiftRight,
        (b'D', false) => Key::Left,
        (b'D', true) => Key::ShiftLeft,
        (b'H', _) => Key::Home,
        (b'F', _) => Key::End,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        Decoder::default().push(bytes)
    }

    #[test]
    fn keys_of_xterm_and_of_the_console() {
        assert_eq!(
            keys(b"q\x1b[A\x1bOB\x1b[1;2C\x1b[D\x1b[1~\x1b[8~\x1b[5~\x1b[Z\t\r\x7f\x03\x1a\x0c"),
            [
                Key::Char('q'),
                Key::Up,
                Key::Down,
                Key::ShiftRight,
                Key::Left,
                Key::Home,
                Key::End,
                Key::PageUp,
                Key::BackTab,
                Key::Tab,
                Key::Enter,
                Key::Backspace,
                Key::Interrupt,
                Key::Suspend,
                Key::Redraw
            ]
        );
        assert_eq!(keys("ä日".as_bytes()), [Key::Char('ä'), Key::Char('日')]);
        // Keys without a meaning here.
        assert_eq!(keys(b"\x1b[15~\x1b[[A\x1b[?1;2c\x01x"), [Key::Char('x')]);
    }

    #[test]
    fn a_key_may_arrive_in_pieces() {
        let mut decoder = Decoder::default();
        for byte in b"\x1b[1;2" {
            assert_eq!(decoder.push(&[*byte]), []);
            assert!(decoder.is_waiting());
        }
        assert_eq!(decoder.push(b"D"), [Key::ShiftLeft]);
        assert!(!decoder.is_waiting());
        assert_eq!(decoder.push(&"ä".as_bytes()[..1]), []);
        assert_eq!(decoder.push(&"ä".as_bytes()[1..]), [Key::Char('ä')]);
    }

    #[test]
    fn a_lone_escape_is_a_key_when_nothing_follows() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.push(b"\x1b"), []);
        assert_eq!(decoder.flush(), [Key::Escape]);
        assert_eq!(decoder.push(b"\x1bx"), [Key::Escape, Key::Char('x')]);
        assert_eq!(decoder.push(b"\x1b["), []);
        assert_eq!(decoder.flush(), []);
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_bytes_are_keys_or_skipped(bytes in fuzz::bytes_like(b"\x1b[1;2Cq\x1bOA\xc3\xa4")) {
            let mut decoder = Decoder::default();
            for byte in &bytes {
                let keys = decoder.push(&[*byte]);
                prop_assert!(keys.len() <= 2 + LONGEST);
                prop_assert!(decoder.pending.len() <= LONGEST + 1);
            }
            decoder.flush();
            prop_assert!(!decoder.is_waiting());
        }
    }
}
