package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"sync"

	"github.com/gswarm/gswarm/clock"
	"github.com/gswarm/gswarm/table"
)

// Node is what a node's directory holds: the rows of all its shards and spools,
// as one sequence.
type Node struct {
	dir    string
	sets   []*nodeSet // by number
	mu     sync.Mutex // guards what follows
	losses []Loss
	notes  []string
	lost   map[string]bool // losses already counted, by file and place
}

// nodeSet is the files of one number: a spool, or its shards.
type nodeSet struct {
	n      int
	info   Set
	known  bool // info was read from somewhere
	spool  *spool
	shards map[string]*parquetFile
}

// Segment is one stretch of a node's data: a spool, sealed or not.
type Segment struct {
	N      int
	Sealed bool
	Set
}

// FileInfo is one file of a node.
type FileInfo struct {
	Name string
	// Table is empty for a spool, which holds rows of any table.
	Table string
	N     int
	Rows  int64
	Bytes int64
	// TMin and TMax are the first and last time in it; Timed says whether
	// it has any.
	TMin, TMax clock.NodeTime
	Timed      bool
}

// OpenNode reads what lies in a node's directory. Damaged files are no error:
// they are in Losses, and all others can be read. Close it after use.
func OpenNode(dir string) (*Node, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading a node's directory: %w", err)
	}
	nd := &Node{dir: dir, lost: make(map[string]bool)}
	byN := make(map[int]*nodeSet)
	at := func(s string) *nodeSet {
		n, _ := strconv.Atoi(s) // the patterns match small numbers only
		if byN[n] == nil {
			byN[n] = &nodeSet{n: n, shards: make(map[string]*parquetFile)}
		}
		return byN[n]
	}
	var shards [][3]string // file name, table, number
	for _, e := range entries {
		if m := spoolName.FindStringSubmatch(e.Name()); m != nil {
			nd.openSpool(e.Name(), at(m[1]))
		} else if m := shardName.FindStringSubmatch(e.Name()); m != nil {
			shards = append(shards, [3]string{m[0], m[1], m[2]})
		}
	}
	for _, f := range shards {
		set := at(f[2])
		if set.spool != nil {
			// The seal was interrupted: the spool counts.
			continue
		}
		nd.openShard(f[0], f[1], set)
	}
	for _, s := range byN {
		nd.sets = append(nd.sets, s)
	}
	sort.Slice(nd.sets, func(i, j int) bool { return nd.sets[i].n < nd.sets[j].n })
	nd.check()
	return nd, nil
}

// Close lets go of what is open. Nothing is between two reads.
func (nd *Node) Close() {}

func (nd *Node) openSpool(name string, set *nodeSet) {
	s, err := openSpool(filepath.Join(nd.dir, name))
	if err != nil {
		nd.failed(name, "", CorruptSpool, err)
		return
	}
	set.spool, set.known = s, true
	set.info = Set{SpoolMeta: s.meta, End: s.end, Rows: make(map[string]int64)}
	for _, f := range s.frames {
		set.info.Rows[f.table] += int64(f.rows)
	}
	for _, l := range s.losses {
		nd.lose(l)
	}
}

func (nd *Node) openShard(name, tableName string, set *nodeSet) {
	p, err := openParquet(filepath.Join(nd.dir, name))
	if err != nil {
		nd.failed(name, tableName, CorruptShard, err)
		return
	}
	if p.table != tableName {
		nd.lose(Loss{Code: ForeignFile, File: name, Table: tableName, Rows: -1, Detail: fmt.Sprintf("it holds the table %q", p.table)})
		return
	}
	var info Set
	if err := json.Unmarshal([]byte(p.kv[keySet]), &info); err != nil {
		nd.lose(Loss{Code: ForeignFile, File: name, Table: tableName, Rows: -1, Detail: "it is no shard: it names no spool that it came from"})
		return
	}
	if !set.known {
		set.info, set.known = info, true
		for _, l := range info.Losses {
			nd.lose(l)
		}
	}
	p.kv = nil // the index is light
	set.shards[tableName] = p
}

