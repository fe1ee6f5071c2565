//! The conditions of a run: every combination of cell (arms that are compared with each other), size and load that the
//! settings include.

use thalweg_core::quantity::parse_some_bytes;

use super::{
    file::{StudyCell, StudyFile},
    result::Condition,
    settings::{Settings, SizeSelection},
};

/// Returns the conditions in the order of the study. An unknown cell in `only` or an unknown size is an error that
/// lists the known ones.
pub fn conditions_of(study: &StudyFile, settings: &Settings) -> Result<Vec<Condition>, String> {
    let named = |name: &String| study.cells.iter().any(|cell| cell.name == *name);
    if let Some(unknown) = settings.only.iter().find(|name| !named(name)) {
        let all: Vec<&str> = study.cells.iter().map(|cell| cell.name.as_str()).collect();
        return Err(format!(
            "study {} has no cell {unknown:?}; its cells are {}",
            study.id,
            all.join(", ")
        ));
    }
    let wanted = |cell: &&StudyCell| settings.only.is_empty() || settings.only.contains(&cell.name);
    let mut places = Vec::new();
    for cell in study.cells.iter().filter(wanted) {
        for size in sizes(cell, &settings.sizes) {
            let bytes = parse_some_bytes(size)?;
            places.extend(cell.loads.iter().map(|load| Condition {
                cell: cell.name.clone(),
                size: size.clone(),
                bytes,
                load: *load,
            }));
        }
    }
    if places.is_empty() {
        return Err(format!("study {} has none of these sizes", study.id));
    }
    Ok(places)
}

fn sizes<'c>(cell: &'c StudyCell, wanted: &SizeSelection) -> Vec<&'c String> {
    match wanted {
        SizeSelection::All => cell.sizes.iter().collect(),
        SizeSelection::Standard => {
            cell.sizes.iter().filter(|size| !cell.full_sizes.contains(size)).collect()
        }
        SizeSelection::Quick => cell.quick_sizes.as_ref().unwrap_or(&cell.sizes).iter().collect(),
        SizeSelection::These(sizes) => {
            cell.sizes.iter().filter(|size| sizes.contains(size)).collect()
        }
    }
}
