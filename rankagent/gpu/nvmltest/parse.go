package nvmltest

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Parse makes a recording from the files that a recorder leaves:
// meta.txt, gpu.csv and gpu_activity.csv.
func Parse(meta string, cheap, activity io.Reader) (*Recording, error) {
	r := &Recording{
		Cheap:    Table{Name: "gpu", Columns: cheapColumns},
		Activity: Table{Name: "gpu_activity", Columns: activityColumns},
	}
	for line := range strings.Lines(meta) {
		if err := r.parseMeta(strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("meta.txt: %w", err)
		}
	}
	if err := r.parseCheap(cheap); err != nil {
		return nil, fmt.Errorf("gpu.csv: %w", err)
	}
	if err := r.parseActivity(activity); err != nil {
		return nil, fmt.Errorf("gpu_activity.csv: %w", err)
	}
	return r, nil
}

// parseMeta takes "driver V ..." and "gpu I NAME... UUID BUS key value ...".
func (r *Recording) parseMeta(words []string) error {
	if len(words) < 2 {
		return nil
	}
	if words[0] == "driver" {
		r.Driver = words[1]
		return nil
	}
	if words[0] != "gpu" {
		return nil
	}
	var g GPU
	at := 2
	for ; at < len(words) && !strings.HasPrefix(words[at], "GPU-"); at++ {
		g.Name = strings.TrimSpace(g.Name + " " + words[at])
	}
	if at+1 >= len(words) {
		return fmt.Errorf("no UUID and PCI id in %q", words)
	}
	g.UUID, g.BusID = words[at], words[at+1]
	for at += 2; at+1 < len(words); at += 2 {
		v, err := strconv.ParseUint(words[at+1], 10, 64)
		if err != nil {
			return err
		}
		switch words[at] {
		case "power_limit_mw":
			g.PowerLimitMW = v
		case "mem_total":
			g.MemoryByte = v
		}
	}
	r.GPUs = append(r.GPUs, g)
	return nil
}

func (r *Recording) parseCheap(in io.Reader) error {
	return eachLine(in, func(cells []string) error {
		if len(cells) != len(cheapColumns)+1 {
			return fmt.Errorf("%d cells", len(cells))
		}
		gpu, err := strconv.Atoi(cells[2])
		if err != nil {
			return err
		}
		row := Row{GPU: gpu, Value: make([]int64, len(cheapColumns))}
		for c := range row.Value {
			cell := cells[c]
			if c >= ColUtil {
				cell = cells[c+1] // the gpu column lies between
			}
			if row.Value[c], err = strconv.ParseInt(cell, 10, 64); err != nil {
				return err
			}
		}
		r.Cheap.Rows = append(r.Cheap.Rows, row)
		return nil
	})
}

func (r *Recording) parseActivity(in io.Reader) error {
	last := map[int]Row{}
	end := map[int]int64{}
	return eachLine(in, func(cells []string) error {
		if len(cells) != len(activityColumns)+1 {
			return fmt.Errorf("%d cells", len(cells))
		}
		var head [3]int64
		for i := range head {
			v, err := strconv.ParseInt(cells[i], 10, 64)
			if err != nil {
				return err
			}
			head[i] = v
		}
		gpu := int(head[2])
		row := Row{GPU: gpu, Value: make([]int64, len(activityColumns))}
		copy(row.Value, last[gpu].Value)
		row.Value[ActGap], row.Value[ActLength] = head[0]-end[gpu], head[1]-head[0]
		for c := ActSM; c < len(row.Value); c++ {
			cell := cells[c+1]
			if cell == "" {
				row.Null |= 1 << c
				continue
			}
			v, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				return err
			}
			row.Value[c] = int64(math.Round(v * 10000))
		}
		last[gpu], end[gpu] = row, head[1]
		r.Activity.Rows = append(r.Activity.Rows, row)
		return nil
	})
}

// eachLine calls f for each line but the header.
func eachLine(in io.Reader, f func(cells []string) error) error {
	cr := csv.NewReader(in)
	cr.ReuseRecord = true
	for n := 1; ; n++ {
		cells, err := cr.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if n == 1 {
			continue
		}
		if err := f(cells); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}