// failed counts a file that could not be opened.
func (nd *Node) failed(name, tableName string, code LossCode, err error) {
	l := Loss{Code: code, File: name, Table: tableName, Rows: -1, Detail: err.Error()}
	var corrupt *CorruptError
	var newer *NewerError
	switch {
	case errors.As(err, &newer):
		l.Code = NewerVersion
		l.Detail = fmt.Sprintf("format %d, this gswarm reads up to %d: use the gswarm that wrote it, or a newer one", newer.Have, newer.Max)
	case errors.As(err, &corrupt):
		l.Offset, l.Detail = corrupt.Offset, corrupt.Err.Error()
		if errors.Is(err, ErrNotSpool) {
			l.Code = ForeignFile
		}
	default:
		l.Code = Unreadable
		var pe *fs.PathError
		if errors.As(err, &pe) {
			l.Detail = pe.Err.Error() // without the path, which differs from machine to machine
		}
	}
	if st, err := os.Stat(filepath.Join(nd.dir, name)); err == nil {
		l.Bytes = st.Size() - l.Offset
	}
	nd.lose(l)
}

// check compares the files with what they say of each other.
func (nd *Node) check() {
	owner := ""
	for i, s := range nd.sets {
		if s.known && s.info.Node != "" {
			if owner == "" {
				owner = s.info.Node
			} else if s.info.Node != owner {
				nd.drop(s, owner)
				continue
			}
		}
		if s.spool == nil {
			nd.missing(s)
		}
		for t := range s.info.Rows {
			if table.ByName(t) == nil {
				nd.lose(Loss{Code: NewerVersion, File: s.name(t), Table: t, Rows: s.info.Rows[t], Detail: "a table that this gswarm does not know: use the gswarm that wrote it, or a newer one"})
			}
		}
		if i > 0 && s.n > nd.sets[i-1].n+1 {
			for n := nd.sets[i-1].n + 1; n < s.n && n < nd.sets[i-1].n+100; n++ {
				nd.lose(Loss{Code: MissingShard, File: fmt.Sprintf("spool-%d", n), Rows: -1, Detail: "neither the spool nor its shards are there"})
			}
		}
	}
}

// missing counts the shards that the set's others list, and fills in what a
// damaged one would have held.
func (nd *Node) missing(s *nodeSet) {
	names := make([]string, 0, len(s.info.Rows))
	for t := range s.info.Rows {
		names = append(names, t)
	}
	sort.Strings(names)
	for _, t := range names {
		if s.shards[t] != nil {
			continue
		}
		file := fmt.Sprintf("%s-%d.parquet", t, s.n)
		found := false
		for i := range nd.losses {
			if l := &nd.losses[i]; l.File == file && l.Rows < 0 {
				l.Rows, found = s.info.Rows[t], true
			}
		}
		if !found {
			nd.lose(Loss{Code: MissingShard, File: file, Table: t, Rows: s.info.Rows[t], Detail: "the other shards of its spool list it"})
		}
	}
}

// drop leaves out files that another node wrote.
func (nd *Node) drop(s *nodeSet, owner string) {
	for t := range s.shards {
		nd.lose(Loss{Code: ForeignFile, File: s.name(t), Table: t, Rows: s.info.Rows[t], Detail: fmt.Sprintf("it is of node %q, the others are of %q", s.info.Node, owner)})
	}
	if s.spool != nil {
		nd.lose(Loss{Code: ForeignFile, File: s.name(""), Bytes: s.spool.size, Rows: -1, Detail: fmt.Sprintf("it is of node %q, the others are of %q", s.info.Node, owner)})
	}
	s.shards, s.spool, s.known, s.info = nil, nil, false, Set{}
}

func (s *nodeSet) name(t string) string {
	if t == "" || s.spool != nil {
		return fmt.Sprintf("spool-%d", s.n)
	}
	return fmt.Sprintf("%s-%d.parquet", t, s.n)
}

