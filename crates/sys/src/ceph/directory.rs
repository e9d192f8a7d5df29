//! What can be known of images without opening them.
//!
//! Opening costs several round trips and, for writing, shows up as a watcher. These are the same
//! methods of the object class `rbd` that librbd and the kernel's client call.

use rustix::io::Errno;

use super::handle::CephCall;
use super::objects::IoCtx;
use crate::error::Result;

const DIRECTORY: &str = "rbd_directory";
const METADATA_PREFIX: &str = "metadata_";
const PAGE: u64 = 1000;
/// `CEPH_NOSNAP`: the image as it is now.
const NO_SNAPSHOT: u64 = u64::MAX - 1;

impl IoCtx {
    /// The image's own id, which no other image had or will have; `None`: there is no such name.
    pub fn image_id(&self, name: &str) -> Result<Option<String>> {
        let object = format!("rbd_id.{name}");
        let answer = match self.execute(&object, ("rbd", "get_id"), &[]) {
            Err(error) if error.is_not_found() => return Ok(None),
            answer => answer?,
        };
        let text = CephDecoder::new(&answer).text();
        Ok(Some(self.understood(&object, text)?))
    }

    /// The id that the directory has for a name. librbd makes this entry before it makes what
    /// [`IoCtx::image_id`] asks, so a maker that was killed may leave only this.
    pub fn directory_entry(&self, name: &str) -> Result<Option<String>> {
        let answer = match self.execute(DIRECTORY, ("rbd", "dir_get_id"), &encoded(name)) {
            Err(error) if error.is_not_found() => return Ok(None),
            answer => answer?,
        };
        let text = CephDecoder::new(&answer).text();
        Ok(Some(self.understood(DIRECTORY, text)?))
    }

    /// `false`: the directory has another image under that name.
    pub fn ensure_directory_entry(&self, name: &str, id: &str) -> Result<bool> {
        match self.execute(DIRECTORY, ("rbd", "dir_add_image"), &entry(name, id)) {
            Ok(_) => Ok(true),
            Err(error) if error.is_taken() || error.errno() == Some(Errno::BADF) => {
                Ok(self.directory_entry(name)?.as_deref() == Some(id))
            }
            Err(error) => Err(error),
        }
    }

    /// For a name that is in the directory, but by which no image can be opened: a maker that loses
    /// its race removes the object of the winner, as librbd goes by the name alone there.
    pub fn ensure_id_object(&self, name: &str, id: &str) -> Result<()> {
        match self.create(&format!("rbd_id.{name}"), &encoded(id)) {
            Err(error) if error.is_taken() => Ok(()),
            done => done,
        }
    }

    /// `None`: no image of that id has a name; it is in the trash, or is none.
    pub fn image_name(&self, id: &str) -> Result<Option<String>> {
        let answer = match self.execute(DIRECTORY, ("rbd", "dir_get_name"), &encoded(id)) {
            Err(error) if error.is_not_found() => return Ok(None),
            answer => answer?,
        };
        let text = CephDecoder::new(&answer).text();
        Ok(Some(self.understood(DIRECTORY, text)?))
    }

    /// Can there be images? A namespace has a directory from when it was made; a pool without one
    /// gets it with its first image.
    pub fn has_directory(&self) -> Result<bool> {
        match self.execute(DIRECTORY, ("rbd", "dir_list"), &listing("", 1)) {
            Err(error) if error.is_not_found() => Ok(false),
            listed => listed.map(|_| true),
        }
    }

    /// Does any image have a name?
    pub fn has_images(&self) -> Result<bool> {
        Ok(!self.directory_page("", 1)?.is_empty())
    }

    /// Names that begin with `prefix` and the images' ids, in the order of names, after `after`, at
    /// most `limit` (0: all).
    pub fn image_names(
        &self,
        after: &str,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        let mut after = after.max(prefix).to_owned();
        loop {
            let page = self.directory_page(&after, PAGE)?;
            let Some((last, _)) = page.last() else { return Ok(found) };
            last.clone_into(&mut after);
            for (name, id) in page {
                if !name.starts_with(prefix) || (limit > 0 && found.len() == limit) {
                    return Ok(found);
                }
                found.push((name, id));
            }
        }
    }

    fn directory_page(&self, after: &str, limit: u64) -> Result<Vec<(String, String)>> {
        let answer = match self.execute(DIRECTORY, ("rbd", "dir_list"), &listing(after, limit)) {
            // No image was ever made.
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            answer => answer?,
        };
        self.understood(DIRECTORY, CephDecoder::new(&answer).pairs())
    }

