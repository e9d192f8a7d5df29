//! The reference, as far as nodes are concerned.

use crate::reference::{Answer, Content, MAX_VOLUMES, OnNode, Outcome, Reference, grants};
use crate::step::{Name, Shape, Step};

impl Reference {
    pub(crate) fn follow_on_node(&mut self, step: &Step) -> Outcome {
        match *step {
            Step::Attach { volume, node, shape, read_only } => {
                self.attach(volume, node, shape, read_only)
            }
            Step::Detach { volume, node } => {
                if let Some(volume) = self.state.volumes.get_mut(&volume) {
                    volume.attached.retain(|other, _| node.is_some_and(|node| node != *other));
                }
                Ok(Answer::Done)
            }
            Step::Stage { volume, shape, path } => self.stage(volume, shape, path),
            Step::Unstage { volume, path } => self.unstage(volume, path),
            Step::Publish { volume, shape, staging, target, read_only } => {
                self.publish(volume, shape, staging, (target, read_only))
            }
            Step::Unpublish { volume, target } => self.unpublish(volume, target),
            Step::Stats { volume, path } => self.stats(volume, path),
            Step::Write { volume, what } => self.write(volume, what),
            Step::Reboot => {
                self.state.here.clear();
                self.mounted.clear();
                Ok(Answer::Done)
            }
            _ => Ok(Answer::Done),
        }
    }

    fn here(&mut self, volume: Name) -> &mut OnNode {
        self.state.here.entry(volume).or_default()
    }

    fn attach(&mut self, name: Name, node: Name, shape: Shape, read_only: bool) -> Outcome {
        let there = |volume: &&crate::reference::Volume| volume.attached.contains_key(&node);
        let load = self.state.volumes.values().filter(there).count();
        let volume = self.volume(name)?;
        if !grants(volume.shape, shape) {
            return Err("precondition");
        }
        if let Some(known) = volume.attached.get(&node) {
            return if *known == (shape, read_only) { Ok(Answer::Done) } else { Err("conflict") };
        }
        let mut others = volume.attached.values();
        if others.any(|(other, _)| *other != Shape::Read || shape != Shape::Read) {
            return Err("precondition");
        }
        if u32::try_from(load).is_ok_and(|load| load >= MAX_VOLUMES) {
            return Err("exhausted");
        }
        volume.attached.insert(node, (shape, read_only));
        Ok(Answer::Done)
    }

    fn stage(&mut self, name: Name, shape: Shape, path: Name) -> Outcome {
        let volume = self.volume(name)?;
        if !grants(volume.shape, shape) {
            return Err("precondition");
        }
        let reads = shape == Shape::Read;
        if let Some((known, known_reads)) = self.here(name).stage {
            return match () {
                () if known != path => Err("precondition"),
                () if known_reads != reads => Err("conflict"),
                () => Ok(Answer::Done),
            };
        }
        let volume = self.volume(name)?;
        if shape == Shape::Block {
            // Its workload may write over a filesystem that was copied.
            volume.content = Content::Raw;
        } else {
            if volume.content == Content::Raw {
                return Err("precondition");
            }
            // Made before it is mounted, so it stays if the path is taken.
            volume.content = Content::Filesystem;
            if self.mounted.contains_key(&path) {
                return Err("precondition");
            }
            self.mounted.insert(path, name);
        }
        self.here(name).stage = Some((path, reads));
        Ok(Answer::Done)
    }

    fn unstage(&mut self, name: Name, path: Name) -> Outcome {
        let stage = self.here(name).stage;
        match stage {
            Some((known, _)) if known == path => {
                if !self.here(name).targets.is_empty() {
                    return Err("precondition");
                }
                if self.mounted.get(&path) == Some(&name) {
                    self.mounted.remove(&path);
                }
                self.here(name).stage = None;
                Ok(Answer::Done)
            }
            // It is published there.
            Some(_) if self.mounted.get(&path) == Some(&name) => Err("precondition"),
            Some(_) => Ok(Answer::Done),
            None => self.vacant(name, path),
        }
    }

    /// Fine if nothing is there.
    fn vacant(&mut self, name: Name, path: Name) -> Outcome {
        if !self.mounted.contains_key(&path) {
            return Ok(Answer::Done);
        }
        self.volume(name)?;
        Err("precondition")
    }

    fn publish(
        &mut self,
        name: Name,
        shape: Shape,
        staging: Name,
        (target, read_only): (Name, bool),
    ) -> Outcome {
        if !grants(self.volume(name)?.shape, shape) {
            return Err("precondition");
        }
        let here = self.here(name).clone();
        if here.stage.is_none_or(|(path, _)| path != staging) {
            return Err("precondition");
        }
        if let Some(known) = here.targets.get(&target) {
            return if *known == (shape, read_only) { Ok(Answer::Done) } else { Err("conflict") };
        }
        let may_be_second = matches!(shape, Shape::Shared | Shape::Read);
        if let Some((other, _)) = here.targets.values().next()
            && (!may_be_second || *other != shape)
        {
            return Err("precondition");
        }
        if self.mounted.contains_key(&target) {
            return Err("precondition");
        }
        self.mounted.insert(target, name);
        self.here(name).targets.insert(target, (shape, read_only));
        Ok(Answer::Done)
    }

    fn unpublish(&mut self, name: Name, target: Name) -> Outcome {
        if self.here(name).targets.remove(&target).is_some() {
            self.mounted.remove(&target);
            return Ok(Answer::Done);
        }
        let mut others = self.state.here.iter().filter(|(other, _)| **other != name);
        if others.any(|(_, here)| here.targets.contains_key(&target)) && self.volume(name).is_ok() {
            return Ok(Answer::Done);
        }
        self.vacant(name, target)
    }

    fn stats(&mut self, name: Name, path: Name) -> Outcome {
        self.volume(name)?;
        let here = self.here(name);
        let staged_there = here.stage.is_some_and(|(staging, _)| staging == path);
        if here.stage.is_some() && (staged_there || here.targets.contains_key(&path)) {
            return Ok(Answer::Done);
        }
        Err("not at path")
    }

    /// Only what is staged can be written.
    fn write(&mut self, name: Name, what: u8) -> Outcome {
        if self.here(name).stage.is_some() {
            self.volume(name)?.data = what.to_string();
        }
        Ok(Answer::Done)
    }
}