func (nd *Node) lose(l Loss) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	key := fmt.Sprintf("%s|%s|%d|%s", l.File, l.Table, l.Offset, l.Code)
	if !nd.lost[key] {
		nd.lost[key] = true
		nd.losses = append(nd.losses, l)
	}
}

// Losses returns what is lost, as far as it is known: reading rows may add to
// it.
func (nd *Node) Losses() []Loss {
	nd.mu.Lock()
	out := append([]Loss(nil), nd.losses...)
	nd.mu.Unlock()
	sort.SliceStable(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if a.File != b.File {
			return a.File < b.File
		}
		if a.Offset != b.Offset {
			return a.Offset < b.Offset
		}
		return a.Table < b.Table
	})
	return out
}

// Seen is how many losses and notes there are: After returns those that came
// later.
type Seen struct{ losses, notes int }

// Seen returns how many there are.
func (nd *Node) Seen() Seen {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	return Seen{len(nd.losses), len(nd.notes)}
}

// After returns the losses and notes that came after s.
func (nd *Node) After(s Seen) ([]Loss, []string) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	return append([]Loss(nil), nd.losses[s.losses:]...), append([]string(nil), nd.notes[s.notes:]...)
}

// Add takes losses and notes that another process met in the same files.
func (nd *Node) Add(losses []Loss, notes []string) {
	for _, l := range losses {
		nd.lose(l)
	}
	nd.mu.Lock()
	defer nd.mu.Unlock()
	for _, n := range notes {
		if !slices.Contains(nd.notes, n) {
			nd.notes = append(nd.notes, n)
		}
	}
}

// Notes returns what is worth knowing and no loss, in order.
func (nd *Node) Notes() []string {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	out := append([]string(nil), nd.notes...)
	sort.Strings(out)
	return out
}

// Segments returns the node's spools, sealed or not, in order.
func (nd *Node) Segments() []Segment {
	var out []Segment
	for _, s := range nd.sets {
		if s.known {
			out = append(out, Segment{N: s.n, Sealed: s.spool == nil, Set: s.info})
		}
	}
	return out
}

// Name returns the name of the node that wrote the files, as they say.
func (nd *Node) Name() string {
	for _, s := range nd.sets {
		if s.info.Node != "" {
			return s.info.Node
		}
	}
	return ""
}

// Ended returns the node's end mark, nil where its agent was killed or still
// runs.
func (nd *Node) Ended() *End {
	for i := len(nd.sets) - 1; i >= 0; i-- {
		if nd.sets[i].known {
			return nd.sets[i].info.End
		}
	}
	return nil
}

// TableRows returns the number of rows of a table that the files claim to hold.
func (nd *Node) TableRows(name string) (rows int64) {
	for _, s := range nd.sets {
		if s.spool != nil {
			rows += s.info.Rows[name]
		} else if p := s.shards[name]; p != nil {
			for _, g := range p.groups {
				rows += g.rows
			}
		}
	}
	return rows
}

// Files lists the files that can be read.
func (nd *Node) Files() []FileInfo {
	var out []FileInfo
	for _, s := range nd.sets {
		if s.spool != nil {
			f := FileInfo{Name: s.name(""), N: s.n, Bytes: s.spool.size}
			for _, ref := range s.spool.frames {
				f.add(int64(ref.rows), ref.tMin, ref.tMax, true)
			}
			out = append(out, f)
			continue
		}
		for _, t := range table.All() {
			p := s.shards[t.Name]
			if p == nil {
				continue
			}
			f := FileInfo{Name: s.name(t.Name), Table: t.Name, N: s.n, Bytes: p.size}
			for _, g := range p.groups {
				f.add(g.rows, g.tMin, g.tMax, g.known)
			}
			out = append(out, f)
		}
	}
	return out
}

func (f *FileInfo) add(rows, lo, hi int64, known bool) {
	f.Rows += rows
	if !known {
		return
	}
	if !f.Timed || clock.NodeTime(lo) < f.TMin {
		f.TMin = clock.NodeTime(lo)
	}
	if !f.Timed || clock.NodeTime(hi) > f.TMax {
		f.TMax = clock.NodeTime(hi)
	}
	f.Timed = true
}
