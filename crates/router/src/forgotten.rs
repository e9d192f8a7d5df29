//! Which nodes were forgotten, or have come back, in a file of the run directory, a line for each:
//! `NODE MILLISECONDS forgotten|back POOL,POOL`. After a reboot the others know it still.

use std::collections::BTreeMap;
use std::path::Path;

use orlop_csi::Verdict;

const FORGOTTEN: &str = "forgotten";
const BACK: &str = "back";

pub(crate) fn read(path: &Path) -> BTreeMap<String, Verdict> {
    match std::fs::read_to_string(path) {
        Ok(text) => text.lines().filter_map(parse).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => {
            let path = path.display();
            tracing::error!(%path, %error, "cannot read the list of forgotten nodes");
            BTreeMap::new()
        }
    }
}

fn parse(line: &str) -> Option<(String, Verdict)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [node, at, verdict, pools] = words.as_slice() else { return None };
    let pools = pools.split(',').filter(|pool| !pool.is_empty());
    let pools = pools.map(|pool| pool.parse()).collect::<Result<_, _>>().ok()?;
    let verdict = Verdict { pools, forgotten: *verdict == FORGOTTEN, at: at.parse().ok()? };
    Some(((*node).to_owned(), verdict))
}

pub(crate) fn write(path: &Path, verdicts: &BTreeMap<String, Verdict>) {
    let line = |(node, verdict): (&String, &Verdict)| {
        let pools: Vec<String> = verdict.pools.iter().map(ToString::to_string).collect();
        let word = if verdict.forgotten { FORGOTTEN } else { BACK };
        format!("{node} {} {word} {}\n", verdict.at, pools.join(","))
    };
    let text: String = verdicts.iter().map(line).collect();
    let draft = path.with_extension("new");
    let written = path
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(&draft, text))
        .and_then(|()| std::fs::rename(&draft, path));
    if let Err(error) = written {
        let path = path.display();
        tracing::error!(%path, %error, "cannot save the list of forgotten nodes");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn verdicts_are_read_as_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/forgotten-nodes");
        assert_eq!(read(&path), BTreeMap::new());
        let pools = ["00c0ffee".parse().unwrap(), "0badcafe".parse().unwrap()].into();
        let verdicts = BTreeMap::from([
            ("a".to_owned(), Verdict { pools, forgotten: true, at: 7 }),
            ("b".to_owned(), Verdict { pools: [].into(), forgotten: false, at: 8 }),
        ]);
        write(&path, &verdicts);
        assert_eq!(read(&path), verdicts);
        std::fs::write(&path, "what\nc 9 forgotten xyz\nd 1 back \n").unwrap();
        assert_eq!(read(&path).into_keys().collect::<Vec<_>>(), ["d"]);
    }
}
