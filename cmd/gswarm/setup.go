package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/control"
	"github.com/gswarm/gswarm/launcher"
	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/rankagent/gpu"
	"github.com/gswarm/gswarm/rankagent/host"
	"github.com/gswarm/gswarm/rankagent/rank"
	"github.com/gswarm/gswarm/rundir"
)

// agentSetup wires an agent: which sources it reads, with which clock, and how
// it knows its node.
func (a *app) agentSetup(cfg control.AgentConfig) rankagent.Setup {
	var source clock.Source = clock.System{}
	if cfg.SkewOffset != 0 || cfg.SkewPPM != 0 {
		source = clock.Skewed{Source: source, OffsetNS: int64(cfg.SkewOffset), PPM: cfg.SkewPPM}
	}
	if cfg.Head != nil {
		// One configuration went to all nodes of the agents' step.
		if node := (launcher.Process{Env: a.env}).Getenv("SLURMD_NODENAME"); node != "" {
			cfg.Node = rundir.CleanName(node)
		} else {
			cfg.Node = rundir.CleanName(a.host)
		}
	}
	seen := &gpuLookup{}
	ranks, ranksErr := rank.Open(rank.Options{
		GPUs: func() rank.GPUs { return seen },
		UID:  os.Geteuid(), Job: rank.Variable{Name: cfg.JobVar[0], Value: cfg.JobVar[1]},
		Run: string(cfg.Dir), Alone: cfg.Run.Scheduler.Position == string(launcher.Alone),
	})
	s := rankagent.Setup{
		Config: cfg, Version: version, Clock: source, Host: a.host,
		Machine: machineID(), BootID: bootID(), GPUs: launcher.VisibleGPUs(cfg.GPUNodes),
		Listening: func() {}, RankOf: ranks.RankOf,
		JobAlive: func() bool {
			if cfg.JobVar[0] == "" {
				return false
			}
			pids, err := rank.Processes("/proc", cfg.JobVar[0], cfg.JobVar[1])
			return err != nil || len(pids) > 0
		},
	}
	s.Openers = append(s.Openers, gpuOpener(cfg, source, ranks.RankOf, seen))
	if cfg.Part == "" { // the node's first sampler has read the host already
		s.Openers = append(s.Openers, hostOpener(a.env), rankOpener(ranks, ranksErr))
	}
	return s
}

func hostOpener(env []string) rankagent.Opener {
	opts := host.Options{Environ: env}
	return rankagent.Opener{Name: "host", Open: func(rankagent.Out) (rankagent.Opened, error) {
		h, err := host.Open(opts)
		if err != nil {
			return rankagent.Opened{}, fmt.Errorf("opening the host's counters: %w", err)
		}
		facts := host.NodeFacts(opts)
		return rankagent.Opened{
			Sources:  h.Sources(),
			Describe: func(m *rundir.NodeMeta) { m.Facts = facts },
		}, nil
	}}
}

func rankOpener(t *rank.Tracker, err error) rankagent.Opener {
	return rankagent.Opener{Name: "rank", Open: func(rankagent.Out) (rankagent.Opened, error) {
		if err != nil {
			return rankagent.Opened{}, err
		}
		return rankagent.Opened{
			Sources: t.Sources(),
			Update:  func(m *rundir.NodeMeta) { m.Processes = t.Ranks() },
		}, nil
	}}
}

func gpuOpener(cfg control.AgentConfig, source clock.Source, rankOf func(pid int) int, seen *gpuLookup) rankagent.Opener {
	return rankagent.Opener{Name: "gpu", Open: func(rankagent.Out) (rankagent.Opened, error) {
		chosen, err := chooseGPUs(cfg.GPU.Which, os.Getenv)
		var d *gpu.Driver
		if err == nil {
			d, err = gpu.Open(gpu.Options{
				LibraryPath: cfg.NVML, Clock: source, Interval: cfg.Interval,
				Budget: cfg.GPU.Budget, ProcessUtil: cfg.GPU.ProcessUtil, NVLinks: cfg.GPU.NVLinks, Select: chosen,
				RankOf: rankOf, Holders: seen.held,
			})
		}
		if err != nil {
			why := err.Error()
			// Missing says so in the data as well, with its reason.
			return rankagent.Opened{
				Sources: []rankagent.Source{gpu.Missing(err)},
				Describe: func(m *rundir.NodeMeta) {
					m.Driver = why
					m.GPUCounts.Visible = 0
				},
			}, nil
		}
		seen.set(d.Devices())
		return rankagent.Opened{
			Sources: d.Sources(),
			Describe: func(m *rundir.NodeMeta) {
				m.Driver = "ok"
				m.GPUs = d.Devices()
				m.GPUCounts = gpuCounts(len(d.Devices()))
			},
			Update: func(m *rundir.NodeMeta) { m.Plan = d.Plan() },
			Close:  d.Close,
		}, nil
	}}
}

// gpuCounts tells apart how many GPUs the run sees, the job was given and the
// node has.
func gpuCounts(visible int) rundir.GPUCounts {
	c := rundir.GPUCounts{Visible: visible, Job: -1, Node: -1}
	for _, name := range []string{"SLURM_JOB_GPUS", "SLURM_STEP_GPUS"} {
		if list := os.Getenv(name); list != "" {
			c.Job = len(strings.Split(list, ","))
			break
		}
	}
	if entries, err := os.ReadDir("/proc/driver/nvidia/gpus"); err == nil {
		c.Node = len(entries)
	}
	return c
}

// machineID tells this node from another that claims the same name: its boot
// and its network namespace, since two containers of one host are two nodes.
func machineID() string {
	ns, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		ns = "net:unknown"
	}
	return bootID() + " " + ns
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}
