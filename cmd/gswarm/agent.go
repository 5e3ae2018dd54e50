package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/control"
	"github.com/gswarm/gswarm/rankagent"
)

// maxConfig bounds what an agent reads of its configuration.
const maxConfig = 4 << 20

func (a *app) agentCommand() *cobra.Command {
	var detach bool
	cmd := &cobra.Command{
		Use:    "agent [-- COMMAND…]",
		Short:  "Sample this node; wrap starts it",
		Long:   "agent is started by wrap, which hands it its configuration on standard input.",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if detach {
				return startDetached(args)
			}
			if len(args) > 0 {
				return usageError{errors.New("agent takes a command with --detach only")}
			}
			b, err := io.ReadAll(io.LimitReader(os.Stdin, maxConfig))
			if err != nil {
				return fmt.Errorf("reading the agent's configuration: %w", err)
			}
			var cfg control.AgentConfig
			if err := json.Unmarshal(b, &cfg); err != nil {
				return usageError{fmt.Errorf("the agent's configuration, which wrap hands over on standard input: %w", err)}
			}
			setup := a.agentSetup(cfg)
			if cfg.Head == nil {
				setup.Listening = silence
			}
			err = rankagent.Run(cmd.Context(), setup)
			if errors.Is(err, rankagent.ErrHasAgent) {
				return nil
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&detach, "detach", false, "start the agent, or COMMAND, as a process of nobody's and return")
	return cmd
}

// startDetached starts the command, by default the agent proper, and leaves it to
// init, so that it is no descendant of a rank or of the batch script: who signals
// or ends those must not do so to it.
func startDetached(command []string) error {
	if len(command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("finding the agent's program: %w", err)
		}
		command = []string{self, "agent"}
	}
	keepFromChildren()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the agent: %w", err)
	}
	return nil
}

// keepFromChildren has every descriptor but the standard ones closed in the
// agent. It may be the job's (a PMI server's socket, a pipe that somebody reads
// to its end), and an agent outlives the rank that it was opened for.
func keepFromChildren() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// silence lets go of the descriptors that the agent was started with: whoever
// reads the other end waits for nothing more, and a full disk or a closed pipe
// there must not trouble the agent.
func silence() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	for fd := range 3 {
		unix.Dup3(int(null.Fd()), fd, 0) //nolint:errcheck // then it stays open
	}
}
