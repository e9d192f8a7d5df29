//! Mount options of callers may hold secrets (GEN-38), and the kernel quotes those it dislikes.

const HIDDEN: &str = "[mount option]";

/// The kernel's words without the names and values of a caller's options.
pub(crate) fn without_options(text: &str, options: &[String]) -> String {
    let mut hidden: Vec<&str> = options
        .iter()
        .flat_map(|option| option.split('=').chain([option.as_str()]))
        .filter(|part| !part.is_empty())
        .collect();
    // A whole option goes before its parts, a long value before a short one that it contains.
    hidden.sort_by_key(|part| std::cmp::Reverse(part.len()));
    let mut clean = text.to_owned();
    for part in hidden {
        clean = without_word(&clean, part);
    }
    clean
}

/// Only whole words, so that an option `ro` does not eat holes into "error".
fn without_word(text: &str, word: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = None;
    while let Some(start) = rest.find(word) {
        let (skipped, found) = rest.split_at(start);
        let after = &found[word.len()..];
        let previous = skipped.chars().next_back().or(before);
        let is_whole = !previous.is_some_and(char::is_alphanumeric)
            && !after.chars().next().is_some_and(char::is_alphanumeric);
        clean.push_str(skipped);
        clean.push_str(if is_whole { HIDDEN } else { word });
        before = word.chars().next_back();
        rest = after;
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str, options: &[&str]) -> String {
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        without_options(text, &options)
    }

    #[test]
    fn option_names_and_values_are_redacted() {
        assert_eq!(
            clean(
                "ext4: Unknown parameter 'password'; hunter2 is bad, so is password=hunter2",
                &["noatime", "password=hunter2"]
            ),
            "ext4: Unknown parameter '[mount option]'; [mount option] is bad, so is [mount option]"
        );
    }

    #[test]
    fn reason_remains_readable() {
        let text = "Structure needs cleaning (os error 117): bad superblock";
        assert_eq!(clean(text, &["ro", "sb=8", "noatime", "="]), text);
        assert_eq!(clean("rorro ro", &["ro"]), "rorro [mount option]");
    }
}
