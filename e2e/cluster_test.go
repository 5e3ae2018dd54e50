//go:build e2e

package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// cluster is the four-node Slurm while it is up.
type cluster struct {
	proctrack string
	env       []string // a login node's environment
	dir       string   // the cluster's state
	work      string   // the tests' directories, which all nodes see
	bin       string   // programs for the jobs
}

// repo is the top of the repository.
func repo(t testing.TB) string {
	t.Helper()
	d, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestMain lets several jobs run at once: they wait more than they compute.
func TestMain(m *testing.M) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		flag.Set("test.parallel", "6") //nolint:errcheck // the flag exists
	}
	os.Exit(m.Run())
}

// up brings the cluster up for the length of a test.
func up(t testing.TB, proctrack string) *cluster {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("the cluster needs root")
	}
	script := filepath.Join(repo(t), "scripts", "slurm", "cluster")
	if out, err := exec.Command(script, "up", "--proctrack", proctrack).CombinedOutput(); err != nil {
		t.Fatalf("bringing the cluster up: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if os.Getenv("E2E_KEEP") != "" {
			return
		}
		if out, err := exec.Command(script, "down").CombinedOutput(); err != nil {
			t.Errorf("taking the cluster down: %v\n%s", err, out)
		}
	})
	out, err := exec.Command("bash", "-c", `eval "$("$0" env)" && env -0`, script).Output()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{proctrack: proctrack}
	for kv := range strings.SplitSeq(string(out), "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case strings.HasPrefix(name, "SLURM_") && name != "SLURM_CONF", strings.HasPrefix(name, "GSWARM_"), kv == "":
			continue
		case name == "TESTBED_DIR":
			c.dir = value
		case name == "TESTBED_SHARED":
			c.work = filepath.Join(value, "e2e")
		}
		c.env = append(c.env, kv)
	}
	c.bin = filepath.Join(c.work, "bin")
	c.programs(t)
	return c
}

// programs puts what the jobs run where all nodes see it.
func (c *cluster) programs(t testing.TB) {
	t.Helper()
	must(t, os.MkdirAll(c.bin, 0o755))
	gswarm := filepath.Join(repo(t), "bin", "gswarm")
	if _, err := os.Stat(gswarm); err != nil {
		t.Fatalf("run make build first: %v", err)
	}
	nvml := filepath.Join(c.work, "nvml")
	run(t, "make", "-s", "-C", filepath.Join(repo(t), "testdata", "nvml"), "OUT="+nvml, nvml+"/libnvidia-ml.so.1")
	write(t, filepath.Join(nvml, "nvml.script"), "node "+c.dir+"/dev/nvidia%d\n", 0o644)

	// Two programs named gswarm. The bare one only runs the command, so that
	// one and the same script shows what a job does without gswarm.
	write(t, filepath.Join(c.bin, "bare", "gswarm"), `#!/bin/bash
until [[ $1 == -- ]]; do shift; done
shift
exec "$@"
`, 0o755)
	write(t, filepath.Join(c.bin, "wrapped", "gswarm"), fmt.Sprintf(`#!/bin/bash
if [[ $1 == wrap ]]; then
  shift
  skew=
  read -r node </proc/sys/kernel/hostname
  [[ $node != n[0-9] ]] || skew=E2E_SKEW_$node
  # shellcheck disable=SC2086 # several flags
  exec %[1]q wrap --x-nvml %[2]q --x-gpu-nodes '%[3]s/dev/nvidia[0-9]*' ${skew:+${!skew}} "$@"
fi
exec %[1]q "$@"
`, gswarm, nvml+"/libnvidia-ml.so.1", c.dir), 0o755)
	for _, f := range []string{"app", "endings.py", "signals.py", "train.py"} {
		b, err := os.ReadFile(filepath.Join("testdata", f))
		must(t, err)
		write(t, filepath.Join(c.bin, f), string(b), 0o755)
	}
	run(t, "gcc", "-O", "-o", filepath.Join(c.bin, "ending"), "testdata/ending.c")
	var compiling sync.WaitGroup
	for _, mpi := range []string{"openmpi", "mpich"} {
		compiling.Add(1)
		go func() {
			defer compiling.Done()
			for _, program := range []string{"allreduce", "ending"} {
				out, err := exec.Command("mpicc."+mpi, "-O", "-DMPI", "-o", filepath.Join(c.bin, program+"."+mpi), "testdata/"+program+".c").CombinedOutput()
				if err != nil {
					t.Errorf("mpicc.%s: %v\n%s", mpi, err, out)
				}
			}
		}()
	}
	compiling.Wait()
}

