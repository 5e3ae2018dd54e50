// Package probe exchanges time stamps between two nodes over UDP: a Prober
// asks, a Responder answers, and each stamps with its own raw clock right at
// the system calls. Loop asks all through a run.
//
// It decides nothing about clocks: what was exchanged goes to package clock
// as it is. Packets are authenticated with the run's key; whatever else
// arrives is dropped and counted. Stamps come from a clock.Source, deadlines
// from the runtime's timers; no other package of the program touches the
// network for the sake of time.
package probe
