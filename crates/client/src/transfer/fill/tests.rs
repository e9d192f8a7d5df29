#![allow(clippy::unwrap_used)]

use super::*;

const LENGTH: usize = 3 * CHUNK + 4096;
const VOLUME: usize = 5 * CHUNK;
const NEW: Claim = Claim::New;
const NOTED: Claim = Claim::Noted { still_attached: false };
const ATTACHED: Claim = Claim::Noted { still_attached: true };

struct Bed {
    dir: tempfile::TempDir,
    mark: String,
}

impl Bed {
    /// An image and a volume, which is zero.
    fn new(image: &[u8]) -> Self {
        let bed = Self { dir: tempfile::tempdir().unwrap(), mark: new_mark().unwrap() };
        bed.write("image", image);
        bed.write("volume", &vec![0; VOLUME]);
        bed
    }

    fn write(&self, name: &str, contents: &[u8]) {
        std::fs::write(self.dir.path().join(name), contents).unwrap();
    }

    fn volume(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("volume")).unwrap()
    }

    fn fill(&self, claim: Claim, stop: &Stop) -> Result<Option<u64>> {
        let open = |name: &str, write| Side::open(&self.dir.path().join(name), write).unwrap();
        let (mut source, device) = (open("image", false), open("volume", true));
        let length = source.length().unwrap();
        let mut filling = Filling {
            source: &mut source,
            device: &device,
            length,
            mark: &self.mark,
            is_verified: true,
            stop,
        };
        filling.run(claim)
    }

    /// Ends before the first chunk after the mark.
    fn interrupt(&self, claim: Claim) {
        let stop = Stop::default();
        stop.request();
        assert!(matches!(self.fill(claim, &stop), Err(Failure::Interrupted(_))));
    }

    #[track_caller]
    fn assert_filled_with(&self, image: &[u8]) {
        let volume = self.volume();
        assert!(volume[..image.len()] == *image, "the image");
        assert!(volume[image.len()..].iter().all(|byte| *byte == 0), "what is after the image");
    }
}

fn image(byte: u8) -> Vec<u8> {
    vec![byte; LENGTH]
}

#[test]
fn an_interrupted_import_is_known_again_and_finished() {
    let bed = Bed::new(&image(7));
    bed.interrupt(NEW);
    assert!(bed.volume().starts_with(b"orlop volume import "));
    assert_eq!(bed.fill(NOTED, &Stop::default()).unwrap(), Some(LENGTH as u64));
    bed.assert_filled_with(&image(7));
    // Interrupted after its last write: it is complete, and nothing is written.
    assert_eq!(bed.fill(NOTED, &Stop::default()).unwrap(), Some(0));
}

/// The same name and id, but another volume: it was deleted and made again, and is used.
#[test]
fn a_volume_without_the_mark_is_not_overwritten() {
    let bed = Bed::new(&image(7));
    bed.interrupt(NEW);
    for other in [vec![0; VOLUME], vec![9; VOLUME]] {
        bed.write("volume", &other);
        assert_eq!(bed.fill(NOTED, &Stop::default()).unwrap(), None);
        assert!(bed.volume() == other);
    }
    // Written to within the mark, as mkfs does.
    let mut used = vec![0; VOLUME];
    bed.write("volume", &used);
    bed.interrupt(NEW);
    used = bed.volume();
    used[4096..8192].fill(1);
    bed.write("volume", &used);
    assert_eq!(bed.fill(NOTED, &Stop::default()).unwrap(), None);
    assert_eq!(bed.fill(ATTACHED, &Stop::default()).unwrap(), None);
    assert!(bed.volume() == used);
}

#[test]
fn a_mark_of_another_import_does_not_count() {
    let mut bed = Bed::new(&image(7));
    bed.interrupt(NEW);
    bed.mark = new_mark().unwrap();
    assert_eq!(bed.fill(NOTED, &Stop::default()).unwrap(), None);
    bed.mark = String::new();
    assert_eq!(bed.fill(NOTED, &Stop::default()).unwrap(), None);
}

#[test]
fn one_that_is_attached_since_and_zero_is_filled() {
    let bed = Bed::new(&image(7));
    assert_eq!(bed.fill(ATTACHED, &Stop::default()).unwrap(), Some(LENGTH as u64));
    bed.assert_filled_with(&image(7));
}

/// Where the new image has zeroes or nothing at all, the old one was.
#[test]
fn nothing_is_left_of_an_image_that_was_replaced() {
    let bed = Bed::new(&image(7));
    bed.interrupt(NEW);
    let mut half_way = bed.volume();
    half_way[CHUNK..LENGTH].fill(7);
    for length in [LENGTH, CHUNK + 4096, 4096] {
        bed.write("volume", &half_way);
        let mut replaced = vec![0; length];
        replaced[length - 10..].fill(8);
        bed.write("image", &replaced);
        assert!(bed.fill(NOTED, &Stop::default()).unwrap().is_some());
        bed.assert_filled_with(&replaced);
    }
}

#[test]
fn a_volume_smaller_than_the_mark_is_filled() {
    let bed = Bed::new(&[7; 4096]);
    bed.write("volume", &[0; 8192]);
    assert_eq!(bed.fill(NEW, &Stop::default()).unwrap(), Some(4096));
    bed.assert_filled_with(&[7; 4096]);
}
