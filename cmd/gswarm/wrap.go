package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/gswarm/gswarm/control"
	"github.com/gswarm/gswarm/launcher"
)

// defaultTile is the stretch of time that one shard holds.
const defaultTile = 5 * time.Minute

func (a *app) wrapCommand() *cobra.Command {
	s := defaultSettings()
	var config, nvml, gpuNodes string
	var skewOffset time.Duration
	var skewPPM float64
	cmd := &cobra.Command{
		Use:   "wrap [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command and sample every node that it runs on",
		Long: `wrap runs COMMAND as if it were not there and samples the nodes of the job
meanwhile. It stands in front of the launcher, once for the job, or behind it,
once for each rank; each node gets one sampler either way.

It ends as COMMAND ends: with its exit code or by its signal. A command that
does not exist gives 127, one that may not be run 126, a wrong flag 2. Whatever
goes wrong with the sampling is said on stderr when the job is over, and the job
runs on; --strict makes it an error before the job begins.

Settings come from the flags, GSWARM_* variables (GSWARM_INTERVAL=50ms),
--config FILE, or ./gswarm.yaml, the first that has them.`,
		Example: `  gswarm wrap -- srun python train.py              # in an sbatch script
  srun gswarm wrap -- ./app
  srun --ntasks-per-node=1 gswarm wrap -- torchrun --nproc_per_node=8 train.py
  gswarm wrap -- mpirun ./app
  gswarm wrap --interval 50ms -o run1 -- ./app     # no scheduler`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := launcher.Process{Env: a.env, Host: a.host, Now: a.now(), Stderr: a.stderr}
			if p.Nested() != "" {
				return launcher.Become(args, a.env)
			}
			notes, err := s.load(cmd.Flags(), config, a.env)
			if err != nil {
				return usageError{err}
			}
			ports, err := control.ParsePorts(s.Ports)
			if err != nil {
				return usageError{fmt.Errorf("--ports: %w", err)}
			}
			if nvml != "" { // the agent stands elsewhere
				if nvml, err = filepath.Abs(nvml); err != nil {
					return err
				}
			}
			ending, err := launcher.Wrap(launcher.Options{
				Command: args, Out: s.Out, Interval: s.Interval, Tile: s.Tile, Sync: s.Sync,
				Ports: ports, Quiet: s.Quiet, Strict: s.Strict,
				Agent: agentProgram(), Version: version, Config: s.record(), Notes: notes,
				GPU:      control.GPUConfig{Which: s.GPUs, Budget: s.Budget, ProcessUtil: s.ProcessUtil, NVLinks: s.NVLinks},
				GPUNodes: gpuNodes, NVML: nvml, SkewOffset: skewOffset, SkewPPM: skewPPM,
			}, p)
			if err != nil {
				return err
			}
			launcher.EndAs(ending)
			return nil
		},
	}
	s.flags(cmd.Flags())
	cmd.Flags().StringVar(&config, "config", "", "read settings from this YAML `FILE` instead of ./gswarm.yaml")
	cmd.Flags().StringVar(&nvml, "x-nvml", "", "path of the NVML library")
	cmd.Flags().StringVar(&gpuNodes, "x-gpu-nodes", launcher.GPUNodes, "pattern of the GPUs' device nodes")
	cmd.Flags().DurationVar(&skewOffset, "x-skew-offset", 0, "falsify the raw clock")
	cmd.Flags().Float64Var(&skewPPM, "x-skew-ppm", 0, "falsify the raw clock's rate")
	for _, name := range []string{"x-nvml", "x-gpu-nodes", "x-skew-offset", "x-skew-ppm"} {
		cmd.Flags().MarkHidden(name) //nolint:errcheck // the flags exist: they were just made
	}
	// What follows the command's name is the command's, flags and all.
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// agentProgram returns the program that runs as agent: gswarm-agent beside this
// one where the two were built apart, else this one.
func agentProgram() string {
	self, err := os.Executable()
	if err != nil {
		return "/proc/self/exe"
	}
	beside := filepath.Join(filepath.Dir(self), "gswarm-agent")
	if st, err := os.Stat(beside); err == nil && st.Mode()&0o111 != 0 {
		return beside
	}
	return self
}
