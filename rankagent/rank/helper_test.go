package rank

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// beVar makes the test binary one of the processes that tests look at, or the
// agent's side of a test in namespaces of its own.
const beVar = "GSWARM_TEST_BE"

func being(what, arg string) string { return beVar + "=" + what + " " + arg }

func TestMain(m *testing.M) {
	be, set := os.LookupEnv(beVar)
	if !set {
		os.Exit(m.Run())
	}
	what, arg, _ := strings.Cut(be, " ")
	var err error
	switch what {
	case "threads":
		n, _ := strconv.Atoi(arg)
		beThreads(n)
	case "hidepid":
		err = underHidepid(arg)
	case "shy":
		beShy()
	case "cgroup2":
		err = underCgroup2(arg)
	case "hungry":
		beHungry(arg)
	default:
		err = fmt.Errorf("%s is nothing to be", be)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// ownRun returns the run that this process's environment names.
func ownRun() string {
	run, _ := runOf(environ(runVar + "=" + os.Getenv(runVar)))
	return run
}
