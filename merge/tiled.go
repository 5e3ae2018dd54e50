package merge

import (
	"context"
	"fmt"
	"runtime"

	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// workers is how many row groups are made at a time.
func workers() int { return min(runtime.GOMAXPROCS(0), 8) }

// tiled makes the part's row groups, several at a time, and appends them to w
// in their order. It returns the rows of each node.
func (m *merger) tiled(ctx context.Context, p *part, w *shard.ParquetWriter) (map[*node]int64, error) {
	l, err := newLine(ctx, w, workers())
	if err != nil {
		return nil, err
	}
	written := make(map[*node]int64)
	for _, g := range p.groups {
		err := l.put(func(wk *worker, j *job) error { return m.makeGroup(wk, p.table, g, j) }, func(j *job) {
			for k, rows := range j.counts {
				written[g[k].node] += rows
			}
			m.progress(p.table, g.rows())
		})
		if err != nil {
			break // the line says why
		}
	}
	return written, l.close()
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
	conv := newConverter(p.node, src, table.NewBatch(dst, 0))
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
		wk.times, wk.own = table.NewBatch(sub, int(p.Rows)), table.NewBatch(table.Timeline(sub), int(p.Rows))
	}
	if err := wk.raw.Columns(wk.times); err != nil {
		return false, nil //nolint:nilerr // see above
	}
	conv := newConverter(p.node, sub, wk.own)
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
