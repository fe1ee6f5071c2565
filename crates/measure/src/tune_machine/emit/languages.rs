//! Writes the tables in four languages.

use std::fmt::Write;

use super::{Table, Way};

fn comment(lines: &[String], mark: &str) -> String {
    lines.iter().fold(String::new(), |text, line| text + mark + " " + line + "\n")
}

pub(super) fn rust(header: &[String], tables: &[Table]) -> String {
    let mut text = comment(header, "//");
    text.push_str(
        "\n/// Up to and including so many bytes: this way, with these knobs.\n\
         pub type Band = (u64, &'static str, &'static [(&'static str, u64)]);\n",
    );
    for table in tables {
        let _ = writeln!(text, "\n/// {}\npub const {}: &[Band] = &[", table.about, table.name);
        for (upto, way) in &table.bands {
            let knobs: Vec<String> =
                way.tuning.iter().map(|(knob, value)| format!("({knob:?}, {value})")).collect();
            let _ = writeln!(text, "    ({upto}, {:?}, &[{}]),", way.name, knobs.join(", "));
        }
        text.push_str("];\n");
    }
    text
}

pub(super) fn c(header: &[String], tables: &[Table]) -> String {
    let mut text = comment(header, "//");
    text.push_str(
        "#ifndef THALWEG_MEASURED_H\n#define THALWEG_MEASURED_H\n#include <stdint.h>\n\n\
         /* Up to and including so many bytes: this way, with these knobs (\"name=value,...\"). */\n\
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

pub(super) fn java(header: &[String], tables: &[Table]) -> String {
    let mut text = comment(header, "//");
    text.push_str(
        "import java.util.List;\n\npublic final class ThalwegMeasured {\n    \
         private ThalwegMeasured() {}\n\n    \
         /** Up to and including so many bytes: this way, with these knobs. */\n    \
         public record Band(long upto, String way, String knobs) {}\n",
    );
    for table in tables {
        let _ = writeln!(
            text,
            "\n    /** {}. */\n    public static final List<Band> {} = List.of(",
            table.about.replace("->", "to"),
            table.name
        );
        let bands = table.bands.iter().map(|(upto, way)| {
            let upto = i64::try_from(*upto).unwrap_or(i64::MAX);
            format!("        new Band({upto}L, {:?}, {:?})", way.name, exact(way))
        });
        let _ = writeln!(text, "{});", bands.collect::<Vec<_>>().join(",\n"));
    }
    text + "}\n"
}

pub(super) fn toml(header: &[String], tables: &[Table]) -> String {
    let mut text = comment(header, "#");
    for table in tables {
        let name = table.name.to_ascii_lowercase();
        for (upto, way) in &table.bands {
            let _ = writeln!(text, "\n# {}\n[[{name}]]", table.about);
            if *upto != u64::MAX {
                let _ = writeln!(text, "upto = {upto}");
            }
            let _ = writeln!(text, "way = {:?}", way.name);
            for (knob, value) in way.tuning.iter() {
                let _ = writeln!(text, "knobs.{} = {value}", key(knob));
            }
        }
    }
    text
}

/// Returns a TOML key, quoted unless it is a bare key, because a profile may have knobs of a later version.
fn key(knob: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if knob.chars().all(is_plain) { knob.to_owned() } else { format!("{knob:?}") }
}

/// Returns the knobs as `NAME=VALUE` with plain numbers.
fn exact(way: &Way) -> String {
    let knobs: Vec<String> =
        way.tuning.iter().map(|(knob, value)| format!("{knob}={value}")).collect();
    knobs.join(",")
}
