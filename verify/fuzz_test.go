package verify_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/gswarm/gswarm/verify"
)

// FuzzMeta verifies a run whose timeline/meta.yaml is anything: verify may find
// whatever it likes, and must not fall over.
func FuzzMeta(f *testing.F) {
	dir := madeUp{killed: -1}.write(f)
	if _, err := verify.Run(context.Background(), dir, verify.Options{}); err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(dir, "timeline", "meta.yaml")
	good, err := os.ReadFile(path)
	must(f, err)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte("format: 1\ntile_ns: 0\n"))
	f.Add([]byte("format: 1\ntile_ns: -5\nnodes: [{node: n0, dir: ../..}, {node: n0}]\nfiles: [{name: ../../x, table: gpu, rows: -1}]\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, meta []byte) {
		if err := os.WriteFile(path, meta, 0o600); err != nil {
			t.Fatal(err)
		}
		verify.Run(context.Background(), dir, verify.Options{})
	})
}
