package host

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/gswarm/gswarm/rankagent"
	"github.com/gswarm/gswarm/table"
)

// mounts reads what the kernel counts of the network filesystems that are
// mounted. It asks the client's counters only and never a server: a mount whose
// server is gone would hang whoever touches it.
type mounts struct {
	fs                procfs.FS
	procRoot, sysRoot string
	known             map[string]bool
}

// without are network filesystems whose clients keep no counters that a user
// may read.
var without = []string{"gpfs", "beegfs", "ceph", "wekafs", "cifs", "smb3", "pvfs2", "orangefs", "daos", "9p", "virtiofs"}

// Name implements rankagent.Source.
func (m *mounts) Name() string { return "filesystem" }

// Interval implements rankagent.Source.
func (m *mounts) Interval() time.Duration { return interval }

// Close implements rankagent.Source.
func (m *mounts) Close() error { return nil }

// Read implements rankagent.Source.
func (m *mounts) Read(out rankagent.Out) error {
	here, err := m.networked()
	if err != nil {
		out.Absent(table.Filesystem, "", "", reason(err), err.Error())
		return nil
	}
	if len(here) == 0 {
		out.Absent(table.Filesystem, "", "", rankagent.NotFound, "no network filesystem is mounted")
	} else {
		out.Present(table.Filesystem, "", "")
	}
	now := map[string]bool{}
	nfs := false
	for _, mnt := range here {
		now[mnt.MountPoint] = true
		switch {
		case mnt.FSType == "lustre":
			m.readLustre(out, mnt)
		case strings.HasPrefix(mnt.FSType, "nfs"):
			nfs = true
		default:
			out.Absent(table.Filesystem, "", clean(mnt.MountPoint), rankagent.NotSupported,
				"the client of "+mnt.FSType+" keeps no counters that a user may read")
		}
	}
	if nfs {
		m.readNFS(out)
	}
	for name := range m.known {
		if !now[name] {
			out.Absent(table.Filesystem, "", clean(name), rankagent.NotFound, "no longer mounted")
		}
	}
	m.known = now
	return nil
}

// networked lists the network filesystems, each mount point once: the last one
// mounted on it is what programs see.
func (m *mounts) networked() ([]*procfs.MountInfo, error) {
	all, err := m.fs.GetMounts()
	if err != nil {
		return nil, err
	}
	var here []*procfs.MountInfo
	for _, mnt := range all {
		if mnt.FSType != "lustre" && mnt.FSType != "nfs" && mnt.FSType != "nfs4" && !slices.Contains(without, mnt.FSType) {
			continue
		}
		here = slices.DeleteFunc(here, func(o *procfs.MountInfo) bool { return o.MountPoint == mnt.MountPoint })
		here = append(here, mnt)
	}
	return here, nil
}

// start appends a mount's row.
func start(out rankagent.Out, begin int64, mount, device, fsType string) (row table.Row, key string) {
	key = clean(mount)
	row = out.Batch(table.Filesystem).Append()
	row.Read(begin, int64(out.Now()))
	row.String(table.FSMount, key)
	row.String(table.FSDevice, clean(device))
	row.String(table.FSType, fsType)
	out.Present(table.Filesystem, "", key)
	return row, key
}

// readNFS appends a row for each NFS mount.
func (m *mounts) readNFS(out rankagent.Out) {
	begin := int64(out.Now())
	self, err := m.fs.Self()
	var stats []*procfs.Mount
	if err == nil {
		stats, err = self.MountStats()
	}
	if err != nil {
		out.Absent(table.Filesystem, "", "nfs", reason(err), err.Error())
		return
	}
	out.Present(table.Filesystem, "", "nfs")
	seen := map[string]bool{}
	for _, mnt := range stats {
		nfs, ok := mnt.Stats.(*procfs.MountStatsNFS)
		if !ok || seen[mnt.Mount] {
			continue
		}
		seen[mnt.Mount] = true
		row, key := start(out, begin, mnt.Mount, mnt.Device, mnt.Type)
		var t operations
		for _, o := range nfs.Operations {
			t.add(o)
		}
		b := nfs.Bytes
		set(out, table.Filesystem, row, key, nil,
			column{table.FSReadBytes, unsigned(b.Read).plus(unsigned(b.DirectRead))},
			column{table.FSWriteBytes, unsigned(b.Write).plus(unsigned(b.DirectWrite))},
			column{table.FSReadServerBytes, unsigned(b.ReadTotal)},
			column{table.FSWriteServerBytes, unsigned(b.WriteTotal)},
			column{table.FSReads, t.reads},
			column{table.FSReadTime, t.readTime.times(nsPerMilli)},
			column{table.FSWrites, t.writes},
			column{table.FSWriteTime, t.writeTime.times(nsPerMilli)},
			column{table.FSMeta, t.others},
			column{table.FSMetaTime, t.otherTime.times(nsPerMilli)},
			column{table.FSTransmissions, t.sent},
			column{table.FSQueueTime, t.queued.times(nsPerMilli)},
			column{table.FSTimeouts, t.timeouts},
		)
	}
}

