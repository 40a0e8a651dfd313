// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a failure is judged: by runs of the failed test alone, on the commit and on its parent.

/// The most runs of a failed test on the commit where the change does not touch the test's own folder, and on the parent.
pub const RUNS: u32 = 5;
/// The most runs on the commit where the change touches the folder: a race that this change made may be rare.
pub const RUNS_WHERE_TOUCHED: u32 = 20;
/// More failed tests than this are no accident, and repeating them all would take too long.
pub const MOST_REPEATED: usize = 20;

/// What repeating has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    pub runs: u32,
    pub failed: u32,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The change broke it, or nothing shows that the change did not.
    Rejected,
    /// The parent fails, too.
    NotThisChange,
    /// It was not seen to fail again.
    Unreproduced,
}

/// `parent`: `None` where the parent's programs are not kept here, or have no such test.
pub fn judge(commit: Repeated, parent: Option<Repeated>) -> Verdict {
    match (commit.failed, parent) {
        (0, _) => Verdict::Unreproduced,
        (_, Some(parent)) if parent.failed > 0 => Verdict::NotThisChange,
        _ => Verdict::Rejected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_evidence_decides() {
        let of = |runs, failed| Repeated { runs, failed };
        assert_eq!(judge(of(5, 1), Some(of(5, 0))), Verdict::Rejected);
        assert_eq!(judge(of(5, 5), None), Verdict::Rejected);
        assert_eq!(judge(of(20, 1), Some(of(5, 1))), Verdict::NotThisChange);
        assert_eq!(judge(of(5, 0), Some(of(5, 5))), Verdict::Unreproduced);
        assert_eq!(judge(of(20, 0), None), Verdict::Unreproduced);
    }
}
