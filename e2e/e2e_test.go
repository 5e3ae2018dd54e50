//go:build e2e

package e2e

import "testing"

// cases are the tests that need a cluster. All run with processes tracked by
// cgroup, as most sites do; those with linuxproc set run again where Slurm
// follows parents instead, for there a process may outlive its step.
var cases = []struct {
	name      string
	linuxproc bool
	test      func(*testing.T, *cluster)
}{
	{"TimeLimit", true, timeLimit}, // takes longest, so first
	{"TimeLimitSignal", false, timeLimitSignal},
	{"Positions", true, testPositions},
	{"Clocks", true, testClocks},
	{"ClockChain", false, clockChain},
	{"NestedBatch", false, nestedBatch},
	{"Requeue", true, requeue},
	{"RequeueByHand", false, requeueByHand},
	{"Array", false, array},
	{"Interactive", false, interactive},
	{"GPUPerTask", false, gpuPerTask},
	{"GPUFront", false, gpuFront},
	{"Secrets", false, secrets},
	{"Endings", true, testEndings},
	{"EndingsOfTasks", true, endingsOfTasks},
	{"Scancel", true, scancel},
	{"ScancelSignal", true, scancelSignal},
	{"CtrlC", false, ctrlC},
	{"CtrlZ", false, ctrlZ},
	{"Window", false, window},
	{"WrapKilledInFront", true, wrapKilledInFront},
	{"WrapKilledBehind", true, wrapKilledBehind},
	{"AgentKilledBehind", true, agentKilledBehind},
	{"AgentKilledInFront", true, agentKilledInFront},
	{"StepKilled", true, stepKilled},
	{"StepdKilled", false, stepdKilled},
	{"Unwritable", false, unwritable},
	{"NoPorts", false, noPorts},
	{"NoHead", false, noHead},
	{"NoAgent", false, noAgent},
	{"SSH", false, overSSH},
	{"MergeBySlices", false, mergeBySlices},
	{"Examples", false, examples},
}

func TestCgroup(t *testing.T) { onCluster(t, "cgroup") }

func TestLinuxproc(t *testing.T) { onCluster(t, "linuxproc") }

func onCluster(t *testing.T, proctrack string) {
	c := up(t, proctrack)
	// The cluster goes down when the group is over.
	t.Run("on", func(t *testing.T) {
		for _, tc := range cases {
			if proctrack == "linuxproc" && !tc.linuxproc {
				continue
			}
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				tc.test(t, c)
			})
		}
	})
	if proctrack == "cgroup" {
		t.Run("SlurmdKilled", func(t *testing.T) { slurmdKilled(t, c) })
	}
}
