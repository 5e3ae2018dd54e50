//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a bash script whose controlling terminal is the test.
type terminal struct {
	*box
	master *os.File
	cmd    *exec.Cmd
	mu     sync.Mutex
	screen strings.Builder
	closed chan struct{}
}

func (b *box) terminal(script string) *terminal {
	b.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(b, err)
	must(b, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(b, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(b, err)
	t := &terminal{box: b, master: master, closed: make(chan struct{})}
	t.resize(24, 80)
	t.cmd = exec.Command("bash", "--norc", "--noprofile", "-c", script)
	t.cmd.Dir, t.cmd.Env = b.dir, append(b.environ(), "TERM=dumb")
	t.cmd.Stdin, t.cmd.Stdout, t.cmd.Stderr = slave, slave, slave
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(b, t.cmd.Start())
	slave.Close()
	go func() {
		defer close(t.closed)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			t.mu.Lock()
			t.screen.Write(buf[:n])
			t.mu.Unlock()
			if err != nil { // the last of the other side is gone
				return
			}
		}
	}()
	b.Cleanup(func() {
		t.cmd.Process.Kill() //nolint:errcheck // it has ended, as a rule
		master.Close()
	})
	return t
}

func (t *terminal) resize(rows, columns uint16) {
	t.Helper()
	must(t, unix.IoctlSetWinsize(int(t.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}))
}

func (t *terminal) press(key byte) {
	t.Helper()
	_, err := t.master.Write([]byte{key})
	must(t, err)
}

func (t *terminal) shows() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ReplaceAll(t.screen.String(), "\r", "")
}

// end waits for the script and returns what was on the screen.
func (t *terminal) end() string {
	t.Helper()
	timer := time.AfterFunc(jobPatience, func() { t.cmd.Process.Kill() }) //nolint:errcheck // likewise
	defer timer.Stop()
	t.cmd.Wait() //nolint:errcheck // the code is below
	select {
	case <-t.closed:
	case <-time.After(10 * time.Second): // somebody keeps the terminal open
		t.Errorf("the terminal is still held")
	}
	return fmt.Sprintf("%s\nexit %d", t.shows(), t.cmd.ProcessState.ExitCode())
}

// sameOnTerminals runs a script on a terminal, bare and wrapped, and does the
// same to both.
func (b *box) sameOnTerminals(script string, ranks, nodes int, act func(t *terminal)) (bare string, own []string) {
	b.Helper()
	o := b.without()
	var shown []string
	for _, x := range []*box{o, b} {
		t := x.terminal(script)
		x.ready(ranks, nodes)
		time.Sleep(300 * time.Millisecond)
		act(t)
		shown = append(shown, t.end())
	}
	for i := range shown { // the terminal's echo of keys, in the midst of a line
		shown[i] = regexp.MustCompile(`\^[CZ\\]`).ReplaceAllString(shown[i], "")
	}
	wrapped, own := split(shown[1])
	if sorted(shown[0]) != sorted(wrapped) {
		b.Errorf("the terminal shows\nbare:\n%s\nwrapped:\n%s", shown[0], wrapped)
	}
	return shown[0], own
}

// sameSignals wants that gswarm has nothing but its closing line to say and that
// the ranks saw the same.
func (b *box) sameSignals(ranks int, own []string) {
	b.Helper()
	if len(own) != 1 {
		b.Errorf("gswarm says %q", own)
	}
	if x, y := b.without().logs(ranks), b.logs(ranks); x != y {
		b.Errorf("signals differ:\nbare:\n%swrapped:\n%s", x, y)
	}
}

const (
	keyCtrlC = 3
	keyCtrlZ = 26
)

// ctrlC presses Ctrl-C on a terminal where srun runs in front: once, and srun
// says how its tasks are; a second time within a second, and srun passes it on.
func ctrlC(t *testing.T, c *cluster) {
	for times, want := range map[int]string{1: "interrupt (one more within 1 sec to abort)", 2: "sending Ctrl-C to"} {
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			t.Parallel()
			sides(t, c, func(b *box, command string) {
				bare, own := b.sameOnTerminals("salloc -Q -p shared -N2 -n4 "+command+" signals.py $DIR/log 5", 4, 2, func(t *terminal) {
					for range times {
						t.press(keyCtrlC)
						time.Sleep(400 * time.Millisecond)
					}
				})
				if !strings.Contains(bare, want) {
					b.Errorf("Ctrl-C did not reach srun:\n%s", bare)
				}
				if times == 2 && strings.HasPrefix(command, "srun") {
					// srun sends SIGKILL right behind SIGINT. A rank has some
					// milliseconds for the latter; wrap's are shorter than the
					// time that it takes to hand it on. What was recorded is
					// kept, though nobody is left to say so.
					found, err := filepath.Glob(b.path("gswarm-*"))
					must(b, err)
					var r result
					b.until(60*time.Second, "the run to count as ended", func() bool {
						r = b.gswarm(append([]string{"merge"}, found...)...)
						// So early, there may not be a second of data.
						return r.code != 1 || strings.Contains(r.stderr, "there is nothing to merge")
					})
					if r.code != 3 && !strings.Contains(r.stderr, "there is nothing to merge") || len(own) != 0 {
						b.Errorf("gswarm says %q, merge ends with %d: %s%s", own, r.code, r.stdout, r.stderr)
					}
					return
				}
				b.sameSignals(4, own)
			})
		})
	}
}

// ctrlZ stops the launcher from a shell with job control and has it go on.
func ctrlZ(t *testing.T, c *cluster) {
	sides(t, c, func(b *box, command string) {
		// salloc ignores these signals, which an interactive shell would set right.
		script := `salloc -Q -p shared -N2 -n4 env --default-signal=TSTP,TTIN,TTOU bash --norc -m -c '` + command + ` signals.py $DIR/log 6; echo stopped $?; sleep 1; fg; echo ended $?'`
		bare, own := b.sameOnTerminals(script, 4, 2, func(t *terminal) {
			t.press(keyCtrlZ)
			for end := time.Now().Add(10 * time.Second); !strings.Contains(t.shows(), "stopped 148"); time.Sleep(50 * time.Millisecond) {
				if time.Now().After(end) {
					b.Fatalf("the shell does not come back:\n%s", t.shows())
				}
			}
		})
		if !strings.Contains(bare, "ended 0") {
			b.Errorf("it did not go on:\n%s", bare)
		}
		b.sameSignals(4, own)
	})
}

// window: srun --pty gives a rank a terminal of its own, which follows the size
// of the user's, and Ctrl-C and Ctrl-\ are keys of that terminal.
func window(t *testing.T, c *cluster) {
	for name, command := range map[string]string{"Front": "gswarm wrap -- srun -n1 -N1 --pty", "Behind": "srun -n1 -N1 --pty gswarm wrap --"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := c.box(t)
			_, own := b.sameOnTerminals("salloc -Q -p shared -N1 -n1 "+command+" signals.py $DIR/log 5", 1, 1, func(t *terminal) {
				t.resize(33, 99)
				time.Sleep(300 * time.Millisecond)
				t.resize(11, 77)
				time.Sleep(300 * time.Millisecond)
				t.press(keyCtrlC)
				time.Sleep(300 * time.Millisecond)
				t.press('\\' - '@') // Ctrl-\
			})
			b.sameSignals(1, own)
			if log := b.logs(1); log != "rank 0: ready 24x80 SIGWINCH 33x99 SIGWINCH 11x77 SIGINT SIGQUIT done\n" {
				b.Errorf("the rank saw %s", log)
			}
		})
	}
}
