//! The commands of thalweg that create files, which root runs in a directory that every user may write.

/// A command line and its expected result.
pub struct Row {
    pub name: &'static str,
    /// A line of bash; see `Arena::command`.
    pub line: &'static str,
    /// The entry of `$D` that the command makes.
    pub target: &'static str,
    pub makes: Makes,
    /// `true` if workers on other machines look for a fixed name. The command may then fail if another user has made an
    /// entry with that name.
    pub has_fixed_name: bool,
}

/// The content of the target.
#[derive(Clone, Copy)]
pub enum Makes {
    /// A copy of this entry of `own`. The modes agree in these bits.
    Copy { source: &'static str, mode_bits: u32 },
    /// A text that thalweg generates.
    Text,
    /// A directory of such texts.
    Texts,
}

/// All bits of the mode.
const ALL: u32 = 0o7777;
/// The permissions, without set-user-ID, set-group-ID and the sticky bit.
const PERMISSIONS: u32 = 0o777;

const fn copy_of(source: &'static str, mode_bits: u32) -> Makes {
    Makes::Copy { source, mode_bits }
}

const fn row(name: &'static str, line: &'static str, target: &'static str, makes: Makes) -> Row {
    Row { name, line, target, makes, has_fixed_name: false }
}

pub const ROWS: &[Row] = &[
    row("copy", "$T copy $OWN/secret $D/out", "out", copy_of("secret", PERMISSIONS)),
    row("copy --resume", "$T copy -a --resume $OWN/secret $D/out", "out", copy_of("secret", ALL)),
    row("copy into", "$T copy -a --resume $OWN/secret $D/", "secret", copy_of("secret", ALL)),
    row("copy -r", "$T copy -r $OWN/tree $D/tree", "tree", copy_of("tree", PERMISSIONS)),
    row("copy -a tree", "$T copy -a $OWN/tree $D/tree", "tree", copy_of("tree", ALL)),
    row(
        "copy --tune",
        "THALWEG_PROFILE=$OWN/../state/tuned.json $T copy -a --tune $OWN/tree $D/tree",
        "tree",
        copy_of("tree", ALL),
    ),
    row(
        "copy --resume tree",
        "$T copy -a --resume $OWN/tree $D/tree",
        "tree",
        copy_of("tree", ALL),
    ),
    Row {
        has_fixed_name: true,
        ..row(
            "copy --shard",
            "$T copy -a --shard 0/1 $OWN/tree $D/tree",
            "tree",
            copy_of("tree", ALL),
        )
    },
    row(
        "receive",
        "$T send --to $OWN/sock $OWN/public & $T receive --from $OWN/sock $D/out; s=$?; kill $! 2>/dev/null; wait; exit $s",
        "out",
        copy_of("public", PERMISSIONS),
    ),
    row(
        "receive into",
        "$T send --to $OWN/sock $OWN/public & $T receive --from $OWN/sock $D/; s=$?; kill $! 2>/dev/null; wait; exit $s",
        "public",
        copy_of("public", PERMISSIONS),
    ),
    row("fetch", "$T fetch $URL/install.sh $D/out", "out", copy_of("web/install.sh", PERMISSIONS)),
    row(
        "fetch here",
        "cd $D; $T fetch $URL/install.sh",
        "install.sh",
        copy_of("web/install.sh", PERMISSIONS),
    ),
    row(
        "fetch --sha256",
        "$T fetch --verify --sha256 $(sha256sum <$OWN/web/install.sh | cut -c1-64) $URL/install.sh $D/out",
        "out",
        copy_of("web/install.sh", PERMISSIONS),
    ),
    row("fetch -r", "$T fetch -r $URL/tree/ $D/tree", "tree", copy_of("web/tree", PERMISSIONS)),
    row("fetch -r -a", "$T fetch -r -a $URL/tree/ $D/tree", "tree", copy_of("web/tree", ALL)),
    row(
        "pipe --tee",
        "$T pipe --tee $D/out <$OWN/public >/dev/null",
        "out",
        copy_of("public", PERMISSIONS),
    ),
    row("sync --log", "$T sync --log $D/out $OWN/tree copy", "out", Makes::Text),
    row("manifest", "$T manifest -o $D/out $OWN/tree", "out", Makes::Text),
    row("report", "$T report -o $D/out $OWN/results", "out", Makes::Text),
    row(
        "study --csv",
        "$T study 900 --quick --sessions=3 --rounds=3 --sample=1ms --pause=0s --no-save --at $OWN --csv $D/out",
        "out",
        Makes::Text,
    ),
    row(
        "study --save",
        "$T study 900 --quick --sessions=3 --rounds=3 --sample=1ms --pause=0s --at $OWN --save $D/out",
        "out",
        Makes::Texts,
    ),
];

impl Row {
    /// Returns the row with this name.
    pub fn named(name: &str) -> &'static Self {
        ROWS.iter().find(|row| row.name == name).unwrap()
    }

    pub fn source(&self) -> Option<&'static str> {
        match self.makes {
            Makes::Copy { source, .. } => Some(source),
            Makes::Text | Makes::Texts => None,
        }
    }

    pub fn is_of_server(&self) -> bool {
        self.line.contains("$URL")
    }

    pub fn makes_tree(&self) -> bool {
        self.target == "tree"
    }
}
