//! A setting that is measured before all others.

use super::Controller;
use crate::tune::arms::{Arm, Arms};
use crate::tune::window::Sample;

impl Controller {
    /// Measures the setting `arm` next, because the first one seems to be slower. `first` is a
    /// sample of the first one. No other setting is measured so early.
    pub(crate) fn suspect(&mut self, arms: &dyn Arms, arm: Arm, first: Sample) {
        let first = self.aimed(first);
        self.pairs.set_before(first);
        self.follow(first);
        self.suspected = Some(arm);
        self.change_to(arms, arm);
    }
}
