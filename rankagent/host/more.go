package host

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// tcp is what the host table takes from /proc/net/snmp and /proc/net/netstat.
type tcp struct {
	in, out, retrans, errors   value
	timeouts, lost, syn, drops value
}

func (h *Host) readTCP() (t tcp, snmpErr, netstatErr error) {
	var text []byte
	if text, snmpErr = h.snmp.read(); snmpErr == nil {
		named(text, "Tcp:", map[string]*value{"InSegs": &t.in, "OutSegs": &t.out, "RetransSegs": &t.retrans, "InErrs": &t.errors})
	}
	if text, netstatErr = h.netstat.read(); netstatErr == nil {
		named(text, "TcpExt:", map[string]*value{
			"TCPTimeouts": &t.timeouts, "TCPLostRetransmit": &t.lost, "TCPSynRetrans": &t.syn, "ListenDrops": &t.drops,
		})
	}
	return t, snmpErr, netstatErr
}

// named reads a pair of lines that begin with title: the names, then as many
// numbers.
func named(text []byte, title string, want map[string]*value) {
	var names []byte
	for {
		l, rest, ok := line(text)
		if !ok {
			return
		}
		text = rest
		if !bytes.HasPrefix(l, []byte(title)) {
			continue
		}
		l = l[len(title):]
		if names == nil {
			names = l
			continue
		}
		for {
			var name, number1 []byte
			name, names = field(names)
			number1, l = field(l)
			if len(name) == 0 {
				return
			}
			if v := want[string(name)]; v != nil {
				*v = number(number1)
			}
		}
	}
}

// vm is what the host table takes from /proc/vmstat; pages.
type vm struct{ majorFaults, swapIn, swapOut, direct, migrated, kills value }

func (h *Host) readVM() (v vm, err error) {
	text, err := h.vmstat.read()
	if err != nil {
		return v, err
	}
	for {
		l, rest, ok := line(text)
		if !ok {
			return v, nil
		}
		text = rest
		name, l := field(l)
		var to *value
		switch string(name) {
		case "pgmajfault":
			to = &v.majorFaults
		case "pswpin":
			to = &v.swapIn
		case "pswpout":
			to = &v.swapOut
		case "pgscan_direct":
			to = &v.direct
		case "numa_pages_migrated":
			to = &v.migrated
		case "oom_kill":
			to = &v.kills
		default:
			continue
		}
		f, _ := field(l)
		*to = number(f)
	}
}

// memoryNode is a NUMA node's files.
type memoryNode struct {
	node              int64
	key               string
	meminfo, numastat file
}

func memoryNodes(sysRoot string) []memoryNode {
	dirs, _ := filepath.Glob(filepath.Join(sysRoot, "devices/system/node/node[0-9]*")) // the pattern is a good one
	var nodes []memoryNode
	for _, dir := range dirs {
		n, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(dir), "node"), 10, 32)
		if err != nil || n < 0 {
			continue
		}
		nodes = append(nodes, memoryNode{
			node: n, key: strconv.FormatInt(n, 10),
			meminfo: file{path: filepath.Join(dir, "meminfo")}, numastat: file{path: filepath.Join(dir, "numastat")},
		})
	}
	slices.SortFunc(nodes, func(a, b memoryNode) int { return int(a.node - b.node) })
	return nodes
}

// readNodes appends a row for each NUMA node.
func (h *Host) readNodes(out rankagent.Out) {
	if len(h.nodes) == 0 {
		out.Absent(table.NUMA, "", "", rankagent.NotFound, "no NUMA nodes in /sys/devices/system/node")
		return
	}
	for i := range h.nodes {
		n := &h.nodes[i]
		begin := out.Now()
		var total, free, files, anon value
		text, memErr := n.meminfo.read()
		prefix := fmt.Appendf(nil, "Node %d ", n.node)
		for memErr == nil {
			l, rest, ok := line(text)
			if !ok {
				break
			}
			text = rest
			name, l := field(bytes.TrimPrefix(l, prefix))
			switch string(name) {
			case "MemTotal:":
				total = kilobytes(l)
			case "MemFree:":
				free = kilobytes(l)
			case "FilePages:":
				files = kilobytes(l)
			case "AnonPages:":
				anon = kilobytes(l)
			}
		}
		var pages [5]value
		text, statErr := n.numastat.read()
		for statErr == nil {
			l, rest, ok := line(text)
			if !ok {
				break
			}
			text = rest
			name, l := field(l)
			if i := slices.Index(numaPages, string(name)); i >= 0 {
				f, _ := field(l)
				pages[i] = number(f)
			}
		}
		end := out.Now()
		row := out.Batch(table.NUMA).Append()
		row.Read(int64(begin), int64(end))
		row.Int(table.NUMANode, n.node)
		set(out, table.NUMA, row, n.key, memErr,
			column{table.NUMATotal, total},
			column{table.NUMAFree, free},
			column{table.NUMAFile, files},
			column{table.NUMAAnon, anon},
		)
		set(out, table.NUMA, row, n.key, statErr,
			column{table.NUMAHit, pages[0]},
			column{table.NUMAMiss, pages[1]},
			column{table.NUMAForeign, pages[2]},
			column{table.NUMALocal, pages[3]},
			column{table.NUMAOther, pages[4]},
		)
	}
}

var numaPages = []string{"numa_hit", "numa_miss", "numa_foreign", "local_node", "other_node"}