// box is a directory of a test's own and a way to run things in it.
type box struct {
	*testing.T
	c    *cluster
	dir  string
	bare bool
	// env is added to the environment.
	env []string
	// mark is in the environment of every process of this box.
	mark string
}

// secret is in the environment of every job and must not be in any file.
const secret = "planted-Zq7vXb2kLw9rTn4s"

var unclean = regexp.MustCompile(`[^A-Za-z0-9_.]+`)

// box makes one; after the test nothing of gswarm may run there.
func (c *cluster) box(t *testing.T) *box {
	t.Helper()
	mark := c.proctrack + "-" + unclean.ReplaceAllString(t.Name(), "-")
	b := &box{T: t, c: c, mark: mark, dir: filepath.Join(c.work, mark)}
	must(t, os.MkdirAll(b.dir, 0o755))
	t.Cleanup(func() { b.nothingLeft() })
	return b
}

// without is a box beside this one, in which gswarm does nothing.
func (b *box) without() *box {
	o := *b
	o.bare = true
	o.dir += ".bare"
	must(b, os.MkdirAll(o.dir, 0o755))
	return &o
}

func (b *box) path(elem ...string) string { return filepath.Join(append([]string{b.dir}, elem...)...) }

func (b *box) environ() []string {
	kind := "wrapped"
	if b.bare {
		kind = "bare"
	}
	env := append([]string(nil), b.c.env...)
	env = append(env,
		"PATH="+filepath.Join(b.c.bin, kind)+":"+b.c.bin+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"E2E_CASE="+b.mark, "E2E_API_TOKEN="+secret, "BIN="+b.c.bin, "LC_ALL=C",
		"OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_hwloc_base_binding_policy=none",
		"OMP_NUM_THREADS=1", "DIR="+b.dir)
	return append(env, b.env...)
}

// result is what a user sees of a command.
type result struct {
	stdout, stderr string
	code           int
	job            string
}

// command is a bash script on the login node that has not begun yet.
func (b *box) command(script string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	cmd := exec.Command("bash", "-c", script, "script")
	cmd.Dir, cmd.Env = b.dir, b.environ()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	// Whoever keeps the output open keeps the user's pipe open.
	cmd.WaitDelay = 20 * time.Second
	return cmd, &out, &errs
}

// shell runs a bash script on the login node.
func (b *box) shell(script string) result {
	b.Helper()
	cmd, out, errs := b.command(script)
	err := cmd.Run()
	if cmd.ProcessState == nil {
		b.Fatalf("bash: %v", err)
	}
	return result{stdout: out.String(), stderr: errs.String(), code: cmd.ProcessState.ExitCode()}
}

// batch submits a script and waits for the end of the job.
func (b *box) batch(args, script string) result {
	b.Helper()
	id := b.submit(args, script)
	return b.await(id)
}

// preamble makes a batch script find its programs even under --export=NONE.
func (b *box) preamble() string {
	var s strings.Builder
	for _, kv := range b.environ() {
		for _, name := range []string{"PATH", "BIN", "DIR"} {
			if strings.HasPrefix(kv, name+"=") {
				fmt.Fprintf(&s, "export %s\n", kv)
			}
		}
	}
	return s.String()
}

func (b *box) submit(args, script string) string {
	b.Helper()
	write(b, b.path("job.sh"), "#!/bin/bash\n"+b.preamble()+script, 0o755)
	return b.submitFile(args, "job.sh")
}

func (b *box) submitFile(args, file string) string {
	b.Helper()
	r := b.shell("sbatch --parsable -p shared -o %x.out -e %x.err -J job " + args + " " + file)
	id, _, _ := strings.Cut(strings.TrimSpace(r.stdout), ";")
	if r.code != 0 || id == "" {
		b.Fatalf("sbatch %s: %d %s", args, r.code, r.stderr)
	}
	b.Cleanup(func() {
		if b.Failed() {
			b.shell("scancel " + id)
		}
	})
	return id
}

var jobState = regexp.MustCompile(`JobState=(\S+) .*?ExitCode=(\d+):(\d+)`)

