//! System calls thalweg makes, safely wrapped, and the seam where tests inject faults.
