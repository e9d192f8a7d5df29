//! What a peer sends before the HTTP library sees it.

use crate::http2::inbound::{Inbound, PREFACE};

/// Frames after the preface. In whatever pieces they come, the same is passed on; until something is
/// rewritten it is what came; and what is passed on has nothing left to be rewritten.
pub fn frames(input: &[u8]) {
    let sent = [PREFACE, input].concat();
    let Some(passed) = pass(&sent, sent.len()) else {
        assert_eq!(pass(&sent, 1), None, "a piece at a time");
        return;
    };
    assert_eq!(pass(&sent, 1).as_ref(), Some(&passed), "a byte at a time");
    assert_eq!(pass(&sent, 7).as_ref(), Some(&passed), "some bytes at a time");
    // Rewritten headers may be left over, but not for the authority: it is accepted by now.
    let mut again = Inbound::default();
    let mut twice = Vec::new();
    if again.take(&passed, &mut twice).is_ok() {
        assert!(passed.starts_with(&twice), "rewritten once more");
    }
}

/// `None`: the connection ends.
fn pass(sent: &[u8], size: usize) -> Option<Vec<u8>> {
    let (mut inbound, mut passed) = (Inbound::default(), Vec::new());
    for piece in sent.chunks(size) {
        inbound.take(piece, &mut passed).ok()?;
        assert!(passed.len() <= 64 * sent.len() + (64 << 10) * (sent.len() / 9 + 1));
    }
    Some(passed)
}
