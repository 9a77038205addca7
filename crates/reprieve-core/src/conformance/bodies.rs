//! Bytes that backends often damage, and bytes that reveal a mixture of two writes.

/// Bodies of every kind that a backend may receive: empty, text, control characters, invalid UTF-8,
/// every byte, and one of `largest` bytes.
pub(super) fn awkward(largest: usize) -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = [
        &b""[..],
        b"\0",
        b" \t\r\n ",
        b"\x01\x02\x1b\x7f",
        b"<QueueMessage>&amp;]]></QueueMessage>",
        b"'; DROP TABLE messages; --",
        b"\xff\xfe\x00 not \xc3\x28 UTF-8",
        b"\xef\xbb\xbfa byte order mark first",
        "żółć 猫 🐈".as_bytes(),
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    bodies.push((0..=u8::MAX).collect());
    // The period of 251, a prime, reveals pieces that are joined in the wrong order.
    bodies.push((0..=250).cycle().take(largest).collect());
    bodies
}

/// Returns `bytes` bytes with the value `mark`.
pub(super) fn uniform(mark: u8, bytes: usize) -> Vec<u8> {
    vec![mark; bytes]
}

/// Returns the mark of a [`uniform`] body; panics if the body is a part of one or a mixture.
#[track_caller]
pub(super) fn mark_of(body: &[u8], bytes: usize) -> u8 {
    assert_eq!(body.len(), bytes, "a reader saw a part of a write");
    let mark = body[0];
    let other = body.iter().position(|&byte| byte != mark);
    assert_eq!(other, None, "a reader saw a mixture of two writes");
    mark
}
