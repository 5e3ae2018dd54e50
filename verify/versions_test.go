package verify_test

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/table"
	"github.com/gswarm/gswarm/verify"
)

// TestTwoVersions is a run whose nodes' agents are of two versions of one
// format: it is whole, and it is said.
func TestTwoVersions(t *testing.T) {
	r := check(t, madeUp{killed: -1, versions: []string{"v1.0", "v1.1"}}.write(t))
	if !r.Complete || len(r.Findings) != 1 || r.Findings[0].Code != verify.Versions {
		t.Errorf("findings %+v", r.Findings)
	}
}

// TestNewerFormat is a run one of whose agents is of a later format: its rows
// are not guessed at, and the others' are kept.
func TestNewerFormat(t *testing.T) {
	dir := rundir.Dir(madeUp{killed: -1}.write(t))
	files, err := filepath.Glob(filepath.Join(dir.Node("n1"), "*-*"))
	must(t, err)
	for _, f := range files {
		must(t, os.Remove(f))
	}
	must(t, os.WriteFile(dir.Spool("n1", 0), metaFrame(`{"format_version":99,"node":"n1"}`), 0o600))
	r := check(t, string(dir))
	if got := codes(r); r.Complete || !slices.Contains(got, "newer_version") {
		t.Errorf("codes %v", got)
	}
	for _, n := range r.Nodes {
		if n.Node != "n0" {
			continue
		}
		if i := slices.IndexFunc(n.Tables, func(c *verify.Coverage) bool { return c.Table == table.GPU.Name }); i < 0 || n.Tables[i].Rows != 600 {
			t.Errorf("%+v", n.Tables)
		}
	}
}

// metaFrame is the first frame of a spool, as docs/format.md has it.
func metaFrame(payload string) []byte {
	b := make([]byte, 56, 56+len(payload))
	copy(b, "\x8fGS\xf8")
	binary.LittleEndian.PutUint32(b[8:], uint32(len(payload)))
	b[48] = 1
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}
