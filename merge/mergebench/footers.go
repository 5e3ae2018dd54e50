package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// footerRows is how many rows a row group gets where footers are what matters:
// their length hardly depends on it.
const footerRows = 16

// numbers reads a list of positive numbers.
func numbers(list string) (n []int, err error) {
	for _, f := range strings.Split(list, ",") {
		v, err := strconv.Atoi(f)
		if err != nil || v < 1 || v > shard.MaxRowGroups {
			return nil, fmt.Errorf("%q is no number of row groups", f)
		}
		n = append(n, v)
	}
	return n, nil
}

// footers writes timelines as tiles and nodes would make them, a row group for
// each, once for each number of row groups in a file: DIR/N/part-0000.parquet
// and so on.
func (s settings) footers(perFile []int) error {
	for _, n := range perFile {
		dir := filepath.Join(s.out, fmt.Sprint(n))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		for from := 0; from < s.groups; from += n {
			path := filepath.Join(dir, fmt.Sprintf("part-%04d.parquet", from/n))
			if err := s.part(path, from, min(from+n, s.groups)); err != nil {
				return err
			}
		}
	}
	return nil
}

// part writes row groups [from, to): tile by tile, node by node.
func (s settings) part(path string, from, to int) error {
	src := table.ByName(s.table)
	dst := table.Timeline(src)
	w, err := shard.CreateParquet(path, dst, nil)
	if err != nil {
		return err
	}
	defer w.Abort()
	raw, out := table.NewBatch(src, footerRows), table.NewBatch(dst, footerRows)
	for i := from; i < to; i++ {
		m := newMaker(src, rand.New(rand.NewPCG(2, uint64(i)))) //nolint:gosec // made-up data
		raw.Reset()
		begin := wall + int64(i/s.nodes)*int64(s.tile)
		for k := range int64(footerRows) {
			m.row(raw, begin+k*int64(s.tile)/footerRows, k%gpus)
		}
		s.place(out, raw, i%s.nodes)
		if err := w.Write(out); err != nil {
			return err
		}
		if err := w.Cut(); err != nil {
			return err
		}
	}
	return w.Close()
}

// place sets out to raw's rows as those of a node whose clock is right.
func (s settings) place(out, raw *table.Batch, node int) {
	out.Reset()
	out.AppendNulls(raw.Rows())
	for c := range out.Table.Columns[:table.TLBegin] {
		for i := range out.Valid(c) {
			out.Valid(c)[i] = true
		}
	}
	for i, t := range raw.Ints(table.ColT) {
		out.Ints(table.TLTimeNS)[i], out.Ints(table.TLTime)[i] = t, t/1000
		out.Ints(table.TLBound)[i], out.Ints(table.TLRead)[i] = 45_100, raw.Ints(table.ColRead)[i]
		out.Strings(table.TLNode)[i] = s.node(node)
	}
	for c := table.ColBegin; c < len(raw.Table.Columns); c++ {
		out.CopyColumn(c-table.ColBegin+table.TLBegin, raw, c)
	}
}
