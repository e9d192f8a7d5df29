//! For programs.

use serde_json::{Value, json as object};

use crate::check::{Failure, Stop};
use crate::plugin_features::PluginFeatures;
use crate::runner::Ran;
use crate::verdict::{Verdict, Verdicts};

pub fn json(features: &PluginFeatures, verdicts: &Verdicts, ran: &[Ran]) -> Value {
    object!({
        "plugin": { "name": features.name, "version": features.version },
        "rows": verdicts.iter().map(|(row, verdict)| object!({
            "id": row.id,
            "level": row.level.to_string(),
            "when": row.when,
            "then": row.then,
            "verdict": verdict.word(),
            "detail": detail(verdict),
        })).collect::<Vec<_>>(),
        "checks": ran.iter().map(check).collect::<Vec<_>>(),
    })
}

fn detail(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Proven(checks) => object!({ "checks": checks }),
        Verdict::Failed(failures) => object!({
            "checks": failures.iter().map(|(check, _)| *check).collect::<Vec<_>>()
        }),
        Verdict::NotApplicable(why) => object!({ "why": why }),
        Verdict::NotObservable { why, inside } => object!({ "why": why, "test": inside }),
        Verdict::NotRun => Value::Null,
    }
}

fn check(ran: &Ran) -> Value {
    let outcome = match &ran.outcome {
        Ok(()) => object!({ "outcome": "passed" }),
        Err(Stop::NotApplicable(why)) => object!({ "outcome": "not applicable", "why": why }),
        Err(Stop::Failed(failure)) => failed(failure),
    };
    object!({
        "name": ran.check.name,
        "does": ran.check.does,
        "proves": ran.check.proves,
        "result": outcome,
        "findings": ran.findings.iter().map(failed).collect::<Vec<_>>(),
        "calls": ran.calls.iter().map(|call| object!({
            "path": call.path, "request": call.request, "answer": call.answer,
        })).collect::<Vec<_>>(),
    })
}

fn failed(failure: &Failure) -> Value {
    object!({
        "outcome": "failed",
        "row": failure.row,
        "expected": failure.expected,
        "call": failure.call.as_ref().map(|call| object!({
            "path": call.path, "request": call.request, "answer": call.answer,
        })),
    })
}
