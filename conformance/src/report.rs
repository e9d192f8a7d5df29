//! What people and programs read after a run.

mod json;
mod markdown;
mod text;

pub use json::json;
pub use markdown::markdown;
pub use text::{progress, summary};
