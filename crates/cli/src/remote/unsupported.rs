//! Options that a command does not support between machines.

/// Returns the name of the first given option that is refused between machines. Together, the two lists must have all
/// fields of the arguments. The compiler reports a field that is in neither list.
macro_rules! unsupported {
    ($args:expr, $kind:ident { $($supported:ident)* }, refused { $($name:literal $field:ident)* }) => {{
        let $kind { $($supported: _,)* $($field: _,)* } = $args;
        let _usual = $kind::default();
        let given: &[(&'static str, bool)] = &[$(($name, $args.$field != _usual.$field)),*];
        given.iter().find(|(_, is_given)| *is_given).map(|(name, _)| *name)
    }};
}
pub(crate) use unsupported;
