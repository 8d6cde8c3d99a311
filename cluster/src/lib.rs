//! Distributed execution: cuts plans into fragments, places them, and runs them on workers.
