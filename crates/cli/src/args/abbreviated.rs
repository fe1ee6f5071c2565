//! Unambiguous abbreviations of option values, as `cp` accepts them.

use clap::{
    Arg, Command, Error, ValueEnum,
    builder::{EnumValueParser, PossibleValue, TypedValueParser},
};
use std::{ffi::OsStr, marker::PhantomData};

/// Parses a value of `E` or an unambiguous abbreviation of it.
#[derive(Clone, Copy, Debug)]
pub struct Abbreviated<E>(PhantomData<E>);

impl<E> Abbreviated<E> {
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

/// Returns the variant with this name, or the only variant with a name that starts with `word`.
pub fn find<E: ValueEnum + PartialEq>(word: &str) -> Option<E> {
    let named = |variant: &E, is: &dyn Fn(&str) -> bool| {
        let value = variant.to_possible_value();
        value.is_some_and(|value| value.get_name_and_aliases().any(is))
    };
    let variants = || E::value_variants().iter().cloned();
    if let Some(exact) = variants().find(|variant| named(variant, &|name| name == word)) {
        return Some(exact);
    }
    let mut begun = variants().filter(|variant| named(variant, &|name| name.starts_with(word)));
    begun.next().filter(|_| !word.is_empty() && begun.next().is_none())
}

impl<E: ValueEnum + PartialEq + Send + Sync + 'static> TypedValueParser for Abbreviated<E> {
    type Value = E;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<E, Error> {
        match value.to_str().and_then(find) {
            Some(found) => Ok(found),
            None => EnumValueParser::<E>::new().parse_ref(cmd, arg, value),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(E::value_variants().iter().filter_map(E::to_possible_value)))
    }
}
