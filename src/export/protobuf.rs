//! Encodes messages of protocol buffers. Fields are written in the order of the calls.

/// A message that is being written.
#[derive(Debug, Default)]
pub struct Message(pub Vec<u8>);

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

impl Message {
    pub fn number(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field << 3 | VARINT));
        self.varint(value);
        self
    }

    pub fn signed(&mut self, field: u32, value: i64) -> &mut Self {
        self.number(field, value.cast_unsigned())
    }

    pub fn fixed(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field << 3 | FIXED64));
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn bytes(&mut self, field: u32, value: &[u8]) -> &mut Self {
        self.varint(u64::from(field << 3 | BYTES));
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    pub fn text(&mut self, field: u32, value: &str) -> &mut Self {
        self.bytes(field, value.as_bytes())
    }

    pub fn message(&mut self, field: u32, value: &Self) -> &mut Self {
        self.bytes(field, &value.0)
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the specification of the encoding.
    #[test]
    fn the_specifications_examples() {
        let mut message = Message::default();
        message.number(1, 150);
        assert_eq!(message.0, [0x08, 0x96, 0x01]);
        let mut message = Message::default();
        message.text(2, "testing");
        assert_eq!(message.0, b"\x12\x07testing");
        let mut outer = Message::default();
        let mut inner = Message::default();
        outer.message(3, inner.number(1, 150));
        assert_eq!(outer.0, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut message = Message::default();
        message.signed(1, -2);
        assert_eq!(message.0, [8, 0xfe, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
        let mut message = Message::default();
        message.fixed(1, 1);
        assert_eq!(message.0, [9, 1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
