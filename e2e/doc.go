// Package e2e runs whole jobs: gswarm before and behind srun, mpirun and
// torchrun on a real Slurm of four nodes, and looks at what the user would see,
// what the job saw and what is in the data.
//
// The nodes share one kernel, so the truth about their clocks is known: where a
// test asks for a false clock, the false clock is exactly as false as asked.
// Each node has its own processes, network, host name and /tmp.
//
// It runs by "make e2e", as root, with the build tag e2e. It imports gswarm's
// packages to read data only; what it tests is the program bin/gswarm.
package e2e
