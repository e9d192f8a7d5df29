//! Texts of bounded length.

/// At most `longest` bytes, cut between characters and marked where it was cut.
pub(crate) fn shortened(text: &str, longest: usize) -> String {
    const CUT: &str = "…";
    if text.len() <= longest {
        return text.to_owned();
    }
    let room = longest.saturating_sub(CUT.len());
    let mut kept = text.chars();
    while kept.as_str().len() > room {
        kept.next_back();
    }
    format!("{}{CUT}", kept.as_str())
}
