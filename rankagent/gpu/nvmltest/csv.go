package nvmltest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// CSV returns the file of a table, named without its ending, as it was recorded;
// nil where there is no such table.
func (r *Recording) CSV(table string) []byte {
	switch table {
	case "gpu":
		return r.Cheap.csv(2)
	case "gpu_activity":
		return r.activityCSV()
	case "gpu_power":
		return r.powerCSV()
	case "gpu_counter":
		return r.Counter.csv(2)
	case "gpu_process":
		return r.Process.csv(1)
	}
	return nil
}

// csv writes a table whose gpu column comes after the first columns.
func (t *Table) csv(first int) []byte {
	var b bytes.Buffer
	for c, col := range t.Columns {
		if c == first {
			b.WriteString("gpu,")
		}
		b.WriteString(col.Name + separator(c, len(t.Columns)))
	}
	for _, row := range t.Rows {
		for c, v := range row.Value {
			if c == first {
				b.WriteString(strconv.Itoa(row.GPU) + ",")
			}
			if row.Null>>c&1 == 0 {
				b.WriteString(strconv.FormatInt(v, 10))
			}
			b.WriteString(separator(c, len(row.Value)))
		}
	}
	return b.Bytes()
}

func separator(c, columns int) string {
	if c == columns-1 {
		return "\n"
	}
	return ","
}

func (r *Recording) powerCSV() []byte {
	var b bytes.Buffer
	b.WriteString("t_driver_us,gpu,power_mw\n")
	at := map[int]int64{}
	for _, row := range r.Power.Rows {
		at[row.GPU] += row.Value[PowGap]
		fmt.Fprintf(&b, "%d,%d,%d\n", at[row.GPU], row.GPU, row.Value[PowPower])
	}
	return b.Bytes()
}

func (r *Recording) activityCSV() []byte {
	var b bytes.Buffer
	names := []string{"t_begin_raw_ns", "t_raw_ns", "gpu"}
	for _, c := range r.Activity.Columns[ActSM:] {
		names = append(names, c.Name)
	}
	b.WriteString(strings.Join(names, ",") + "\n")
	end := map[int]int64{}
	for _, row := range r.Activity.Rows {
		begin := end[row.GPU] + row.Value[ActGap]
		end[row.GPU] = begin + row.Value[ActLength]
		fmt.Fprintf(&b, "%d,%d,%d", begin, end[row.GPU], row.GPU)
		for c := ActSM; c < len(row.Value); c++ {
			b.WriteByte(',')
			if row.Null>>c&1 == 0 {
				v := row.Value[c]
				fmt.Fprintf(&b, "%d.%04d", v/10000, v%10000)
			}
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}
