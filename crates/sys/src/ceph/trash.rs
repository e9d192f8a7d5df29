//! Images without a name: deleted, but not freed yet.

use std::ptr;

use rustix::io::Errno;

use super::handle::{Call, call, owned};
use super::library::RawTrashed;
use super::objects::IoCtx;
use crate::error::Result;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trashed {
    pub id: String,
    /// That it had.
    pub name: String,
}

impl IoCtx {
    /// `EBUSY` while someone has it open for writing. Snapshots and clones stay as they are.
    pub fn move_to_trash(&self, name: &str) -> Result<()> {
        let subject = self.subject(name);
        let moving = Call { operation: "move to the trash", subject: &subject };
        let text = moving.text(name)?;
        moving.check(call!(rbd.rbd_trash_move(self.handle(), text.as_ptr(), 0)))?;
        Ok(())
    }

    pub fn restore_from_trash(&self, id: &str, name: &str) -> Result<()> {
        let subject = self.subject(id);
        let restoring = Call { operation: "restore from the trash", subject: &subject };
        let (id, name) = (restoring.text(id)?, restoring.text(name)?);
        let code = call!(rbd.rbd_trash_restore(self.handle(), id.as_ptr(), name.as_ptr()));
        restoring.check(code)?;
        Ok(())
    }

    /// Frees all its data before it returns. `false`: a snapshot or a clone still needs it, or
    /// someone has it open.
    pub fn try_free_trashed(&self, id: &str) -> Result<bool> {
        let subject = self.subject(id);
        let freeing = Call { operation: "free", subject: &subject };
        let id = freeing.text(id)?;
        let code = call!(rbd.rbd_trash_remove(self.handle(), id.as_ptr(), false));
        match freeing.check(code) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) if matches!(error.errno(), Some(Errno::NOTEMPTY | Errno::BUSY)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub fn trash(&self) -> Result<Vec<Trashed>> {
        let subject = self.subject("");
        let listing = Call { operation: "list the trash of", subject: &subject };
        let blank = RawTrashed {
            id: ptr::null_mut(),
            name: ptr::null_mut(),
            source: 0,
            deletion_time: 0,
            deferment_end_time: 0,
        };
        let mut raw = vec![blank; 256];
        let count = loop {
            let mut room = raw.len();
            let code = call!(rbd.rbd_trash_list(self.handle(), raw.as_mut_ptr(), &raw mut room));
            match listing.check(code) {
                Ok(_) => break room.min(raw.len()),
                Err(error) if error.errno() == Some(Errno::RANGE) => {
                    raw.resize(room.max(2 * raw.len()), blank);
                }
                Err(error) => return Err(error),
            }
        };
        let found = raw.iter().take(count);
        let found = found.map(|one| Trashed { id: owned(one.id), name: owned(one.name) }).collect();
        call!(rbd.rbd_trash_list_cleanup(raw.as_mut_ptr(), count));
        Ok(found)
    }
}
