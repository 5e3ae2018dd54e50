// Command gswarm samples a batch job on all its nodes and turns what it saw
// into one dataset on one timeline. Each command is one file; errors become
// exit codes here and nowhere else.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/gswarm/gswarm/launcher"
	"github.com/gswarm/gswarm/rundir"
)

// version is set by the linker.
var version = "dev"

// The exit codes of every command but wrap, which ends as its job ends.
const (
	exitError       = 1
	exitUsage       = 2
	exitIncomplete  = 3
	exitInterrupted = 130
)

// app is what the commands need of the process, so that they touch it in one
// place.
type app struct {
	stdout, stderr io.Writer
	env            []string
	host           string
	now            func() time.Time
}

func main() {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	a := &app{stdout: os.Stdout, stderr: os.Stderr, env: os.Environ(), host: host, now: time.Now}
	os.Exit(a.run(os.Args[1:]))
}

// run executes one command line and returns the exit code.
func (a *app) run(args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	code := exitCode(err)
	if !errors.Is(err, errSilent) {
		fmt.Fprintf(a.stderr, "gswarm: %v\n", err)
	}
	return code
}

// errSilent ends a command whose output has said what is wrong.
var errSilent = errors.New("said already")

// usageError is a command line that cannot be understood.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// incompleteError says that the command did its work on data that lack
// something.
type incompleteError struct{ err error }

func (e incompleteError) Error() string { return e.err.Error() }
func (e incompleteError) Unwrap() error { return e.err }

func exitCode(err error) int {
	var start *launcher.StartError
	var usage usageError
	var incomplete incompleteError
	switch {
	case errors.As(err, &start):
		return start.Code
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &incomplete):
		return exitIncomplete
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitError
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "gswarm",
		Short: "Profile a SLURM, MPI or torchrun job on all its nodes",
		Long: `gswarm samples every GPU, node and rank of a batch job and puts what it saw on
one timeline, every time stamp with a bound on its error.

  gswarm wrap -- srun python train.py   run the job, sampled
  gswarm report                         who was slow in the newest run, when, and why
  gswarm info                           what is in it

Exit status: 0 done, 1 error, 2 wrong usage, 3 data incomplete, 130 interrupted.
wrap ends as the wrapped command ends.`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	root.SetVersionTemplate("gswarm {{.Version}}\n")
	root.AddCommand(a.wrapCommand(), a.agentCommand(), a.mergeCommand(), a.infoCommand(), a.markCommand(),
		a.verifyCommand(), a.exportCommand(), a.clocksCommand(), a.reportCommand(), a.compareCommand())
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Example = "  source <(gswarm completion bash)"
		for _, shell := range c.Commands() {
			shell.Example = "  gswarm completion " + shell.Name() + " > FILE"
		}
	}
	return root
}

// usageArgs makes an argument check's error a usage error that names the way
// out.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
		}
		return nil
	}
}

// interruptible ends the context at the first Ctrl-C.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt)
}

// dirArgument finds the run that a command is about.
func dirArgument(args []string) (rundir.Dir, error) {
	arg := ""
	if len(args) > 0 {
		arg = args[0]
	}
	return rundir.Find(arg)
}