// state returns a job's state and the exit code and signal of its script.
func (b *box) state(id string) (state, code string) {
	b.Helper()
	out, err := exec.Command("env", append(b.environ(), "scontrol", "-o", "show", "job", id)...).CombinedOutput()
	m := jobState.FindStringSubmatch(string(out))
	if err != nil || m == nil {
		return "UNKNOWN", ""
	}
	return m[1], m[2] + ":" + m[3]
}

const jobPatience = 3 * time.Minute

func (b *box) await(id string) result {
	b.Helper()
	r := result{job: id}
	b.until(jobPatience, "job "+id+" to end", func() bool {
		state, code := b.state(id)
		switch state {
		case "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY":
		default: // among them SIGNALING
			return false
		}
		c, s, _ := strings.Cut(code, ":")
		fmt.Sscan(c, &r.code) //nolint:errcheck // digits by the pattern
		if s != "0" {
			fmt.Sscan(s, &r.code) //nolint:errcheck // likewise
			r.code += 128
		}
		return true
	})
	r.stdout, r.stderr = b.read("job.out"), b.read("job.err")
	return r
}

func (b *box) read(name string) string {
	c, _ := os.ReadFile(b.path(name))
	return string(c)
}

// exists reports whether a file of the box is there.
func (b *box) exists(name string) bool {
	_, err := os.Stat(b.path(name))
	return err == nil
}

// until waits for a condition.
func (b *box) until(patience time.Duration, what string, ok func() bool) {
	b.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(end) {
			b.Fatalf("waited %s in vain for %s", patience, what)
		}
	}
}

// untouched compares what the user saw of the job with and without gswarm. Ranks
// run side by side, so the order of lines is left out.
func (b *box) untouched(bare, wrapped result) {
	b.Helper()
	if bare.code != wrapped.code {
		b.Errorf("exit code: bare %d, wrapped %d", bare.code, wrapped.code)
	}
	if x, y := sorted(bare.stdout), sorted(wrapped.stdout); x != y {
		b.Errorf("stdout differs:\nbare:    %q\nwrapped: %q", clip(x), clip(y))
	}
	errs, _ := split(wrapped.stderr)
	if x, y := sorted(bare.stderr), sorted(errs); x != y {
		b.Errorf("stderr differs:\nbare:    %q\nwrapped: %q", clip(x), clip(y))
	}
}

func clip(s string) string {
	if len(s) > 1500 {
		return s[:1500] + "…"
	}
	return s
}

// Slurm names jobs, steps and times in its messages.
var volatile = regexp.MustCompile(`JOB \d+|STEP \d+\.\d+|StepId=\d+\.\d+|JobId=\d+|\d{4}-\d\d-\d\dT[\d:]+|[Jj]ob \d+|\[\w+:\d+\]| ON n\d|slurmstepd-n\d`)

// What srun says when something takes a while.
var chance = regexp.MustCompile(`(?m)^srun: (Job step aborted: Waiting|Job \d+ step creation|Step created|job \d+ queued|job \d+ has been allocated|Force Terminated|launch/slurm).*\n`)

// It reports tasks of one node that ended together in one line.
var endOfTasks = regexp.MustCompile(`(?m)^srun: error: n\d: tasks? ([\d,-]+): (.*)\n`)

// sorted brings what was printed into a form that two runs of one job share.
func sorted(s string) string {
	s = endOfTasks.ReplaceAllStringFunc(s, func(line string) string {
		m := endOfTasks.FindStringSubmatch(line)
		var b strings.Builder
		for part := range strings.SplitSeq(m[1], ",") {
			var from, to int
			if n, _ := fmt.Sscanf(part, "%d-%d", &from, &to); n < 2 {
				to = from
			}
			for task := from; task <= to; task++ {
				fmt.Fprintf(&b, "srun: error: task %d: %s\n", task, m[2])
			}
		}
		return b.String()
	})
	s = chance.ReplaceAllString(s, "")
	lines := strings.SplitAfter(volatile.ReplaceAllString(s, "…"), "\n")
	return strings.Join(sortedStrings(lines), "")
}

// split takes gswarm's own lines out of a job's stderr.
func split(stderr string) (rest string, own []string) {
	var b strings.Builder
	for line := range strings.SplitAfterSeq(stderr, "\n") {
		if text, ok := strings.CutPrefix(line, "gswarm: "); ok {
			own = append(own, strings.TrimSuffix(text, "\n"))
		} else {
			b.WriteString(line)
		}
	}
	return b.String(), own
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, text string, mode os.FileMode) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), mode))
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
