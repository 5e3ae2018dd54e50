package merge

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// worker makes row groups. It is used by one goroutine at a time.
type worker struct {
	enc   *shard.Encoder
	raw   shard.RawGroup
	times *table.Batch // the columns of a row group that are corrected
}

// job is a row group under way.
type job struct {
	group  shard.Group
	counts []int64 // rows by piece
	err    error
	done   chan struct{}
}

// workers is how many row groups are made at a time.
func workers() int { return min(runtime.GOMAXPROCS(0), 8) }

// tiled makes the part's row groups, several at a time, and appends them to w
// in their order. It returns the rows of each node.
func (m *merger) tiled(ctx context.Context, p *part, w *shard.ParquetWriter) (map[*node]int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	n := workers()
	free := make(chan *worker, n)
	for range n {
		enc, err := shard.NewEncoder()
		if err != nil {
			cancel()
			return nil, err
		}
		defer enc.Release()
		free <- &worker{enc: enc}
	}
	spare := sync.Pool{New: func() any { return &job{} }}
	queue := make(chan *job, n)
	var busy sync.WaitGroup
	busy.Add(1)
	go func() {
		defer busy.Done()
		defer close(queue)
		for _, g := range p.groups {
			var wk *worker
			select {
			case wk = <-free:
			case <-ctx.Done():
				return
			}
			j := spare.Get().(*job)
			j.done, j.err = make(chan struct{}), nil
			busy.Add(1)
			go func() {
				defer busy.Done()
				j.err = m.makeGroup(wk, p.table, g, j)
				free <- wk
				close(j.done)
			}()
			select {
			case queue <- j:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer busy.Wait()
	defer cancel()
	written := make(map[*node]int64)
	for i := 0; ; i++ {
		var j *job
		select {
		case j = <-queue:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if j == nil {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return written, nil
		}
		<-j.done
		if j.err != nil {
			return nil, j.err
		}
		if j.group.Rows() > 0 {
			if err := w.Append(&j.group); err != nil {
				return nil, err
			}
		}
		for k, rows := range j.counts {
			written[p.groups[i][k].node] += rows
		}
		m.progress(p.table, p.groups[i].rows())
		spare.Put(j)
	}
}

// makeGroup makes one row group of the pieces. One that has lost all its rows
// has none.
func (m *merger) makeGroup(wk *worker, src *table.Table, g group, j *job) error {
	dst := table.Timeline(src)
	j.counts = append(j.counts[:0], make([]int64, len(g))...)
	if len(g) == 1 && g[0].copied() {
		p := &g[0]
		if !p.node.data.Load(p.Unit, src, &wk.raw) {
			return wk.enc.Encode(&j.group, table.NewBatch(dst, 0))
		}
		done, err := wk.splice(p, src, dst, j)
		if done || err != nil {
			return err
		}
	}
	all := table.NewBatch(dst, int(g.rows()))
	run := 0 // where the rows of this tile and node begin
	for i := range g {
		p := &g[i]
		if i > 0 && (g[i-1].tile != p.tile || g[i-1].node != p.node) {
			all.SortRange(run, all.Rows(), table.TLTimeNS, -1)
			run = all.Rows()
		}
		before := all.Rows()
		if err := p.read(src, dst, all); err != nil {
			return err
		}
		j.counts[i] = int64(all.Rows() - before)
	}
	all.SortRange(run, all.Rows(), table.TLTimeNS, -1)
	return wk.enc.Encode(&j.group, all)
}

// read appends the piece's rows to b, corrected.
func (p *piece) read(src, dst *table.Table, b *table.Batch) error {
	conv := newConverter(p.node, src, dst)
	if p.memory != nil {
		b.AppendBatch(conv.convert(p.memory))
		return nil
	}
	return p.node.data.Read(p.Unit, src, func(rows *table.Batch) error {
		b.AppendBatch(conv.convert(rows))
		return nil
	})
}

// splice copies a row group but for its corrected columns. Done is false where
// they bring the rows out of order, and where they do not decode, which
// reading the rows will find, too, and count.
func (wk *worker) splice(p *piece, src, dst *table.Table, j *job) (done bool, err error) {
	sub, names := corrected(p.node, src)
	if wk.times == nil || wk.times.Table.Name != sub.Name || len(wk.times.Table.Columns) != len(sub.Columns) {
		wk.times = table.NewBatch(sub, int(p.Rows))
	}
	if err := wk.raw.Columns(wk.times); err != nil {
		return false, nil //nolint:nilerr // see above
	}
	conv := newConverter(p.node, sub, table.Timeline(sub))
	own := conv.convert(wk.times)
	if !own.SortedBy(table.TLTimeNS) {
		return false, nil
	}
	if err := wk.enc.Splice(&j.group, dst, &wk.raw, own, names); err != nil {
		return false, fmt.Errorf("copying a row group of %s: %w", p.node.name, err)
	}
	j.counts[0] = p.Rows
	return true, nil
}
