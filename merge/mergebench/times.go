package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/gswarm/gswarm/rundir"
	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

// correct decodes the time columns of a run, corrects them by its clocks.csv and
// encodes them, and keeps nothing: what a merge cannot do without, beside a
// copy.
func (s settings) correct() error {
	d := rundir.Dir(s.out)
	text, err := os.ReadFile(d.Join("clocks.csv"))
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	next, errs := make(chan string), make(chan error, len(lines))
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Add(1)
		go func() {
			defer all.Done()
			for line := range next {
				if err := s.correctNode(d, strings.Split(line, ",")); err != nil {
					errs <- err
				}
			}
		}()
	}
	for _, line := range lines {
		next <- line
	}
	close(next)
	all.Wait()
	if len(errs) > 0 {
		return <-errs
	}
	return nil
}

func (s settings) correctNode(d rundir.Dir, line []string) error {
	var model [3]int64 // raw0, ppb, wall0
	for i := range model {
		v, err := strconv.ParseInt(line[i+1], 10, 64)
		if err != nil {
			return err
		}
		model[i] = v
	}
	data, err := shard.OpenNode(d.Node(line[0]))
	if err != nil {
		return err
	}
	defer data.Close()
	src := table.ByName(s.table)
	dst := table.Timeline(src)
	in := table.NewBatch(&table.Table{Name: src.Name, Columns: src.Columns[:table.ColBegin]}, 0)
	out := table.NewBatch(&table.Table{Name: src.Name, Columns: dst.Columns[:table.TLRead]}, 0)
	enc, err := shard.NewEncoder()
	if err != nil {
		return err
	}
	defer enc.Release()
	var raw shard.RawGroup
	var g shard.Group
	for _, u := range data.Units(src) {
		if !data.Load(u, src, &raw) {
			continue
		}
		if err := raw.Columns(in); err != nil {
			return err
		}
		out.Reset()
		out.AppendNulls(in.Rows())
		for i, t := range in.Ints(table.ColT) {
			ns := model[2] + int64(float64(t-model[0])*(1-float64(model[1])*1e-9))
			out.Ints(table.TLTimeNS)[i], out.Ints(table.TLTime)[i] = ns, ns/1000
			out.Ints(table.TLBound)[i] = 45100 + (in.Ints(table.ColRead)[i]+1)/2
			out.Strings(table.TLNode)[i] = line[0]
			for c := range out.Table.Columns {
				out.Valid(c)[i] = true
			}
		}
		if err := enc.Encode(&g, out); err != nil {
			return err
		}
	}
	return nil
}
