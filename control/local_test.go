package control

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gswarm/gswarm/rundir"
)

// roleVar makes this test binary another process of the tests.
const roleVar = "GSWARM_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role, name, _ := strings.Cut(os.Getenv(roleVar), " "); role {
	case "dial": // as another user
		c, err := DialLocal(name)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(c.Send(Message{Join: &Join{PID: 1}}))
		_, err = c.Receive()
		fmt.Println(err)
		os.Exit(0)
	case "elect":
		e, err := Elect(name)
		fmt.Println(err)
		if err == nil {
			os.Stdin.Read(make([]byte, 1)) // until killed
			e.Close()
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func name(t *testing.T) string {
	return SocketName(fmt.Sprint(t.Name(), os.Getpid(), time.Now().UnixNano()), "")
}

func TestSocketName(t *testing.T) {
	a := SocketName("run", "")
	if a == SocketName("run", "gpu-1") || a == SocketName("run2", "") || a != SocketName("run", "") {
		t.Error("names do not tell runs and parts apart")
	}
	if len(a)+len("/elect") > 107 || a[0] != '@' {
		t.Errorf("%q is no abstract name", a)
	}
}

func TestLocal(t *testing.T) {
	t.Parallel()
	n := name(t)
	if _, err := DialLocal(n); err == nil {
		t.Fatal("connected to nobody")
	}
	s, err := ListenLocal(n)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ListenLocal(n); !errors.Is(err, ErrTaken) {
		t.Errorf("the name was taken twice: %v", err)
	}
	got := make(chan Message, 1)
	go s.Serve(func(c *LocalConn) {
		defer c.Close()
		m, err := c.Receive()
		if err != nil {
			return
		}
		got <- m
		c.Send(Message{Joined: &Joined{AgentPID: 7}})
	})
	c, err := DialLocal(n)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if err := c.Send(Message{Join: &Join{PID: 1, GPUs: []int{0, 3}}}); err != nil {
		t.Fatal(err)
	}
	if m := <-got; m.Join == nil || m.Join.GPUs[1] != 3 {
		t.Errorf("%+v", m)
	}
	if m, err := c.Receive(); err != nil || m.Joined.AgentPID != 7 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := c.Receive(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the end of the connection: %v", err)
	}
	s.Close()
	again, err := ListenLocal(n)
	if err != nil {
		t.Fatalf("the name is not free again: %v", err)
	}
	again.Close()
}

// TestLocalGarbage: what is no message is an error, not more.
func TestLocalGarbage(t *testing.T) {
	t.Parallel()
	n := name(t)
	s, err := ListenLocal(n)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	errs := make(chan error, 16)
	go s.Serve(func(c *LocalConn) {
		defer c.Close()
		_, err := c.Receive()
		errs <- err
	})
	for _, b := range []string{"", "\n", "not json\n", "{\"join\":3}\n", strings.Repeat("x", 1<<17), "{\"join\":{\"pid\":1}", "[]\n", "\x00\xff\n"} {
		nc, err := net.Dial("unix", n)
		if err != nil {
			t.Fatal(err)
		}
		nc.Write([]byte(b)) // the other side may have closed
		nc.Close()
		select {
		case err := <-errs:
			if err == nil && !strings.HasPrefix(b, "{\"join\":{") {
				t.Errorf("%.20q is a message", b)
			}
		case <-time.After(patience):
			t.Fatalf("%.20q: no answer", b)
		}
	}
}

// TestOtherUser needs root to become somebody else.
func TestOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: only the refusal's code is compiled")
		return
	}
	t.Parallel()
	n := name(t)
	s, err := ListenLocal(n)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var served atomic.Int32
	go s.Serve(func(c *LocalConn) { served.Add(1); c.Close() })
	exe := "/proc/self/exe"
	cmd := exec.Command(exe)
	cmd.Env = []string{roleVar + "=dial " + n}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, _ := cmd.CombinedOutput()
	if !strings.Contains(string(out), ErrForeign.Error()) {
		t.Errorf("the other user's side: %s", out)
	}
	nc, err := net.Dial("unix", n) // fence: the stranger was accepted before
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	until(t, "one served", func() bool { return served.Load() == 1 })
}

func TestElection(t *testing.T) {
	t.Parallel()
	n := name(t)
	var won, lost atomic.Int32
	var all sync.WaitGroup
	hold := make(chan struct{})
	for range 50 {
		all.Add(1)
		go func() {
			defer all.Done()
			e, err := Elect(n)
			switch {
			case err == nil:
				won.Add(1)
				<-hold
				e.Close()
			case errors.Is(err, ErrTaken):
				lost.Add(1)
			default:
				t.Error(err)
			}
		}()
	}
	until(t, "49 who lost", func() bool { return won.Load() == 1 && lost.Load() == 49 })
	close(hold)
	all.Wait()
	// A process that another test starts just now has the socket until its
	// exec.
	until(t, "the name to be free", func() bool {
		e, err := Elect(n)
		if err == nil {
			e.Close()
		}
		return err == nil
	})
}

// TestElectionEndsByDeath: the winner's death frees it.
func TestElectionEndsByDeath(t *testing.T) {
	t.Parallel()
	n := name(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleVar + "=elect " + n}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "<nil>\n" {
		t.Fatalf("the other's election: %q, %v", line, err)
	}
	if _, err := Elect(n); !errors.Is(err, ErrTaken) {
		t.Errorf("elected beside another: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	e, err := Elect(n)
	if err != nil {
		t.Fatalf("after its death: %v", err)
	}
	e.Close()
}

func TestRendezvous(t *testing.T) {
	t.Parallel()
	d := rundir.Dir(t.TempDir())
	if _, err := Published(d); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing published: %v", err)
	}
	want := serve(t, NewKey(), "run: with\nodd #characters")
	if err := Publish(d, want); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(d.HeadFile())
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	got, err := Published(d)
	if err != nil || got.Key != want.Key || got.Port != want.Port || got.RunID != want.RunID || got.Addrs[0] != want.Addrs[0] {
		t.Errorf("%+v, %v", got, err)
	}
	c, err := dial(t, got)
	if err != nil {
		t.Fatal(err)
	}
	if err := echo(t, c, "x"); err != nil {
		t.Error(err)
	}
	if err := Unpublish(d); err != nil {
		t.Error(err)
	}
	if err := Unpublish(d); err != nil {
		t.Error("twice: ", err)
	}
	for _, text := range []string{"", "key: short", "addrs: [x]", "\x00", "- a"} {
		if err := os.WriteFile(d.HeadFile(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if e, err := Published(d); err == nil {
			t.Errorf("%q is an endpoint: %+v", text, e)
		}
	}
}
