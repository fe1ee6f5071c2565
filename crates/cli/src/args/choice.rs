//! Options that control the choice of a mechanism; shared by several commands.

use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use thalweg_core::{Guarantees, Info, MECHANISMS, Prefer, Request, profile::Load};

use super::flag;

/// Options that choose the mechanism.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Method")]
pub struct MethodArgs {
    /// Use this method, or read-write if the system refuses it; see `thalweg list`
    #[arg(long, value_name = "NAME", env = "THALWEG_METHOD", hide_env = true)]
    #[arg(value_parser = mechanism_names(), hide_possible_values = true)]
    pub method: Option<String>,
    /// Never use this method; may be repeated
    #[arg(long, value_name = "NAME", env = "THALWEG_NO_METHOD", hide_env = true)]
    #[arg(value_parser = mechanism_names(), hide_possible_values = true, value_delimiter = ',')]
    pub no_method: Vec<String>,
    /// Allow methods that share pages with the source; later changes of the source may change the copy
    #[arg(long, env = "THALWEG_ZERO_COPY", hide_env = true, value_parser = flag())]
    pub zero_copy: bool,
    /// Bypass the page cache if possible
    #[arg(long, env = "THALWEG_DIRECT", hide_env = true, value_parser = flag())]
    pub direct: bool,
    /// Prefer methods that use less of this resource
    #[arg(long, value_name = "WHAT", env = "THALWEG_PREFER", hide_env = true)]
    #[arg(value_enum, default_value_t = Preference::Wall)]
    pub prefer: Preference,
    /// Expected load of the machine from other programs
    #[arg(long, value_name = "LOAD", env = "THALWEG_LOAD", hide_env = true)]
    #[arg(value_enum, default_value_t = Loading::Idle)]
    pub load: Loading,
    /// Do not use or update the profile of this machine
    #[arg(long, env = "THALWEG_NO_PROFILE", hide_env = true, value_parser = flag())]
    pub no_profile: bool,
}

/// The resource to save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Preference {
    /// Wall time
    #[default]
    Wall,
    /// CPU time
    Cpu,
    /// Memory
    Memory,
}

/// The expected load by other work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Loading {
    /// The other cores are idle
    #[default]
    Idle,
    /// The other cores are busy
    Loaded,
}

impl Preference {
    /// Converts to the planner's type.
    pub fn prefer(self) -> Prefer {
        match self {
            Self::Wall => Prefer::Wall,
            Self::Cpu => Prefer::Cpu,
            Self::Memory => Prefer::Memory,
        }
    }
}

impl Loading {
    /// Converts to the planner's type.
    pub fn load(self) -> Load {
        match self {
            Self::Idle => Load::Idle,
            Self::Loaded => Load::Loaded,
        }
    }
}

fn mechanism_names() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(MECHANISMS.iter().map(|m| m.info().name))
}

impl MethodArgs {
    /// Returns the planner request that these options describe.
    pub fn request(&self) -> Request {
        Request {
            prefer: self.prefer.prefer(),
            load: self.load.load(),
            only: self.method.clone(),
            without: self.no_method.clone(),
            asked_for: self.asked_for(),
            ..Request::default()
        }
    }

    /// Returns the guarantees that the mechanism must give.
    pub fn needs(&self) -> Guarantees {
        if self.zero_copy { Guarantees::SHARED } else { Guarantees::COPIED }
    }

    /// Returns `true` if an option requests certain mechanisms. `--no-method` only excludes some, so it does not count.
    pub fn names_method(&self) -> bool {
        self.method.is_some() || self.direct || self.zero_copy
    }

    /// Returns the mechanisms that need `--direct` or `--zero-copy`, if the user gave that flag.
    fn asked_for(&self) -> Vec<String> {
        let given = [("--direct", self.direct), ("--zero-copy", self.zero_copy)];
        let is_asked_for =
            |info: &&Info| given.iter().any(|(flag, on)| *on && info.waits_for(flag));
        let infos = MECHANISMS.iter().map(|m| m.info());
        infos.filter(is_asked_for).map(|info| info.name.to_owned()).collect()
    }
}
