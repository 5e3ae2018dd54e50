package rank

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gswarm/gswarm/table"
)

const (
	jobUser   = 65534
	otherUser = 65533
)

// TestHidepid reads a /proc that is mounted so that users see their own
// processes only, as many clusters have it.
func TestHidepid(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	// Other users have to be able to start it.
	dir, err := os.MkdirTemp("", "gswarm-hidepid")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "rank.test")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Link(os.Args[0], program)); err != nil {
		b, err := os.ReadFile(os.Args[0])
		if err == nil {
			err = os.WriteFile(program, b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	other := exec.Command(program)
	other.Env = append(os.Environ(), being("shy", ""), runVar+"=:"+dir, "PMI_RANK=2")
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUser, Gid: otherUser}}
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer in.Close()
	for _, mode := range []string{"1", "2"} {
		t.Run(mode, func(t *testing.T) {
			agent := exec.Command(program)
			agent.Env = append(os.Environ(), being("hidepid", mode), runVar+"=:"+dir, "OTHER="+strconv.Itoa(other.Process.Pid))
			agent.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
			if b, err := agent.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, b)
			}
		})
	}
}

// underHidepid is the agent's side, in a mount namespace of its own.
func underHidepid(mode string) error {
	if err := unix.Mount("proc", "/proc", "proc", 0, "hidepid="+mode); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(jobUser, jobUser, jobUser), syscall.Setresuid(jobUser, jobUser, jobUser)); err != nil {
		return err
	}
	run := ownRun()
	plain, _, err := startShy(run, 0)
	if err != nil {
		return err
	}
	defer plain.Close()
	shy, shyPID, err := startShy(run, 1)
	if err != nil {
		return err
	}
	defer shy.Close()

	tr, err := Open(Options{UID: jobUser, Run: run})
	if err != nil {
		return err
	}
	defer tr.Close()
	out := newFakeOut()
	read := func(what string, ranks ...int64) error {
		out.batch.Reset()
		if err := tr.Read(out); err != nil {
			return err
		}
		if got := out.batch.Ints(table.RankRank); !slices.Equal(got, ranks) {
			return fmt.Errorf("%s: ranks %v, want %v\n%s", what, got, ranks, out.dump())
		}
		return nil
	}
	if err := read("at first", 0, 1); err != nil {
		return err
	}
	for _, col := range []int{table.RankRunDelay, table.RankThreadsRunDelay, table.RankReadBytes} {
		if v := out.batch.Valid(col); !v[0] || !v[1] {
			return fmt.Errorf("%s is null\n%s", table.Rank.Columns[col].Name, out.dump())
		}
	}
	other, _ := strconv.Atoi(os.Getenv("OTHER"))
	if r := tr.RankOf(other); r != -1 {
		return fmt.Errorf("another user's process has rank %d", r)
	}

	if _, err := shy.Write([]byte("\n")); err != nil {
		return err
	}
	for range 500 { // until it has done so
		if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", shyPID)); err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	// It is still there, which what was opened before tells; of what cannot
	// be read it is said why.
	if err := read("undumpable", 0, 1); err != nil {
		return err
	}
	key := "[" + strconv.Itoa(shyPID) + "]"
	if out.batch.Valid(table.RankReadBytes)[1] || out.absent["read_bytes"+key] != "no_permission" {
		return fmt.Errorf("undumpable: read_bytes is there, or null without a reason\n%s", out.dump())
	}
	if !out.batch.Valid(table.RankCPUUser)[1] {
		return fmt.Errorf("undumpable: cpu_user_ns is null\n%s", out.dump())
	}
	for _, e := range out.events {
		if strings.HasPrefix(e, "process_exit") {
			return fmt.Errorf("undumpable: %s", e)
		}
	}
	shy.Close()
	for range 500 {
		if errors.Is(unix.Kill(shyPID, 0), unix.ESRCH) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := read("ended", 0); err != nil {
		return err
	}
	if last := out.events[len(out.events)-1]; !strings.HasPrefix(last, "process_exit") {
		return fmt.Errorf("ended: %s", last)
	}
	return nil
}

// startShy starts a rank that makes itself undumpable at a line from stdin and
// ends with it.
func startShy(run string, rank int) (io.WriteCloser, int, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{being("shy", ""), runVar + "=:" + run, fmt.Sprintf("PMI_RANK=%d", rank)}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, 0, err
	}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		return nil, 0, fmt.Errorf("waiting for rank %d: %w", rank, err)
	}
	go cmd.Wait()
	return in, cmd.Process.Pid, nil
}

func beShy() {
	fmt.Print(".")
	if n, _ := os.Stdin.Read(make([]byte, 1)); n > 0 {
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	io.Copy(io.Discard, os.Stdin)
}
