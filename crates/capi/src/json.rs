//! Results in JSON format.

use serde_json::{Value, json};
use thalweg_core::{MECHANISMS, Pair, Plan, Unfit};

pub(crate) fn mechanisms() -> String {
    let all: Vec<Value> = MECHANISMS.iter().map(|mechanism| mechanism.info().to_json()).collect();
    json!({ "mechanisms": all }).to_string()
}

pub(crate) fn probes(answers: &[(Pair, Result<(), Unfit>)]) -> String {
    let answers: Vec<Value> = answers.iter().map(|(pair, answer)| {
        let reason = answer.as_ref().err().map(|unfit| unfit.reason.as_str());
        json!({ "source": pair.source, "sink": pair.sink, "works": answer.is_ok(), "reason": reason })
    }).collect();
    Value::from(answers).to_string()
}

pub(crate) fn plan(plan: &Plan) -> String {
    json!({ "verdicts": plan.verdicts, "impossible": plan.impossible }).to_string()
}