    /// `None`: it was never set, or the image is gone.
    pub fn image_metadata(&self, image_id: &str, key: &str) -> Result<Option<Vec<u8>>> {
        let object = header_of(image_id);
        let answer = match self.execute(&object, ("rbd", "metadata_get"), &encoded(key)) {
            Err(error) if error.is_not_found() => return Ok(None),
            answer => answer?,
        };
        let value = CephDecoder::new(&answer).bytes().map(<[u8]>::to_vec);
        Ok(Some(self.understood(&object, value)?))
    }

    /// Was it prepared as the target of a migration that is not committed yet?
    pub fn is_migrating(&self, image_id: &str) -> Result<bool> {
        Ok(self.omap_get(&header_of(image_id), "migration")?.is_some())
    }

    /// Was there an image of this id whose header is lost? librbd makes the header before anything of
    /// this, and removes it after. Its data may begin elsewhere; but where there is a filesystem or a
    /// partition table, there is a first object.
    pub fn is_header_lost(&self, image_id: &str) -> Result<bool> {
        let later =
            [format!("rbd_object_map.{image_id}"), format!("rbd_data.{image_id}.{:016x}", 0)];
        if self.exists(&header_of(image_id))? {
            return Ok(false);
        }
        Ok(self.exists(&later[0])? || self.exists(&later[1])?)
    }

    /// As the cluster has it. A client that has the image open may not have heard of it yet.
    pub fn image_size(&self, image_id: &str) -> Result<u64> {
        let object = header_of(image_id);
        let answer = self.execute(&object, ("rbd", "get_size"), &NO_SNAPSHOT.to_le_bytes())?;
        // The order of its objects comes first, in one byte.
        let size = answer.split_first().and_then(|(_, rest)| rest.first_chunk());
        Ok(u64::from_le_bytes(*self.understood(&object, size)?))
    }

    /// Takes a name from an image, so that another can have it, and from no other image. A client
    /// that is making it just now ends with an image that has no name.
    pub fn ensure_unnamed(&self, name: &str, id: &str) -> Result<()> {
        match self.execute(DIRECTORY, ("rbd", "dir_remove_image"), &entry(name, id)) {
            Err(error) if error.is_not_found() || error.errno() == Some(Errno::STALE) => {}
            done => drop(done?),
        }
        self.try_remove(&format!("rbd_id.{name}"), &encoded(id)).map(drop)
    }

    fn understood<T>(&self, object: &str, decoded: Option<T>) -> Result<T> {
        let subject = self.subject(object);
        let asking = CephCall { operation: "query", subject: &subject };
        decoded.ok_or_else(|| asking.refused("the reply is malformed"))
    }
}

fn listing(after: &str, limit: u64) -> Vec<u8> {
    let mut input = encoded(after);
    input.extend_from_slice(&limit.to_le_bytes());
    input
}

fn entry(name: &str, id: &str) -> Vec<u8> {
    let mut input = encoded(name);
    encode(&mut input, id.as_bytes());
    input
}

/// The object that has an image's metadata among its keys; for [`IoCtx::update`].
pub fn header_of(image_id: &str) -> String {
    format!("rbd_header.{image_id}")
}

/// The key of a value of the metadata in that object.
pub fn metadata_key(key: &str) -> String {
    format!("{METADATA_PREFIX}{key}")
}

pub(super) fn encoded(text: &str) -> Vec<u8> {
    let mut input = Vec::new();
    encode(&mut input, text.as_bytes());
    input
}

pub(crate) fn encode(into: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    into.extend_from_slice(&length.to_le_bytes());
    into.extend_from_slice(bytes);
}

/// Ceph's encoding: little endian, and lengths before contents. `None`: it ends too early.
pub(crate) struct CephDecoder<'a> {
    rest: &'a [u8],
}

impl<'a> CephDecoder<'a> {
    pub(crate) fn new(answer: &'a [u8]) -> Self {
        Self { rest: answer }
    }

    fn length(&mut self) -> Option<usize> {
        let (length, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        usize::try_from(u32::from_le_bytes(*length)).ok()
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    pub(crate) fn pairs(&mut self) -> Option<Vec<(String, String)>> {
        let count = self.length()?;
        (0..count).map(|_| Some((self.text()?, self.text()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_input_is_rejected() {
        let mut whole = 1_u32.to_le_bytes().to_vec();
        encode(&mut whole, b"name");
        encode(&mut whole, b"id");
        let pairs = CephDecoder::new(&whole).pairs();
        assert_eq!(pairs, Some(vec![("name".to_owned(), "id".to_owned())]));
        for length in 0..whole.len() {
            assert_eq!(CephDecoder::new(&whole[..length]).pairs(), None, "{length} bytes");
        }
    }
}
