package rankagent

import (
	"testing"

	"github.com/gswarm/gswarm/rundir"
)

// TestClaimNode checks that an agent that takes over finds its node's directory
// again, and that another machine of the same name gets one of its own.
func TestClaimNode(t *testing.T) {
	d := rundir.Dir(t.TempDir())
	claim := func(machine, wantName string, wantClash bool) {
		t.Helper()
		name, clash, err := claimNode(d, "n1", machine)
		if err != nil || name != wantName || clash != wantClash {
			t.Errorf("claimNode(%s) = %s, %v, %v; want %s, %v", machine, name, clash, err, wantName, wantClash)
		}
		if err := rundir.WriteNodeMeta(d, name, &rundir.NodeMeta{Node: name, Machine: machine}); err != nil {
			t.Fatal(err)
		}
	}
	claim("boot-a net-1", "n1", false)
	claim("boot-b net-2", "n1~2", true)
	claim("boot-c net-3", "n1~3", true)
	claim("boot-a net-1", "n1", false)
	claim("boot-b net-2", "n1~2", true)
}

// TestNextSpool checks that numbers are never used twice, sealed or not.
func TestNextSpool(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		file string
		want int
	}{{"", 0}, {"spool-0", 1}, {"gpu-0.parquet", 1}, {"gpu_activity-7.parquet", 8}, {"meta.yaml", 8}, {"spool-12", 13}} {
		if c.file != "" {
			if err := rundir.WriteFile(dir+"/"+c.file, nil); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := nextSpool(dir); err != nil || n != c.want {
			t.Errorf("after %q the next spool is %d, %v; want %d", c.file, n, err, c.want)
		}
	}
}
