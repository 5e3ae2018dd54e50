package merge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"gopkg.in/yaml.v3"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// metaFile is the name of the file in the timeline's directory that describes
// it.
const metaFile = "meta.yaml"

// Meta is timeline/meta.yaml: what the timeline was made from and how good it
// is. It holds nothing of when and where it was merged.
type Meta struct {
	Format    int           `yaml:"format" json:"format"`
	Reference ReferenceMeta `yaml:"reference" json:"reference"`
	TileNS    int64         `yaml:"tile_ns" json:"tile_ns"`
	Nodes     []NodeMeta    `yaml:"nodes" json:"nodes"`
	// Loops are the contradictions that show only where exchanges of several
	// nodes meet, and who may be at fault.
	Loops   []clock.Contradiction `yaml:"clock_loops,omitempty" json:"clock_loops,omitempty"`
	Missing []Missing             `yaml:"missing,omitempty" json:"missing,omitempty"`
	Notes   []string              `yaml:"notes,omitempty" json:"notes,omitempty"`
	Files   []FileMeta            `yaml:"files" json:"files"`
}

// ReferenceMeta is the clock that the timeline is relative to.
type ReferenceMeta struct {
	Node   string       `yaml:"node" json:"node"`
	Anchor clock.Anchor `yaml:"anchor" json:"anchor"`
	// Chosen is set where the run named no reference and the merge took the
	// node that the others asked most.
	Chosen bool `yaml:"chosen_by_merge,omitempty" json:"chosen_by_merge,omitempty"`
}

// NodeMeta is one node of the timeline.
type NodeMeta struct {
	Node string `yaml:"node" json:"node"`
	// Sampler is set where the node had more than one.
	Sampler string `yaml:"sampler,omitempty" json:"sampler,omitempty"`
	// Dir is the name of its directory below nodes.
	Dir   string           `yaml:"dir" json:"dir"`
	Clock clock.Summary    `yaml:"clock" json:"clock"`
	Rows  map[string]int64 `yaml:"rows" json:"rows"`
	// End is how its last agent ended, absent where it was killed.
	End    *shard.End   `yaml:"end,omitempty" json:"end,omitempty"`
	Losses []shard.Loss `yaml:"losses,omitempty" json:"losses,omitempty"`
}

// FileMeta is one file of the timeline.
type FileMeta struct {
	Name  string `yaml:"name" json:"name"`
	Table string `yaml:"table" json:"table"`
	Rows  int64  `yaml:"rows" json:"rows"`
	Bytes int64  `yaml:"bytes" json:"bytes"`
	// CRC32C is that of all its bytes, in hexadecimal digits.
	CRC32C string `yaml:"crc32c" json:"crc32c"`
}

func (m *merger) meta(files []FileMeta) Meta {
	meta := Meta{
		Format:    table.Version,
		Reference: ReferenceMeta{Node: m.result.Reference, Anchor: m.result.Anchor, Chosen: m.chosen},
		TileNS:    m.tile, Loops: m.result.Loops(), Missing: m.missing, Notes: m.notes, Files: files,
	}
	for _, n := range m.nodes {
		sampler := ""
		if n.name != n.machine {
			sampler = n.name
		}
		meta.Nodes = append(meta.Nodes, NodeMeta{
			Node: n.machine, Sampler: sampler, Dir: n.dir, Clock: n.model.Summary(), Rows: n.written,
			End: n.data.Ended(), Losses: n.data.Losses(),
		})
	}
	return meta
}

// ReadMeta reads the timeline's meta.yaml of a run. Without a timeline the
// error is fs.ErrNotExist.
func ReadMeta(dir rundir.Dir) (*Meta, error) {
	path := filepath.Join(dir.Timeline(), metaFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no timeline yet, gswarm merge makes it: %w", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the timeline's metadata: %w", err)
	}
	var m Meta
	if err := yaml.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%s is damaged, merge again: %w", path, err)
	}
	if m.Format > table.Version {
		return nil, &shard.NewerError{Path: path, Have: m.Format, Max: table.Version}
	}
	return &m, nil
}
