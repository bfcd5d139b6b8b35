//! Telling account owners what they must know, driven by facts.
