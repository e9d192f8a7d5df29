//! The edge: where gRPC ends and the model begins.
//!
//! A call comes in through [`server`], is observed by a layer (span, outcome, panics), reaches
//! one of the services, is parsed once into types that cannot be wrong, runs on the engine on a
//! blocking thread, and is answered. Errors become gRPC codes in `status.rs` and nowhere else.

mod arrival;
mod call_stats;
mod cluster_memory;
mod connections;
mod deadline;
mod event_log;
mod executor;
mod features;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod http2;
mod introspection;
mod layers;
mod name_holds;
mod parse;
pub mod proto;
mod readiness;
mod reply;
mod routes;
pub mod routing;
pub mod self_check;
pub mod server;
mod services;
mod socket;
mod socket_watch;
mod status;
mod timestamp;
mod trace_context;

pub use call_stats::{CallStats, EndedCalls};
pub use cluster_memory::{ClusterMemory, Resource, Verdict};
pub use connections::{ConnectionStream, open_forwarded_stream};
pub use event_log::{Event, EventLog, EventPage};
pub use executor::{Executor, RunningCalls, max_threads};
pub use features::{Features, Mode};
pub use name_holds::SESSION;
pub use reply::{LIMITS_KEY, NAME_KEY};
pub use routes::{Answering, Routes};
pub use server::{CallService, ServeError, serve, serve_peers, serve_registration};
pub use services::{KubeletCall, RegisteredPlugin};
pub use socket::{BindError, Socket, bind, check as check_socket};
pub use timestamp::parse_time;
pub use trace_context::{TRACE_PARENT, TRACE_STATE, export_spans};
