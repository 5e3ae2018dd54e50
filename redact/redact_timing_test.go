package redact

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkArgs is what a job waits for before it starts: the usual command
// line, thousands of files, and texts that make a careless search quadratic.
func BenchmarkArgs(b *testing.B) {
	files := make([]string, 10_000)
	for i := range files {
		files[i] = fmt.Sprintf("/scratch/project/imagenet/train/n0144%04d/n01440764_%05d_with_a_long_name.JPEG", i, i)
	}
	for _, bb := range []struct {
		name string
		args []string
	}{
		{"usual", []string{"srun", "-N4", "python", "-m", "torch.distributed.run", "train.py", "--lr=3e-4", "--config", "/home/user/a/b.yaml", "model.hidden=4096"}},
		{"files", files},
		{"assignments", []string{strings.Repeat("a=", 50_000)}},
		{"secrets", []string{strings.Repeat(" token=a", 12_500)}},
		{"schemes", []string{strings.Repeat("a://", 25_000)}},
		{"word", []string{strings.Repeat("a", 100_000)}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			for b.Loop() {
				Args(bb.args)
			}
		})
	}
}
