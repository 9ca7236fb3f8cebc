//! Strings written by the kernel side.

/// Converts bytes; invalid UTF-8 is replaced.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A thread's name, as recorded by the programs.
pub fn comm(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    text(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
}

/// Whether a recorded name is this one.
pub fn is_comm(name: &str, words: [u64; 2]) -> bool {
    let mut recorded = words.into_iter().flat_map(u64::to_ne_bytes);
    let is_begun = name.bytes().all(|byte| recorded.next() == Some(byte));
    is_begun && recorded.next().is_none_or(|byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_precedes_the_first_zero() {
        let words = |name: &[u8; 16]| {
            let [first, second] = [&name[..8], &name[8..]].map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
            [first, second]
        };
        let known = words(b"postgres\0 before");
        assert_eq!(comm(&known), "postgres");
        assert!(is_comm("postgres", known));
        for other in ["", "postgre", "postgres ", "postgres\0"] {
            assert!(!is_comm(other, known), "{other:?}");
        }
        assert!(is_comm("", [0, 7]) && is_comm("0123456789abcdef", words(b"0123456789abcdef")));
    }
}
