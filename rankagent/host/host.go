// Package host reads what the kernel counts of the node as a whole: CPU time,
// memory, pressure, load, network interfaces, RDMA ports, block devices and
// network filesystems for the tables host, numa, net, infiniband, disk and
// filesystem, and the node's constant facts for meta.yaml.
//
// It reads files below /proc, /sys and /etc and nothing else: it starts no
// program, needs no privilege, and changes nothing. Counters are handed on as
// the kernel gives them, in the columns' units; what the kernel does not tell
// is null with a reason.
package host

import (
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"

	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// Options says where the node's files are. The zero value is the running
// system.
type Options struct {
	ProcRoot string // "/proc"
	SysRoot  string // "/sys"
	EtcRoot  string // "/etc"
	// Environ is the environment that Facts reports from; nil is the
	// process's own.
	Environ []string
}

func (o Options) withDefaults() Options {
	if o.ProcRoot == "" {
		o.ProcRoot = procfs.DefaultMountPoint
	}
	if o.SysRoot == "" {
		o.SysRoot = "/sys"
	}
	if o.EtcRoot == "" {
		o.EtcRoot = "/etc"
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	return o
}

// interval is the time between two readings.
const interval = time.Second

// Host is the node's kernel files, open for reading.
type Host struct {
	fs      procfs.FS
	page    int64
	stat    file
	meminfo file
	netdev  file
	disks   file
	snmp    file
	netstat file
	vmstat  file

	nets, blocks devices
	nodes        []memoryNode
	fabric       *fabric
	mounts       *mounts
}

// Open prepares the sources of the node. It fails only where there is no /proc
// at all.
func Open(opts Options) (*Host, error) {
	opts = opts.withDefaults()
	fs, err := procfs.NewFS(opts.ProcRoot)
	if err != nil {
		return nil, err
	}
	at := func(name string) file { return file{path: filepath.Join(opts.ProcRoot, name)} }
	return &Host{
		fs:      fs,
		page:    int64(os.Getpagesize()),
		stat:    at("stat"),
		meminfo: at("meminfo"),
		netdev:  at("net/dev"),
		disks:   at("diskstats"),
		snmp:    at("net/snmp"),
		netstat: at("net/netstat"),
		vmstat:  at("vmstat"),
		nodes:   memoryNodes(opts.SysRoot),
		fabric:  &fabric{root: filepath.Join(opts.SysRoot, "class/infiniband")},
		mounts:  &mounts{fs: fs, procRoot: opts.ProcRoot, sysRoot: opts.SysRoot},
	}, nil
}

// Sources returns the node's sources. The tables host, numa, net and disk have
// one cadence and together take a millisecond, so they share a goroutine. A
// port's counters are asked of the adapter's firmware and those of a filesystem
// of its driver; either may hang, and the others must not wait for it.
func (h *Host) Sources() []rankagent.Source { return []rankagent.Source{h, h.fabric, h.mounts} }

// Name implements rankagent.Source.
func (h *Host) Name() string { return "host" }

// Interval implements rankagent.Source.
func (h *Host) Interval() time.Duration { return interval }

// Close implements rankagent.Source. No file stays open between readings.
func (h *Host) Close() error { return nil }

// Read implements rankagent.Source. What it cannot read is a matter of single
// columns or tables, never of the source as a whole.
func (h *Host) Read(out rankagent.Out) error {
	h.readHost(out)
	h.readNodes(out)
	h.readNet(out)
	h.readDisk(out)
	return nil
}

// column ties a column to the value read for it.
type column struct {
	index int
	v     value
}

// readHost appends the row of the host table. All files are read before any
// value is stored, so that the row's window is short.
func (h *Host) readHost(out rankagent.Out) {
	begin := out.Now()
	var s stat
	text, statErr := h.stat.read()
	if statErr == nil {
		s = parseStat(text)
	}
	var m meminfo
	text, memErr := h.meminfo.read()
	if memErr == nil {
		m = parseMeminfo(text)
	}
	load, loadErr := h.fs.LoadAvg()
	cpu, cpuErr := h.fs.PSIStatsForResource("cpu")
	mem, psiMemErr := h.fs.PSIStatsForResource("memory")
	io, ioErr := h.fs.PSIStatsForResource("io")
	t, snmpErr, netstatErr := h.readTCP()
	v, vmErr := h.readVM()
	end := out.Now()

	row := out.Batch(table.Host).Append()
	row.Read(int64(begin), int64(end))
	set(out, table.Host, row, "", statErr,
		column{table.HostCPUUser, s.cpu[0].times(nsPerTick)},
		column{table.HostCPUNice, s.cpu[1].times(nsPerTick)},
		column{table.HostCPUSystem, s.cpu[2].times(nsPerTick)},
		column{table.HostCPUIdle, s.cpu[3].times(nsPerTick)},
		column{table.HostCPUIOWait, s.cpu[4].times(nsPerTick)},
		column{table.HostCPUIRQ, s.cpu[5].times(nsPerTick)},
		column{table.HostCPUSoftIRQ, s.cpu[6].times(nsPerTick)},
		column{table.HostCPUSteal, s.cpu[7].times(nsPerTick)},
		column{table.HostContextSwitches, s.switches},
		column{table.HostInterrupts, s.interrupts},
		column{table.HostForks, s.forks},
		column{table.HostProcsRunning, s.running},
		column{table.HostProcsBlocked, s.blocked},
		column{table.HostSoftIRQs, s.soft[0]},
		column{table.HostSoftIRQTimer, s.soft[2]},
		column{table.HostSoftIRQNetTx, s.soft[3]},
		column{table.HostSoftIRQNetRx, s.soft[4]},
		column{table.HostSoftIRQBlock, s.soft[5]},
		column{table.HostSoftIRQSched, s.soft[8]},
	)
	set(out, table.Host, row, "", snmpErr,
		column{table.HostTCPInSegs, t.in},
		column{table.HostTCPOutSegs, t.out},
		column{table.HostTCPRetransSegs, t.retrans},
		column{table.HostTCPInErrors, t.errors},
	)
	set(out, table.Host, row, "", netstatErr,
		column{table.HostTCPTimeouts, t.timeouts},
		column{table.HostTCPLostRetrans, t.lost},
		column{table.HostTCPSynRetrans, t.syn},
		column{table.HostTCPListenDrops, t.drops},
	)
	set(out, table.Host, row, "", vmErr,
		column{table.HostFaultsMajor, v.majorFaults},
		column{table.HostSwapIn, v.swapIn.times(h.page)},
		column{table.HostSwapOut, v.swapOut.times(h.page)},
		column{table.HostReclaimDirect, v.direct},
		column{table.HostNUMAMigrated, v.migrated},
		column{table.HostOOMKills, v.kills},
	)
	set(out, table.Host, row, "", memErr,
		column{table.HostMemTotal, m.total},
		column{table.HostMemFree, m.free},
		column{table.HostMemAvailable, m.available},
		column{table.HostMemCached, m.cached},
		column{table.HostMemDirty, m.dirty},
		column{table.HostSwapUsed, m.swapUsed()},
	)
	setLoad(out, row, load, loadErr)
	set(out, table.Host, row, "", pressureError(cpuErr, cpu.Some), column{table.HostPSICPUSome, pressure(cpu.Some)})
	set(out, table.Host, row, "", pressureError(psiMemErr, mem.Some), column{table.HostPSIMemSome, pressure(mem.Some)})
	set(out, table.Host, row, "", pressureError(psiMemErr, mem.Full), column{table.HostPSIMemFull, pressure(mem.Full)})
	set(out, table.Host, row, "", pressureError(ioErr, io.Some), column{table.HostPSIIOSome, pressure(io.Some)})
	set(out, table.Host, row, "", pressureError(ioErr, io.Full), column{table.HostPSIIOFull, pressure(io.Full)})
}

// setLoad stores the load average, the only value that is no integer.
func setLoad(out rankagent.Out, row table.Row, load *procfs.LoadAvg, err error) {
	const col = table.HostLoad1
	name := table.Host.Columns[col].Name
	switch {
	case err != nil:
		out.Absent(table.Host, name, "", reason(err), err.Error())
	case !(load.Load1 >= 0 && load.Load1 <= math.MaxFloat32): // not a number is neither
		out.Absent(table.Host, name, "", rankagent.InvalidValue, detailBad)
	default:
		row.Float(col, load.Load1)
		out.Present(table.Host, name, "")
	}
}

// pressureError turns a missing file or line into what it means: the kernel
// keeps no such account (it is older than 4.20, or booted without psi).
func pressureError(err error, l *procfs.PSILine) error {
	if err == nil && l == nil {
		return errPSI
	}
	if err != nil && reason(err) == rankagent.NotFound {
		return errPSI
	}
	return err
}

// pressure returns the line's total, which the kernel gives in microseconds,
// in nanoseconds.
func pressure(l *procfs.PSILine) value {
	if l == nil {
		return value{}
	}
	if l.Total > math.MaxInt64 {
		return value{state: bad}
	}
	return value{n: int64(l.Total), state: good}.times(1000)
}

// The details of absences that are no error's text.
const (
	detailMissing = "the kernel's file has no such value"
	detailBad     = "not a number that can be true"
	detailLine    = "a line that cannot be understood"
	detailGone    = "the device is gone"
)

// set stores the columns that have a value and says of the others why they have
// none: err, where their file could not be read.
func set(out rankagent.Out, t *table.Table, row table.Row, key string, err error, cols ...column) {
	for _, c := range cols {
		col := &t.Columns[c.index]
		switch {
		case err != nil:
			out.Absent(t, col.Name, key, reason(err), err.Error())
		case c.v.state == missing:
			out.Absent(t, col.Name, key, rankagent.NotFound, detailMissing)
		case c.v.state == bad, col.Type == table.Int32 && c.v.n > math.MaxInt32:
			out.Absent(t, col.Name, key, rankagent.InvalidValue, detailBad)
		default:
			row.Int(c.index, c.v.n)
			out.Present(t, col.Name, key)
		}
	}
}
