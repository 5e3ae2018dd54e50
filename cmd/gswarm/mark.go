package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/clock/rows"
	"github.com/gswarm/gswarm/control"
	"github.com/gswarm/gswarm/launcher"
	"github.com/gswarm/gswarm/rankagent/rank"
)

func (a *app) markCommand() *cobra.Command {
	var strict bool
	var barrier string
	cmd := &cobra.Command{
		Use:   "mark TEXT…",
		Short: "Put a mark on the timeline, from within a wrapped job",
		Long: `mark records TEXT as an event of the kind mark, with the time at which it was
sent and the rank of the process that sent it. Any process of a wrapped job may
do so; the variable GSWARM_MARK, which wrap sets, names the socket.

With --barrier enter right before a barrier and --barrier leave right after it, on
ranks of several nodes, the merge can align nodes whose clocks could not be
compared in any other way. Each barrier needs a name of its own.

A mark never keeps a job from going on: where it cannot be recorded, mark says so
on stderr and ends with 0; with --strict it ends with 1.

Python needs nothing installed:

  import os, socket
  socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"epoch 3", "\0" + os.environ["GSWARM_MARK"])`,
		Example: `  gswarm mark epoch 3
  srun gswarm mark "checkpoint written"
  gswarm mark --barrier enter "epoch 3"`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			text := strings.Join(args, " ")
			if strings.TrimSpace(text) == "" || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
				return usageError{errors.New("a mark is a text in UTF-8 that is not empty")}
			}
			if barrier != "" && barrier != rows.BarrierEnter && barrier != rows.BarrierLeave {
				return usageError{fmt.Errorf("--barrier is %s or %s, not %q", rows.BarrierEnter, rows.BarrierLeave, barrier)}
			}
			err := sendMark(launcher.Process{Env: a.env}.Getenv, text, barrier)
			if err != nil && !strict {
				fmt.Fprintf(a.stderr, "gswarm: the mark is not recorded: %v\n", err)
				return nil
			}
			return err
		},
	}
	cmd.Flags().StringVar(&barrier, "barrier", "", "the rank is about to enter, or has left, the barrier of this name: enter or leave")
	cmd.Flags().BoolVar(&strict, "strict", false, "end with 1 where the mark cannot be recorded")
	return cmd
}

// sendMark sends a text with the rank that the environment gives: by the time
// the agent looks, this process may be gone.
func sendMark(getenv func(string) string, text, barrier string) error {
	name := getenv(control.MarkVar)
	if name == "" {
		return fmt.Errorf("%s is not set: this process is part of no job that gswarm wraps", control.MarkVar)
	}
	mark := struct {
		Mark    string `json:"mark"`
		Rank    *int   `json:"rank,omitempty"`
		Barrier string `json:"barrier,omitempty"`
	}{Mark: text, Barrier: barrier}
	if id := rank.Identify(getenv); id.Known() {
		mark.Rank = &id.Rank
	}
	b, err := json.Marshal(mark)
	if err != nil {
		return fmt.Errorf("encoding the mark: %w", err)
	}
	if len(b) > control.MaxMark {
		return fmt.Errorf("the mark is longer than %d bytes", control.MaxMark)
	}
	s, err := control.NewMarkSender(name)
	if err != nil {
		return err
	}
	defer s.Close()
	switch err := s.Send(b); {
	case errors.Is(err, unix.ECONNREFUSED):
		return errors.New("the node's agent does not run (yet), or this process is in another network namespace")
	case errors.Is(err, unix.EAGAIN):
		return errors.New("more marks than the node's agent takes")
	default:
		return err
	}
}
