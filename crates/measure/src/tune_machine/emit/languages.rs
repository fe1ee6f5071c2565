//! Writes the tables in C and in JSON.

use serde_json::{Value, json};
use std::fmt::Write;

use super::{BandTable, TunedMethod};

pub(super) fn c(header: &[String], tables: &[BandTable]) -> String {
    let mut text = header.iter().fold(String::new(), |text, line| text + "// " + line + "\n");
    text.push_str(
        "#ifndef THALWEG_MEASURED_H\n#define THALWEG_MEASURED_H\n#include <stdint.h>\n\n\
         /* Sizes up to and including `upto` bytes: this method, with these knobs (\"name=value,...\"). */\n\
         struct thalweg_band { uint64_t upto; const char *way; const char *knobs; };\n",
    );
    for table in tables {
        let name = table.name.to_ascii_lowercase();
        let _ = writeln!(
            text,
            "\n/* {} */\nstatic const struct thalweg_band thalweg_{name}[] = {{",
            table.about
        );
        for (upto, way) in &table.bands {
            let _ = writeln!(text, "    {{ UINT64_C({upto}), {:?}, {:?} }},", way.name, exact(way));
        }
        text.push_str("};\n");
    }
    text + "\n#endif\n"
}

/// Returns the tables as JSON. The last band (range of sizes) of a table has no end: its `upto` is
/// null.
pub(super) fn json(header: &[String], tables: &[BandTable]) -> String {
    let band = |(upto, way): &(u64, TunedMethod)| {
        let knobs: serde_json::Map<String, Value> =
            way.tuning.iter().map(|(knob, value)| (knob.to_owned(), value.into())).collect();
        json!({ "upto": (*upto != u64::MAX).then_some(upto), "way": way.name, "knobs": knobs })
    };
    let tables = tables.iter().map(|table| {
        let bands: Vec<Value> = table.bands.iter().map(band).collect();
        json!({ "name": table.name.to_ascii_lowercase(), "about": table.about, "bands": bands })
    });
    let all = json!({ "about": header, "tables": tables.collect::<Vec<_>>() });
    format!("{all:#}\n")
}

/// Returns the knobs as `NAME=VALUE` with plain numbers.
fn exact(way: &TunedMethod) -> String {
    let knobs: Vec<String> =
        way.tuning.iter().map(|(knob, value)| format!("{knob}={value}")).collect();
    knobs.join(",")
}
