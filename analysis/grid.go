package analysis

import (
	"maps"
	"slices"
)

// blockNS is the length of a block to begin with, maxCells how many cells a
// table may take before blocks are made twice as long. 1,024 GPUs in an hour
// take 3.7 million blocks of a second and are kept in blocks of eight.
const (
	blockNS  = int64(1e9)
	maxCells = 1 << 19
)

// cell is what another one of the same kind can be added to.
type cell[C any] interface{ add(o *C) }

// adder is a pointer to a cell.
type adder[C any] interface {
	*C
	cell[C]
}

var (
	_ cell[reading] = (*reading)(nil)
	_ cell[units]   = (*units)(nil)
	_ cell[counted] = (*counted)(nil)
)

const chunkCells = 64

// track holds a cell for each block of time of one GPU, rank or node. Blocks
// are counted from the Unix epoch, so that all tracks of one block length agree.
type track[C any, P adder[C]] struct {
	first  int64 // number of the first block
	n      int   // blocks from the first
	chunks []*[chunkCells]C
}

// at returns the cell of a block for writing, nil for a block before the first.
func (t *track[C, P]) at(block int64) *C {
	if t.n == 0 {
		t.first = block
	}
	i := block - t.first
	if i < 0 || i > 1<<31 {
		return nil
	}
	for int(i)/chunkCells >= len(t.chunks) {
		t.chunks = append(t.chunks, new([chunkCells]C))
	}
	t.n = max(t.n, int(i)+1)
	return &t.chunks[i/chunkCells][i%chunkCells]
}

// get returns the cell of a block for reading, nil where there is none.
func (t *track[C, P]) get(block int64) *C {
	i := block - t.first
	if i < 0 || i >= int64(t.n) {
		return nil
	}
	return &t.chunks[i/chunkCells][i%chunkCells]
}

// sum adds up the cells of the blocks [from, to).
func (t *track[C, P]) sum(from, to int64) C {
	var s C
	for b := max(from, t.first); b < min(to, t.first+int64(t.n)); b++ {
		P(&s).add(t.get(b))
	}
	return s
}

// fold makes the blocks twice as long.
func (t *track[C, P]) fold() {
	if t.n == 0 {
		return
	}
	first := floorDiv(t.first, 2)
	folded := track[C, P]{}
	for i := range t.n {
		block := t.first + int64(i)
		P(folded.at(floorDiv(block, 2))).add(t.get(block))
	}
	folded.first = first
	*t = folded
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// tracks are those of one table, by node and number, with the length of their
// blocks. Rows come node after node, so the node of the row before is at hand.
type tracks[T any] struct {
	byNode map[string]*[]*T
	last   string
	at     *[]*T
	list   []*T
}

// maxOrdinal bounds the number of a GPU in a node, or of a rank: a row beyond is
// damaged.
const maxOrdinal = 1 << 16

// get returns the entry of a GPU, made at need; nil where the number cannot be.
func (s *tracks[T]) get(node string, i int64) *T {
	if i < 0 || i >= maxOrdinal {
		return nil
	}
	if s.at == nil || node != s.last {
		if s.byNode == nil {
			s.byNode = make(map[string]*[]*T)
		}
		if s.byNode[node] == nil {
			s.byNode[node] = new([]*T)
		}
		s.last, s.at = node, s.byNode[node]
	}
	for int64(len(*s.at)) <= i {
		*s.at = append(*s.at, nil)
	}
	e := (*s.at)[i]
	if e == nil {
		e = new(T)
		(*s.at)[i] = e
		s.list = append(s.list, e)
	}
	return e
}

// lookup returns the entry of a GPU, nil where there is none.
func (s *tracks[T]) lookup(node string, i int) *T {
	if at := s.byNode[node]; at != nil && i >= 0 && i < len(*at) {
		return (*at)[i]
	}
	return nil
}

// each passes all entries with their node and number, in order.
func each[T any](s *tracks[T], fn func(node string, i int, e *T)) {
	for _, node := range slices.Sorted(maps.Keys(s.byNode)) {
		for i, e := range *s.byNode[node] {
			if e != nil {
				fn(node, i, e)
			}
		}
	}
}
