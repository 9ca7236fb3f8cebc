//! A checksum of a JSON file in the file itself, as its last member.

/// What precedes the checksum.
const MEMBER: &[u8] = b",\n  \"crc32c\": ";
const END: &[u8] = b"\n}\n";

/// Adds the CRC-32C of a pretty-printed object that is not empty, up to its last member.
pub fn seal(mut text: Vec<u8>) -> Vec<u8> {
    let length = text.trim_ascii_end().strip_suffix(b"\n}").map(<[u8]>::len);
    let Some(length) = length else { return text };
    text.truncate(length);
    let crc = crc32c::crc32c(&text);
    text.extend([MEMBER, crc.to_string().as_bytes(), END].concat());
    text
}

/// Whether a text is what was sealed. `None`: it has no checksum, as those of earlier versions.
pub fn is_intact(text: &[u8]) -> Option<bool> {
    let at = text.windows(MEMBER.len()).rposition(|window| window == MEMBER)?;
    let (sealed, rest) = text.split_at(at);
    let number = rest.strip_prefix(MEMBER)?.strip_suffix(END);
    let number = number.and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
    Some(number == Some(crc32c::crc32c(sealed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flipped_bit_of_what_was_sealed_is_found() {
        let text = serde_json::to_vec_pretty(&serde_json::json!({"a": 1, "b": {"crc32c": 5}})).unwrap();
        let sealed = seal(text.clone());
        assert_eq!((is_intact(&sealed), is_intact(&text)), (Some(true), None));
        let value: serde_json::Value = serde_json::from_slice(&sealed).unwrap();
        assert_eq!(value["b"]["crc32c"], 5);
        let end = sealed.len() - END.len();
        for byte in 0..end {
            for bit in 0..8 {
                let mut damaged = sealed.clone();
                damaged[byte] ^= 1 << bit;
                // In the name of the checksum, it is missing; nothing else has changed.
                let is_found = is_intact(&damaged) == Some(false);
                let is_in_name = (text.len() - 2..text.len() - 2 + MEMBER.len()).contains(&byte);
                assert!(is_found || is_in_name, "{byte} {bit}");
            }
        }
    }
}
