package nvmltest

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Parse makes a recording from the files that a recorder leaves: meta.txt and
// the CSV files of the tables, which file opens by the table's name.
func Parse(meta string, file func(table string) (io.Reader, error)) (*Recording, error) {
	r := &Recording{
		Cheap:    Table{Name: "gpu", Columns: cheapColumns},
		Activity: Table{Name: "gpu_activity", Columns: activityColumns},
		Power:    Table{Name: "gpu_power", Columns: powerColumns},
		Counter:  Table{Name: "gpu_counter", Columns: counterColumns},
		Process:  Table{Name: "gpu_process", Columns: processColumns},
	}
	for line := range strings.Lines(meta) {
		if err := r.parseMeta(strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("meta.txt: %w", err)
		}
	}
	for _, t := range r.tables() {
		in, err := file(t.Name)
		if err != nil {
			return nil, err
		}
		switch t {
		case &r.Activity:
			err = r.parseActivity(in)
		case &r.Power:
			err = r.parsePower(in)
		case &r.Process:
			err = t.parse(in, 1)
		default:
			err = t.parse(in, 2)
		}
		if err != nil {
			return nil, fmt.Errorf("%s.csv: %w", t.Name, err)
		}
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
		for i := 2; i+1 < len(words); i += 2 {
			var err error
			switch words[i] {
			case "anchor_raw_ns":
				r.AnchorRaw, err = strconv.ParseUint(words[i+1], 10, 64)
			case "anchor_real_ns":
				r.AnchorReal, err = strconv.ParseUint(words[i+1], 10, 64)
			}
			if err != nil {
				return err
			}
		}
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

// parse reads a table whose gpu column comes after the first columns. What has
// no value keeps the one before, which costs nothing to store.
func (t *Table) parse(in io.Reader, first int) error {
	last := map[int]Row{}
	return eachLine(in, func(cells []string) error {
		if len(cells) != len(t.Columns)+1 {
			return fmt.Errorf("%d cells", len(cells))
		}
		gpu, err := strconv.Atoi(cells[first])
		if err != nil {
			return err
		}
		row := Row{GPU: gpu, Value: make([]int64, len(t.Columns))}
		copy(row.Value, last[gpu].Value)
		for c := range row.Value {
			cell := cells[c]
			if c >= first {
				cell = cells[c+1] // the gpu column lies between
			}
			if cell == "" {
				row.Null |= 1 << c
			} else if row.Value[c], err = strconv.ParseInt(cell, 10, 64); err != nil {
				return err
			}
		}
		last[gpu] = row
		t.Rows = append(t.Rows, row)
		return nil
	})
}

func (r *Recording) parsePower(in io.Reader) error {
	last := map[int]int64{}
	return eachLine(in, func(cells []string) error {
		if len(cells) != 3 {
			return fmt.Errorf("%d cells", len(cells))
		}
		var v [3]int64
		for i := range v {
			n, err := strconv.ParseInt(cells[i], 10, 64)
			if err != nil {
				return err
			}
			v[i] = n
		}
		gpu := int(v[1])
		r.Power.Rows = append(r.Power.Rows, Row{GPU: gpu, Value: []int64{v[0] - last[gpu], v[2]}})
		last[gpu] = v[0]
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
