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
