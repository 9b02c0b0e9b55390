//! How brokers make sure before they destroy.

/// How a broker makes sure.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Not at all: what the local store does not know is gone.
    Off,
    /// By its own word: it hears a leader and has applied what it knows to be committed. This is
    /// the guard without its second line, with an absence where it wants a proof.
    Local,
    /// By the leader's word about a name, which the leader gives behind a barrier. This is the
    /// guard without its first line.
    Leader,
    /// By the guard of the product: a proof, or the word of a leader that proves itself about an
    /// incarnation, and a look at the own store behind it.
    On,
}

impl Mode {
    /// Their names, in the order of the variants.
    pub const NAMES: [&'static str; 4] = ["off", "local", "leader", "on"];
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Off, Self::Local, Self::Leader, Self::On];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The mode of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}
