package host

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// wordBytes is the unit in which RDMA ports count data.
const wordBytes = 4

// lookEvery is after how many readings the devices are listed anew.
const lookEvery = 60

// fabric reads the ports of the node's RDMA devices. Each counter is a file of
// its own, for which the driver may have to ask the firmware.
type fabric struct {
	root    string
	ports   []*port
	reading int
}

// port is one port of a device.
type port struct {
	key      string // as in the table: device and number
	dir      string
	counters []file
	lacks    []bool // files that the device does not have
}

// Name implements rankagent.Source.
func (f *fabric) Name() string { return "infiniband" }

// Interval implements rankagent.Source.
func (f *fabric) Interval() time.Duration { return interval }

// Close implements rankagent.Source.
func (f *fabric) Close() error { return nil }

// Read implements rankagent.Source.
func (f *fabric) Read(out rankagent.Out) error {
	if f.reading%lookEvery == 0 {
		f.look(out)
	}
	f.reading++
	if len(f.ports) == 0 {
		out.Absent(table.Infiniband, "", "", rankagent.NotFound, "no RDMA device in "+f.root)
		return nil
	}
	out.Present(table.Infiniband, "", "")
	for _, p := range f.ports {
		p.read(out)
	}
	return nil
}

// look lists the ports. One that is gone is said to be.
func (f *fabric) look(out rankagent.Out) {
	dirs, _ := filepath.Glob(filepath.Join(f.root, "*/ports/[0-9]*")) // the pattern is a good one
	var ports []*port
	for _, dir := range dirs {
		n, err := strconv.ParseInt(filepath.Base(dir), 10, 32)
		device := filepath.Base(filepath.Dir(filepath.Dir(dir)))
		if err != nil || n < 0 || !validName([]byte(device)) {
			continue
		}
		if i := slices.IndexFunc(f.ports, func(p *port) bool { return p.dir == dir }); i >= 0 {
			ports = append(ports, f.ports[i])
			continue
		}
		p := &port{key: device + ":" + strconv.FormatInt(n, 10), dir: dir}
		for _, name := range portFiles() {
			p.counters = append(p.counters, file{path: filepath.Join(dir, name)})
		}
		p.lacks = make([]bool, len(p.counters))
		for i := range p.counters {
			_, err := os.Stat(p.counters[i].path)
			p.lacks[i] = err != nil
		}
		out.Present(table.Infiniband, "", p.key)
		ports = append(ports, p)
	}
	for _, p := range f.ports {
		if !slices.Contains(ports, p) {
			out.Absent(table.Infiniband, "", p.key, rankagent.NotFound, detailGone)
		}
	}
	f.ports = ports
}

// portFiles lists a port's files in the order of the table's columns.
func portFiles() []string {
	names := []string{"counters/port_rcv_data", "counters/port_xmit_data", "counters/port_rcv_packets", "counters/port_xmit_packets"}
	for _, c := range table.IBCounters {
		names = append(names, c.File)
	}
	return names
}

func (p *port) read(out rankagent.Out) {
	begin := out.Now()
	vals := make([]value, len(p.counters))
	errs := make([]error, len(p.counters))
	for i := range p.counters {
		if p.lacks[i] {
			continue
		}
		if p.counters[i].buf == nil {
			p.counters[i].buf = make([]byte, 256)
		}
		text, err := p.counters[i].read()
		if errs[i] = err; err == nil {
			vals[i] = single(text)
		}
	}
	end := out.Now()
	if !slices.ContainsFunc(vals, value.ok) {
		if _, err := os.Stat(p.dir); err != nil {
			out.Absent(table.Infiniband, "", p.key, rankagent.NotFound, detailGone)
			return
		}
	}
	row := out.Batch(table.Infiniband).Append()
	row.Read(int64(begin), int64(end))
	row.String(table.IBPort, p.key)
	for col, name := range map[int]string{table.IBLinkLayer: "link_layer", table.IBState: "state", table.IBRate: "rate"} {
		s, err := firstLine(filepath.Join(p.dir, name))
		if err != nil {
			out.Absent(table.Infiniband, table.Infiniband.Columns[col].Name, p.key, reason(err), err.Error())
			continue
		}
		row.String(col, afterNumber(s))
		out.Present(table.Infiniband, table.Infiniband.Columns[col].Name, p.key)
	}
	for i := range vals {
		v := vals[i]
		if i < 2 {
			v = v.times(wordBytes)
		}
		set(out, table.Infiniband, row, p.key, errs[i], column{table.IBRxBytes + i, v})
	}
}

// single reads a file that is one number. "N/A (no PMA)" is what a port without
// that counter says.
func single(text []byte) value {
	text = bytes.TrimSpace(text)
	if bytes.HasPrefix(text, []byte("N/A")) {
		return value{}
	}
	return number(text)
}

// afterNumber returns the word of a state such as "4: ACTIVE".
func afterNumber(s string) string {
	number, word, ok := bytes.Cut([]byte(s), []byte(": "))
	if _, err := strconv.Atoi(string(number)); ok && err == nil {
		return string(word)
	}
	return s
}
