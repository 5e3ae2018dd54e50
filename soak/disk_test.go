package soak_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gswarm/gswarm/merge"
)

// TestFullDisks runs jobs on filesystems that are full after ever more bytes,
// and which get room again: the job ends as ever, no rank waits, and what was
// lost is reported. It mounts, so it needs root, and runs in the full set only.
func TestFullDisks(t *testing.T) {
	if os.Getenv("GSWARM_SOAK") == "" || os.Getuid() != 0 {
		t.Skip("in the full set, as root")
	}
	flags := replay(t)
	for kib := 16; kib <= 400; kib += 24 {
		for _, grow := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d KiB, growing %t", kib, grow), func(t *testing.T) {
				fillDisk(t, flags, kib, grow)
			})
		}
	}
}

func fillDisk(t *testing.T, flags []string, kib int, grow bool) {
	w := &wrapped{t: t, cwd: t.TempDir()}
	mount := func(opts string, flag uintptr) {
		t.Helper()
		if err := syscall.Mount("tmpfs", w.cwd, "tmpfs", flag, opts); err != nil {
			t.Fatal(err)
		}
	}
	mount(fmt.Sprintf("size=%dk", kib), 0)
	t.Cleanup(func() { syscall.Unmount(w.cwd, syscall.MNT_DETACH) })
	begin := time.Now()
	w.start(flags, "sleep", "4")
	if grow {
		time.Sleep(2500 * time.Millisecond)
		mount("size=64m", syscall.MS_REMOUNT)
	}
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("the job noticed: %v", err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the job took %s", took)
	}
	w.gone()
	// The timeline needs room, too.
	mount("size=64m", syscall.MS_REMOUNT)
	r, err := w.verify()
	if errors.Is(err, merge.ErrNoData) || err != nil && strings.Contains(err.Error(), "no such file") {
		t.Logf("nothing was recorded: %s", strings.TrimSpace(w.err.String()))
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range never {
		if has(r, code) {
			t.Errorf("%s: %+v", code, r.Findings)
		}
	}
	whole := 0
	if files, _ := filepath.Glob(filepath.Join(w.run(), "nodes/*/*")); len(files) > 0 {
		whole = len(files)
	}
	t.Logf("complete %t, %d rows, %d files, %d findings", r.Complete, r.Rows, whole, len(r.Findings))
	if !grow && kib < 64 && r.Complete {
		t.Errorf("it looks whole: %+v", r.Findings)
	}
}
