//! A tiny study with arms in C and in Java. Fresh processes run it with the operations that
//! `thalweg study` offers.

use crate::planted;

use std::path::Path;
use thalweg_lab::study::result::ClaimVerdict;

/// Returns the absolute path of a file, given its path in the repository.
fn path(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(name).canonicalize().unwrap().display().to_string()
}

fn study() -> String {
    let (article, segments) =
        (path("studies/programs/ShareMemory.java"), path("studies/programs/Segments.java"));
    let (module, c) = (path("java/src/main/java"), path("studies/programs/regions.c"));
    format!(
        r#"
schema = 1
id = "test"
title = "two languages"
summary = "C and Java in one cell"
[source]
title = "nothing"
[[cell]]
name = "both"
sizes = ["64KiB"]
pinned = true
arms = ["c", "java", "segment", "cold", "absent"]
[[arm]]
name = "c"
work = "worker"
with = {{ program = "{c}", cflags = ["-O3"], args = ["kind=memfd", "action=xorshift", "writes=1000"] }}
[[arm]]
name = "java"
work = "worker"
with = {{ program = "{article}", jdk = 17, args = ["action=put", "writes=1000", "warmup=20"] }}
[[arm]]
name = "segment"
work = "worker"
[arm.with]
program = "{segments}"
jdk = 25
java_sources = ["{module}"]
java_args = ["--enable-native-access=ALL-UNNAMED"]
args = ["kind=sysv", "action=set", "writes=1000", "warmup=20"]
[[arm]]
name = "cold"
work = "worker"
with = {{ program = "{article}", jdk = 17, cold = true, args = ["action=put", "writes=100000", "warmup=0"] }}
[[arm]]
name = "absent"
work = "worker"
with = {{ program = "{article}", jdk = 3 }}
[[claim]]
id = "test.1"
kind = "ratio"
text = "Java writes"
[[claim.check]]
test = "ratio"
arms = ["java", "segment"]
at = {{ cell = "both" }}
within = [1e-90, inf]
[[claim]]
id = "test.2"
kind = "ratio"
text = "an old JDK writes too"
[[claim.check]]
test = "ratio"
arms = ["absent", "c"]
at = {{ cell = "both" }}
within = [1e-90, inf]
"#
    )
}

#[test]
fn arms_in_java_are_sampled_beside_arms_in_c_and_decide_claims() {
    let result =
        planted::really(&study(), &planted::settings(2, 2)).unwrap_or_else(|e| panic!("{e}"));
    // No machine has JDK 3: the arm is missing with a reason, and its claim is not runnable.
    let absent = result.missing.iter().find(|missing| missing.arm == "absent").unwrap();
    assert!(absent.reason.contains("no JDK 3 in JAVA_HOME"), "{}", absent.reason);
    assert_eq!(result.claims[1].verdict, ClaimVerdict::NotRunnable, "{}", result.claims[1].reason);

    let lacking = |missing: &str| ["no JDK", "C compiler"].iter().any(|why| missing.contains(why));
    let others: Vec<_> = result.missing.iter().filter(|missing| missing.arm != "absent").collect();
    for missing in &others {
        assert!(lacking(&missing.reason), "{}: {}", missing.arm, missing.reason);
        planted::skip(&format!("a study in Java, arm {}", missing.arm), &missing.reason);
    }
    for arm in &result.arms {
        assert_eq!(arm.sessions.len(), 2, "{}", arm.name);
        assert!(arm.gb_per_s > 0.0 && arm.cpu_s_per_gb > 0.0, "{arm:?}");
    }
    if others.is_empty() {
        assert_eq!(result.arms.len(), 4);
        // The range contains every interval, however disturbed the machine is: no bound is below e^-200.
        let claim = &result.claims[0];
        assert_eq!(claim.verdict, ClaimVerdict::Reproduced, "{}", claim.reason);
    }
}
