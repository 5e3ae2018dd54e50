// Package analysis turns the tables of a run into an answer: how the work was
// balanced, how long the steps took, who was slow, when, why, and what the GPUs
// waited for.
//
// It is pure: rows and facts come in through Source and Facts, a Result goes
// out. It opens no file, knows no run directory, reads no clock and prints
// nothing, so a finding can be tested with rows that a test made. It reads the
// timeline as it is laid out, tile after tile, and keeps per GPU what it needs
// and no rows.
//
// Three rules hold for everything it says. An order of events on two nodes is
// claimed only where the bounds of their clocks, the windows of the readings and
// the age of their values do not overlap. What was not measured is said to be
// unknown, never taken for zero. And "no cause found" is an answer.
package analysis
