//! mount(8) has one list of options; the kernel takes some as attributes of the mount and all
//! others as parameters of the filesystem.

use rustix::mount::MountAttrFlags as Attributes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FsOption {
    Flag(String),
    Value(String, String),
}

#[derive(Debug)]
pub(crate) struct MountOptions {
    pub(crate) attributes: Attributes,
    pub(crate) filesystem: Vec<FsOption>,
}

impl MountOptions {
    /// Where options contradict each other the last one counts, except that `read_only` cannot be
    /// taken back.
    pub(crate) fn parse(options: &[String], read_only: bool) -> Self {
        let mut parsed = Self { attributes: Attributes::empty(), filesystem: Vec::new() };
        // Each entry is one option: a comma may be part of a value (an SELinux category list),
        // and what was vetted as one must not become two.
        for word in
            options.iter().map(|option| option.trim()).filter(|word| !is_for_mount_program(word))
        {
            if !parsed.take_attribute(word) {
                parsed.filesystem.push(match word.split_once('=') {
                    Some((key, value)) => {
                        FsOption::Value(key.to_owned(), value.trim_matches('"').to_owned())
                    }
                    None => FsOption::Flag(word.to_owned()),
                });
            }
        }
        if read_only {
            parsed.attributes |= Attributes::MOUNT_ATTR_RDONLY;
        }
        // Both the mount and the filesystem: without the latter, mounting would write (replay a
        // journal, count the mount), which a read-only device cannot take.
        if parsed.attributes.contains(Attributes::MOUNT_ATTR_RDONLY) {
            parsed.filesystem.push(FsOption::Flag("ro".to_owned()));
        }
        parsed
    }

    /// False if the word is for the filesystem. `sync`, `dirsync`, `lazytime` and their opposites
    /// are: the kernel keeps them with the superblock.
    fn take_attribute(&mut self, word: &str) -> bool {
        let flags = &mut self.attributes;
        match word {
            "ro" => flags.insert(Attributes::MOUNT_ATTR_RDONLY),
            "rw" => flags.remove(Attributes::MOUNT_ATTR_RDONLY),
            "nosuid" => flags.insert(Attributes::MOUNT_ATTR_NOSUID),
            "suid" => flags.remove(Attributes::MOUNT_ATTR_NOSUID),
            "nodev" => flags.insert(Attributes::MOUNT_ATTR_NODEV),
            "dev" => flags.remove(Attributes::MOUNT_ATTR_NODEV),
            "noexec" => flags.insert(Attributes::MOUNT_ATTR_NOEXEC),
            "exec" => flags.remove(Attributes::MOUNT_ATTR_NOEXEC),
            "nosymfollow" => flags.insert(Attributes::MOUNT_ATTR_NOSYMFOLLOW),
            "symfollow" => flags.remove(Attributes::MOUNT_ATTR_NOSYMFOLLOW),
            "nodiratime" => flags.insert(Attributes::MOUNT_ATTR_NODIRATIME),
            "diratime" => flags.remove(Attributes::MOUNT_ATTR_NODIRATIME),
            "noatime" => set_atime(flags, Attributes::MOUNT_ATTR_NOATIME),
            "strictatime" => set_atime(flags, Attributes::MOUNT_ATTR_STRICTATIME),
            "relatime" | "atime" | "nostrictatime" => {
                set_atime(flags, Attributes::MOUNT_ATTR_RELATIME);
            }
            // As opposed to relatime; the kernel has no fourth way.
            "norelatime" => set_atime(flags, Attributes::MOUNT_ATTR_STRICTATIME),
            _ => return false,
        }
        true
    }
}

/// A field of the flags, not a bit: one of three values.
fn set_atime(flags: &mut Attributes, value: Attributes) {
    flags.remove(Attributes::MOUNT_ATTR__ATIME);
    flags.insert(value);
}

/// Words that mount(8) acts on itself; no filesystem knows them.
fn is_for_mount_program(word: &str) -> bool {
    matches!(word, "" | "defaults" | "auto" | "noauto" | "nofail" | "_netdev")
        || word.starts_with("x-")
}

#[cfg(test)]
mod tests;
