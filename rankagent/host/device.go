package host

import (
	"bytes"

	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// devices remembers the devices of the last reading, to notice those that
// vanish and to make each name's string once.
type devices struct {
	known   map[string]*device
	reading uint64
}

type device struct {
	name string
	seen uint64 // the reading it was last seen in
	skip bool   // it gets no row
}

// see notes that a device is there. It returns nil for a name that was on an
// earlier line of the same reading, and fresh for one that the last reading
// had not.
func (ds *devices) see(name []byte) (d *device, fresh bool) {
	if d = ds.known[string(name)]; d == nil {
		if ds.known == nil {
			ds.known = map[string]*device{}
		}
		d, fresh = &device{name: string(name)}, true
		ds.known[d.name] = d
	}
	if d.seen == ds.reading {
		return nil, false
	}
	d.seen = ds.reading
	return d, fresh
}

// has reports whether a device was seen, in this reading or the last.
func (ds *devices) has(name string) bool { return ds.known[name] != nil }

// end closes a reading. Devices that it had not are gone: they are reported
// once and forgotten, so that a node whose containers come and go does not fill
// the memory. Where some line could not be understood, a device may be missing
// that is not known by name, and none can be said to be gone.
func (ds *devices) end(out rankagent.Out, t *table.Table, clean bool) {
	if !clean {
		out.Absent(t, "", "", rankagent.InvalidValue, detailLine)
		return
	}
	out.Present(t, "", "")
	for name, d := range ds.known {
		if d.seen == ds.reading {
			continue
		}
		if !d.skip {
			out.Absent(t, "", name, rankagent.NotFound, detailGone)
		}
		delete(ds.known, name)
	}
}

// readNet appends a row for each network interface but the loopback.
func (h *Host) readNet(out rankagent.Out) {
	begin := out.Now()
	text, err := h.netdev.read()
	end := out.Now()
	if err != nil {
		out.Absent(table.Net, "", "", reason(err), err.Error())
		return
	}
	h.nets.reading++
	headed, clean := false, true
	for len(text) > 0 {
		l, rest, whole := line(text)
		text = rest
		if whole && bytes.IndexByte(l, '|') >= 0 && bytes.IndexByte(l, ':') < 0 {
			headed = true
			continue
		}
		var v [netFields]value
		name, ok := parseNetLine(l, &v)
		if !whole || !ok {
			clean = false
			continue
		}
		if string(name) == "lo" {
			continue
		}
		d, fresh := h.nets.see(name)
		if d == nil {
			clean = false
			continue
		}
		if fresh {
			out.Present(table.Net, "", d.name)
		}
		row := out.Batch(table.Net).Append()
		row.Read(int64(begin), int64(end))
		row.String(table.NetDevice, d.name)
		set(out, table.Net, row, d.name, nil,
			column{table.NetRxBytes, v[0]},
			column{table.NetRxPackets, v[1]},
			column{table.NetRxErrors, v[2]},
			column{table.NetRxDropped, v[3]},
			column{table.NetTxBytes, v[8]},
			column{table.NetTxPackets, v[9]},
			column{table.NetTxErrors, v[10]},
			column{table.NetTxDropped, v[11]},
		)
	}
	h.nets.end(out, table.Net, headed && clean)
}

// readDisk appends a row for each whole block device that is not memory or a
// file in disguise.
func (h *Host) readDisk(out rankagent.Out) {
	begin := out.Now()
	text, err := h.disks.read()
	end := out.Now()
	if err != nil {
		out.Absent(table.Disk, "", "", reason(err), err.Error())
		return
	}
	h.blocks.reading++
	clean := true
	for len(text) > 0 {
		l, rest, whole := line(text)
		text = rest
		var v [allDiskFields]value
		name, ok := parseDiskLine(l, &v)
		if !whole || !ok {
			clean = false
			continue
		}
		d, fresh := h.blocks.see(name)
		if d == nil {
			clean = false
			continue
		}
		if fresh {
			// The kernel lists a disk before its partitions.
			disk, stem := diskOf(d.name)
			d.skip = disk != "" && h.blocks.has(disk) ||
				stem == "loop" || stem == "ram" || stem == "zram"
		}
		if d.skip {
			continue
		}
		if fresh {
			out.Present(table.Disk, "", d.name)
		}
		row := out.Batch(table.Disk).Append()
		row.Read(int64(begin), int64(end))
		row.String(table.DiskDevice, d.name)
		// Field 1 and 5 are merged requests.
		set(out, table.Disk, row, d.name, nil,
			column{table.DiskReads, v[0]},
			column{table.DiskReadBytes, v[2].times(sectorBytes)},
			column{table.DiskReadTime, v[3].times(nsPerMilli)},
			column{table.DiskWrites, v[4]},
			column{table.DiskWriteBytes, v[6].times(sectorBytes)},
			column{table.DiskWriteTime, v[7].times(nsPerMilli)},
			column{table.DiskInFlight, v[8]},
			column{table.DiskBusy, v[9].times(nsPerMilli)},
			column{table.DiskQueueTime, v[10].times(nsPerMilli)},
			column{table.DiskDiscards, v[11]},
			column{table.DiskDiscardBytes, v[13].times(sectorBytes)},
			column{table.DiskFlushes, v[15]},
			column{table.DiskFlushTime, v[16].times(nsPerMilli)},
		)
	}
	h.blocks.end(out, table.Disk, clean)
}
