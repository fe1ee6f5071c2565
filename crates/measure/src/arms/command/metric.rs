//! The metric of a program, and how its value is parsed from the program's output. A missing value is an error.

use regex_lite::Regex;
use std::fmt;
use thalweg_core::profile::Ratio;

use super::Ran;
use crate::{outcome::SampleCost, sample::Sample};

#[derive(Clone, Debug)]
pub enum MeasuredValue {
    /// Wall time in seconds.
    Wall,
    /// CPU time of the program and its children, in seconds.
    Cpu,
    /// The largest resident set size of one of its processes, in bytes.
    MaxRss,
    /// A number that the program prints: the first group of the last match, or the whole match.
    Printed(Regex),
}

/// The direction that counts as better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BetterDirection {
    /// Small values are better.
    Lower,
    /// Large values are better.
    Higher,
}

/// A metric with its direction.
#[derive(Clone, Debug)]
pub struct RunMetric {
    pub what: MeasuredValue,
    /// The direction that counts as better.
    pub better: BetterDirection,
}

impl RunMetric {
    /// Parses `wall`, `cpu`, `maxrss` or `regex:PATTERN`. By default, larger is better for a printed number and
    /// smaller is better for a cost.
    pub fn parse(text: &str) -> Result<Self, String> {
        let what = match text {
            "wall" => MeasuredValue::Wall,
            "cpu" => MeasuredValue::Cpu,
            "maxrss" => MeasuredValue::MaxRss,
            _ => match text.strip_prefix("regex:") {
                Some(pattern) => MeasuredValue::Printed(read_pattern(pattern)?),
                None => {
                    return Err(format!(
                        "unknown metric '{text}'; known: wall, cpu, maxrss, regex:PATTERN"
                    ));
                }
            },
        };
        let better = if matches!(what, MeasuredValue::Printed(_)) {
            BetterDirection::Higher
        } else {
            BetterDirection::Lower
        };
        Ok(Self { what, better })
    }

    /// Returns the value of a run, above 0, or the reason why it is missing.
    pub fn of(&self, ran: &Ran) -> Result<f64, String> {
        match &self.what {
            MeasuredValue::Wall => Ok(ran.sample.wall_seconds()),
            MeasuredValue::Cpu => Ok(ran.sample.cpu_seconds()),
            MeasuredValue::MaxRss if ran.max_resident <= ran.hidden_below => Err(format!(
                "maxrss cannot be measured: the kernel reports at least the {} KiB of thalweg \
                 itself, and the program used less; use another metric",
                ran.hidden_below / 1024
            )),
            MeasuredValue::MaxRss => Ok(ran.max_resident as f64),
            MeasuredValue::Printed(pattern) => printed(pattern, &ran.out, &ran.err),
        }
    }
}

impl SampleCost for RunMetric {
    fn cost(&self, sample: &Sample) -> f64 {
        let value = sample.reported.max(f64::MIN_POSITIVE);
        match self.better {
            BetterDirection::Lower => value,
            BetterDirection::Higher => 1.0 / value,
        }
    }
}

impl RunMetric {
    /// Converts a ratio of costs into the ratio of the values.
    pub fn ratio_of_values(&self, costs: Ratio) -> Ratio {
        match self.better {
            BetterDirection::Lower => costs,
            BetterDirection::Higher => {
                Ratio { ratio: 1.0 / costs.ratio, lo: 1.0 / costs.hi, hi: 1.0 / costs.lo }
            }
        }
    }
}

impl fmt::Display for RunMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            MeasuredValue::Wall => f.write_str("wall")?,
            MeasuredValue::Cpu => f.write_str("cpu")?,
            MeasuredValue::MaxRss => f.write_str("maxrss")?,
            MeasuredValue::Printed(pattern) => write!(f, "regex:{}", pattern.as_str())?,
        }
        f.write_str(match self.better {
            BetterDirection::Lower => ", lower is better",
            BetterDirection::Higher => ", higher is better",
        })
    }
}

fn read_pattern(pattern: &str) -> Result<Regex, String> {
    let regex = Regex::new(pattern).map_err(|error| format!("'{pattern}': {error}"))?;
    if regex.captures_len() > 2 {
        return Err(format!(
            "'{pattern}' has {} groups, but only one may select the number: write (?:...) for the others",
            regex.captures_len() - 1
        ));
    }
    Ok(regex)
}

/// Returns the number in the last match on standard output, or on standard error if there is none.
fn printed(pattern: &Regex, out: &str, err: &str) -> Result<f64, String> {
    let found = [out, err].into_iter().find_map(|text| pattern.captures_iter(text).last());
    let Some(found) = found else {
        return Err(format!("it printed nothing that matches '{}'", pattern.as_str()));
    };
    let number = found.get(pattern.captures_len() - 1).map_or("", |part| part.as_str()).trim();
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        Ok(_) => Err(format!("it printed '{number}', but ratios need a number above 0")),
        Err(_) => Err(format!("'{}' found '{number}', which is not a number", pattern.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pattern: &str, out: &str, err: &str) -> Result<f64, String> {
        match RunMetric::parse(&format!("regex:{pattern}"))?.what {
            MeasuredValue::Printed(regex) => printed(&regex, out, err),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn the_last_number_printed_counts() {
        let out = "GET: rps=0.0\rGET: rps=120.5\nGET: 33444.82 requests per second\n";
        assert_eq!(read("([0-9.]+) requests", out, ""), Ok(33444.82));
        assert_eq!(read("rps=([0-9.]+)", out, ""), Ok(120.5));
        assert_eq!(read("(?:real|wall) ([0-9.e-]+)", "", "real 1.5e-3\n"), Ok(0.0015));
        assert_eq!(read("[0-9]+", "7 of 12", "99"), Ok(12.0));
    }

    #[test]
    fn no_number_is_never_a_number() {
        assert!(
            read("([0-9]+) requests", "none", "").unwrap_err().contains("nothing that matches")
        );
        assert!(
            read("x=(.*)", "x=fast", "").unwrap_err().contains("'fast', which is not a number")
        );
        assert!(read("x=(.*)", "x=0", "").unwrap_err().contains("above 0"));
        assert!(read("x=(.*)", "x=inf", "").unwrap_err().contains("above 0"));
        assert!(read("x=(.*)|y", "y", "").unwrap_err().contains("not a number"));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(RunMetric::parse("speed").unwrap_err().contains("known: wall"));
        assert!(RunMetric::parse("regex:(").is_err());
        assert!(RunMetric::parse("regex:(a)(b)").unwrap_err().contains("2 groups"));
        assert_eq!(RunMetric::parse("regex:([0-9]+)").unwrap().better, BetterDirection::Higher);
        assert_eq!(RunMetric::parse("cpu").unwrap().to_string(), "cpu, lower is better");
    }

    #[test]
    fn more_of_a_rate_costs_less() {
        let cost = |metric: &str, told| {
            RunMetric::parse(metric).unwrap().cost(&Sample { reported: told, ..Sample::default() })
        };
        assert!(cost("wall", 3.0) > cost("wall", 2.0));
        assert!(cost("regex:x", 3.0) < cost("regex:x", 2.0));
        assert!(cost("wall", 0.0) > 0.0);
    }
}
