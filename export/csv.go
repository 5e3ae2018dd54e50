package export

import (
	"bufio"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/gswarm/gswarm/dataset"
	"github.com/gswarm/gswarm/table"
)

// The gauges of --to csv.
const (
	csvTemp = iota
	csvTempMem
	csvPower
	csvClock
	csvClockMem
)

func csvGauges() []gauge {
	return []gauge{
		csvTemp:     {table.GPU, "temp_c", 1},
		csvTempMem:  {table.GPU, "temp_mem_c", 1},
		csvPower:    {table.GPU, "power_avg_mw", watt},
		csvClock:    {table.GPU, "clock_sm_mhz", 1},
		csvClockMem: {table.GPU, "clock_mem_mhz", 1},
	}
}

var csvHeader = []string{
	"time", "time_ns", "node", "gpu", "gpu_uuid", "temperature_c", "memory_temperature_c", "power_w", "sm_clock_mhz", "memory_clock_mhz",
}

// Thermal sums a GPU's temperature, power and clock up, over every reading.
type Thermal struct {
	GPU                       dataset.GPU
	Temperature, Power, Clock Spread
}

// Spread sums readings up.
type Spread struct {
	N        int64
	Min, Max float64
	Mean     float64
	squares  float64 // sum of squared distances from the mean
}

func (s *Spread) add(v float64) {
	s.N++
	if s.N == 1 {
		s.Min, s.Max = v, v
	}
	s.Min, s.Max = min(s.Min, v), max(s.Max, v)
	d := v - s.Mean
	s.Mean += d / float64(s.N)
	s.squares += d * (v - s.Mean)
}

// SD is the standard deviation of the readings (population).
func (s *Spread) SD() float64 {
	if s.N == 0 {
		return 0
	}
	return math.Sqrt(s.squares / float64(s.N))
}

// CSV writes the series of temperature, power and clocks: a line for each frame
// and GPU of which something was read. It returns the lines and, for each GPU, the
// summary.
func (s *Source) CSV(ctx context.Context, w io.Writer, every time.Duration) (int64, []Thermal, error) {
	g, err := s.grid(ctx, csvGauges(), every)
	if err != nil {
		return 0, nil, err
	}
	all := make([]Thermal, len(g.gpus))
	for i, gpu := range g.gpus {
		all[i].GPU = gpu
	}
	g.reading = func(gauge, gpu int, v float64) {
		switch gauge {
		case csvTemp:
			all[gpu].Temperature.add(v)
		case csvPower:
			all[gpu].Power.add(v)
		case csvClock:
			all[gpu].Clock.add(v)
		}
	}
	buf := bufio.NewWriterSize(w, 256<<10)
	out := csv.NewWriter(buf)
	if err := out.Write(csvHeader); err != nil {
		return 0, nil, err
	}
	lines := int64(0)
	record := make([]string, len(csvHeader))
	err = g.frames(ctx, func(f *frame) error {
		record[0] = time.Unix(0, f.begin).UTC().Format(time.RFC3339Nano)
		record[1] = strconv.FormatInt(f.begin, 10)
		for i, gpu := range g.gpus {
			record[2], record[3], record[4] = gpu.Node, strconv.FormatInt(gpu.Index, 10), gpu.UUID
			any := false
			for q := range g.gauges {
				v, ok := f.value(q, i)
				record[5+q] = ""
				if ok {
					record[5+q], any = strconv.FormatFloat(round(v), 'f', -1, 64), true
				}
			}
			if !any {
				continue
			}
			lines++
			if err := out.Write(record); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return lines, nil, err
	}
	return lines, all, flushCSV(out, buf)
}

// TableCSV writes a table as it is, null as nothing, and returns its rows.
func (s *Source) TableCSV(ctx context.Context, w io.Writer, t *table.Table) (int64, error) {
	form := s.form(t)
	buf := bufio.NewWriterSize(w, 256<<10)
	out := csv.NewWriter(buf)
	record := make([]string, len(form.Columns))
	for i, c := range form.Columns {
		record[i] = c.Name
	}
	if err := out.Write(record); err != nil {
		return 0, err
	}
	rows := int64(0)
	err := s.rows(ctx, t, form, func(b *table.Batch) error {
		for r := range b.Rows() {
			for i := range form.Columns {
				record[i] = text(b, i, r)
			}
			if err := out.Write(record); err != nil {
				return err
			}
		}
		rows += int64(b.Rows())
		return nil
	})
	if err != nil {
		return rows, fmt.Errorf("exporting %s: %w", t.Name, err)
	}
	return rows, flushCSV(out, buf)
}

func flushCSV(out *csv.Writer, buf *bufio.Writer) error {
	out.Flush()
	err := out.Error()
	if err == nil {
		err = buf.Flush()
	}
	if err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	return nil
}

// text is a value in words, empty for null. Numbers have all their digits.
func text(b *table.Batch, col, row int) string {
	if !b.Valid(col)[row] {
		return ""
	}
	switch b.Table.Columns[col].Type {
	case table.String:
		return b.Strings(col)[row]
	case table.Float64:
		return strconv.FormatFloat(b.Floats(col)[row], 'g', -1, 64)
	case table.Float32:
		return strconv.FormatFloat(b.Floats(col)[row], 'g', -1, 32)
	case table.Timestamp:
		return time.UnixMicro(b.Ints(col)[row]).UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	return strconv.FormatInt(b.Ints(col)[row], 10)
}