// operations adds up what a mount did.
type operations struct {
	reads, readTime, writes, writeTime, others, otherTime, sent, queued, timeouts value
}

func (t *operations) add(o procfs.NFSOperationStats) {
	count, spent := unsigned(o.Requests), unsigned(o.CumulativeTotalRequestMilliseconds)
	switch o.Operation {
	case "READ":
		t.reads, t.readTime = count, spent
	case "WRITE":
		t.writes, t.writeTime = count, spent
	default:
		t.others, t.otherTime = t.others.plus(count), t.otherTime.plus(spent)
	}
	t.sent = t.sent.plus(unsigned(o.Transmissions))
	t.queued = t.queued.plus(unsigned(o.CumulativeQueueMilliseconds))
	t.timeouts = t.timeouts.plus(unsigned(o.MajorTimeouts))
}

// unsigned is a number of procfs's; what does not fit is bad.
func unsigned(n uint64) value {
	if n > math.MaxInt64 {
		return value{state: bad}
	}
	return value{n: int64(n), state: good}
}

// plus adds two values; a missing one counts as nothing.
func (v value) plus(o value) value {
	switch {
	case v.state == bad || o.state == bad || v.ok() && o.ok() && v.n > math.MaxInt64-o.n:
		return value{state: bad}
	case !v.ok():
		return o
	case !o.ok():
		return v
	}
	return value{n: v.n + o.n, state: good}
}

// readLustre appends the row of a Lustre mount. Its client's counters have
// moved: from /proc to debugfs, which is root's.
func (m *mounts) readLustre(out rankagent.Out, mnt *procfs.MountInfo) {
	begin := int64(out.Now())
	name := mnt.Source
	if i := strings.LastIndexByte(name, '/'); i >= 0 { // 10.0.0.1@o2ib:/work
		name = name[i+1:]
	}
	err := fmt.Errorf("the client's counters of %s: %w", name, fs.ErrNotExist)
	for _, dir := range []string{
		filepath.Join(m.procRoot, "fs/lustre/llite"), filepath.Join(m.sysRoot, "fs/lustre/llite"),
		filepath.Join(m.sysRoot, "kernel/debug/lustre/llite"),
	} {
		entries, derr := os.ReadDir(dir)
		if derr != nil {
			if errors.Is(derr, fs.ErrPermission) {
				err = derr
			}
			continue
		}
		for _, e := range entries {
			if e.Name() != name && !strings.HasPrefix(e.Name(), name+"-") {
				continue
			}
			f := file{path: filepath.Join(dir, e.Name(), "stats")}
			text, ferr := f.read()
			if ferr != nil {
				if errors.Is(ferr, fs.ErrPermission) {
					err = ferr
				}
				continue
			}
			l := parseLustre(text)
			row, key := start(out, begin, mnt.MountPoint, mnt.Source, mnt.FSType)
			set(out, table.Filesystem, row, key, nil,
				column{table.FSReadBytes, l.readBytes},
				column{table.FSWriteBytes, l.writeBytes},
				column{table.FSReads, l.reads},
				column{table.FSReadTime, l.readTime.times(1000)},
				column{table.FSWrites, l.writes},
				column{table.FSWriteTime, l.writeTime.times(1000)},
				column{table.FSMeta, l.others},
				column{table.FSMetaTime, l.otherTime.times(1000)},
			)
			for _, c := range []int{table.FSReadServerBytes, table.FSWriteServerBytes, table.FSTransmissions, table.FSQueueTime, table.FSTimeouts} {
				out.Absent(table.Filesystem, table.Filesystem.Columns[c].Name, key, rankagent.NotSupported, "Lustre's client does not count it")
			}
			return
		}
	}
	out.Absent(table.Filesystem, "", clean(mnt.MountPoint), reason(err), err.Error())
}

// lustre is what llite's stats tell; times in microseconds.
type lustre struct {
	reads, readBytes, readTime, writes, writeBytes, writeTime, others, otherTime value
}

// parseLustre reads lines of NAME COUNT samples [UNIT] MIN MAX SUM SUMSQ. Old
// versions have no times: their operations end behind the unit.
func parseLustre(text []byte) (s lustre) {
	for {
		l, rest, ok := line(text)
		if !ok {
			return s
		}
		text = rest
		name, l := field(l)
		f, l := field(l)
		count := number(f)
		word, l := field(l)
		unit, l := field(l)
		if string(word) != "samples" || !count.ok() {
			continue
		}
		var v [3]value
		numbers(l, v[:])
		var spent value
		if string(unit) == "[usec]" || string(unit) == "[usecs]" {
			spent = v[2]
		}
		switch string(name) {
		case "read_bytes":
			s.reads, s.readBytes = count, v[2]
		case "write_bytes":
			s.writes, s.writeBytes = count, v[2]
		case "read":
			s.readTime = spent
		case "write":
			s.writeTime = spent
		default:
			s.others, s.otherTime = s.others.plus(count), s.otherTime.plus(spent)
		}
	}
}
