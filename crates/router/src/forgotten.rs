//! Which nodes and pools were forgotten, or have come back, in a file of the run directory, a line for each:
//! `MILLISECONDS forgotten|back POOL NODE` (POOL is `-` for the node itself), and `address ADDRESS NODE` for where
//! a forgotten node was. After a reboot the others know the verdicts still.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use orlop_csi::{Resource, Verdict};

const FORGOTTEN: &str = "forgotten";
const BACK: &str = "back";
const ADDRESS: &str = "address";
const NONE: &str = "-";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Forgotten {
    pub(crate) verdicts: BTreeMap<Resource, Verdict>,
    /// Where forgotten nodes were, as this daemon has seen them.
    pub(crate) addresses: BTreeMap<SocketAddr, String>,
}

pub(crate) fn read(path: &Path) -> Forgotten {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => {
            let path = path.display();
            tracing::error!(%path, %error, "cannot read the list of forgotten nodes");
            String::new()
        }
    };
    Forgotten {
        verdicts: text.lines().filter_map(parse_verdict).collect(),
        addresses: text.lines().filter_map(parse_address).collect(),
    }
}

/// The node comes last: its id may have spaces.
fn parse_verdict(line: &str) -> Option<(Resource, Verdict)> {
    let words: Vec<&str> = line.splitn(4, ' ').collect();
    let [at, verdict, pool, node] = words.as_slice() else { return None };
    let at = at.parse().ok()?;
    let node = (*node).to_owned();
    let resource = match *pool {
        NONE => Resource::Node(node.clone()),
        pool => Resource::Pool(pool.parse().ok()?),
    };
    Some((resource, Verdict { node, forgotten: *verdict == FORGOTTEN, at }))
}

fn parse_address(line: &str) -> Option<(SocketAddr, String)> {
    let (address, node) = line.strip_prefix(ADDRESS)?.trim_start().split_once(' ')?;
    Some((address.parse().ok()?, node.to_owned()))
}

pub(crate) fn write(path: &Path, forgotten: &Forgotten) {
    let verdict = |(resource, verdict): (&Resource, &Verdict)| {
        let word = if verdict.forgotten { FORGOTTEN } else { BACK };
        let pool = match resource {
            Resource::Node(_) => NONE,
            Resource::Pool(pool) => pool.as_str(),
        };
        format!("{} {word} {pool} {}\n", verdict.at, verdict.node)
    };
    let address = |(address, node): (&SocketAddr, &String)| format!("{ADDRESS} {address} {node}\n");
    let lines = forgotten.verdicts.iter().map(verdict);
    let text: String = lines.chain(forgotten.addresses.iter().map(address)).collect();
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
        assert_eq!(read(&path), Forgotten::default());
        let verdict = |node: &str, forgotten, at| Verdict { node: node.to_owned(), forgotten, at };
        let pool = |pool: &str| Resource::Pool(pool.parse().unwrap());
        let forgotten = Forgotten {
            verdicts: BTreeMap::from([
                (Resource::Node("a node".to_owned()), verdict("a node", true, 7)),
                (pool("00c0ffee"), verdict("a node", true, 7)),
                (pool("0badcafe"), verdict("b", false, 8)),
            ]),
            addresses: BTreeMap::from([
                ("10.0.0.1:7420".parse().unwrap(), "a node".to_owned()),
                ("[fe80::1]:7420".parse().unwrap(), "b".to_owned()),
            ]),
        };
        write(&path, &forgotten);
        assert_eq!(read(&path), forgotten);
        std::fs::write(&path, "what\n9 forgotten xyz c\naddress nowhere c\n1 back - d\n").unwrap();
        let read = read(&path);
        assert_eq!(read.verdicts.into_keys().collect::<Vec<_>>(), [Resource::Node("d".to_owned())]);
        assert!(read.addresses.is_empty());
    }
}
