//! Study files: no input may crash the parser. The places of a parsed study must be a finite list.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_lab::{
    arms::CATALOGUE,
    study::{conditions::conditions_of, file::StudyFile, settings::Settings},
};
use thalweg_measure::preset::Preset;

fuzz_target!(|text: &str| {
    let Ok(study) = StudyFile::parse(text, &CATALOGUE) else { return };
    for preset in [Preset::QUICK, Preset::STANDARD] {
        if let Ok(places) = conditions_of(&study, &Settings::of(preset, 1)) {
            assert!(
                places.iter().all(|place| place.bytes > 0 && study.cell(&place.cell).is_some())
            );
        }
    }
});
