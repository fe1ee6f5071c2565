//! The part of JSON Schema that docs/reference/schemas uses: type, enum, items, properties, required and
//! additionalProperties. Panics at any other keyword.

use serde_json::Value;

const KNOWN: [&str; 9] = [
    "$schema",
    "title",
    "description",
    "type",
    "enum",
    "items",
    "properties",
    "required",
    "additionalProperties",
];

/// Returns all differences between a value and its schema, each with its path.
pub fn faults(value: &Value, schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(value, schema, "", &mut found);
    found
}

fn check(value: &Value, schema: &Value, at: &str, found: &mut Vec<String>) {
    let rules = schema.as_object().expect("a schema is an object");
    for rule in rules.keys() {
        assert!(KNOWN.contains(&rule.as_str()), "{at}: the checker does not know {rule}");
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    if !types.iter().any(|wanted| is(value, wanted)) {
        found.push(format!("{at}: not {}", types.join(" or ")));
        return;
    }
    if schema["enum"].as_array().is_some_and(|all| !all.contains(value)) {
        found.push(format!("{at}: {value} is none of {}", schema["enum"]));
    }
    if let (Some(items), Some(values)) = (rules.get("items"), value.as_array()) {
        for (n, value) in values.iter().enumerate() {
            check(value, items, &format!("{at}[{n}]"), found);
        }
    }
    let (Some(known), Some(fields)) = (schema["properties"].as_object(), value.as_object()) else {
        return;
    };
    for (name, value) in fields {
        match known.get(name) {
            Some(schema) => check(value, schema, &format!("{at}.{name}"), found),
            None if schema["additionalProperties"] == false => {
                found.push(format!("{at}.{name}: not in the schema"));
            }
            None => {}
        }
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            found.push(format!("{at}.{name}: missing"));
        }
    }
}

fn is(value: &Value, wanted: &str) -> bool {
    match wanted {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type of JSON: {other}"),
    }
}
