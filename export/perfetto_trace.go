package export

import (
	"bytes"
	"compress/zlib"
	"io"
	"slices"
	"strings"
)

// Field numbers of perfetto/trace/trace_packet.proto and what it includes.
const (
	traceClock    = 6 // BOOTTIME, in which track events are read
	realtimeClock = 1

	tracePacket = 1

	packetClockSnapshot = 6
	packetTimestamp     = 8
	packetSequence      = 10
	packetTrackEvent    = 11
	packetInterned      = 12
	packetFlags         = 13
	packetCompressed    = 50
	packetTrack         = 60

	flagCleared = 1 // interned data begin anew
	flagNeeds   = 2 // interned data are referred to

	trackUUID     = 1
	trackName     = 2
	trackParent   = 5
	trackCounter  = 8
	trackOrdering = 11
	trackRank     = 12
	trackText     = 14

	orderingExplicit = 3

	counterUnitName = 6
	counterAxisKey  = 7

	eventAnnotation = 4
	eventType       = 9
	eventNameID     = 10
	eventTrack      = 11
	eventName       = 23
	eventDouble     = 44

	sliceBegin   = 1
	sliceEnd     = 2
	instantEvent = 3
	counterEvent = 4

	internedNames = 2
	internedID    = 1
	internedName  = 2

	annotationBool   = 2
	annotationInt    = 4
	annotationDouble = 5
	annotationText   = 6
	annotationName   = 10
)

// blockSize is the length of packets that are compressed together; the viewer
// refuses what decompresses to much more.
const blockSize = 256 << 10

// trackID names a track; 0 is none.
type trackID uint64

// trackWriter writes a Perfetto trace of track events: one sequence of packets,
// compressed block by block.
type trackWriter struct {
	w      io.Writer
	block  message
	packet message
	inner  message
	zip    *zlib.Writer
	zipped bytes.Buffer
	tracks trackID
	names  map[string]uint64
	// points and slices count what was written.
	points, slices int64
	err            error
}

// newTrackWriter begins a trace. The times are nanoseconds since the Unix epoch;
// begin is one of them.
func newTrackWriter(w io.Writer, begin int64) (*trackWriter, error) {
	t := &trackWriter{w: w, names: make(map[string]uint64)}
	var err error
	if t.zip, err = zlib.NewWriterLevel(nil, zlib.BestSpeed); err != nil {
		return nil, err
	}
	// The viewer takes stamps for the time since boot; that the wall clock reads
	// the same lets it show dates.
	var snapshot message
	for _, id := range []uint64{traceClock, realtimeClock} {
		var clock message
		clock.number(1, id)
		clock.number(2, uint64(begin))
		snapshot.bytes(1, clock)
	}
	t.packet = t.packet[:0]
	t.packet.bytes(packetClockSnapshot, snapshot)
	t.packet.number(packetFlags, flagCleared)
	t.emit()
	return t, t.err
}

// emit ends the packet.
func (t *trackWriter) emit() {
	t.packet.number(packetSequence, 1)
	t.block.bytes(tracePacket, t.packet)
	t.packet = t.packet[:0]
	if len(t.block) >= blockSize {
		t.flush()
	}
}

// flush writes the block.
func (t *trackWriter) flush() {
	if t.err != nil || len(t.block) == 0 {
		return
	}
	t.zipped.Reset()
	t.zip.Reset(&t.zipped)
	_, t.err = t.zip.Write(t.block)
	if t.err == nil {
		t.err = t.zip.Close()
	}
	if t.err != nil {
		return
	}
	var packet, whole message
	packet.bytes(packetCompressed, t.zipped.Bytes())
	whole.bytes(tracePacket, packet)
	_, t.err = t.w.Write(whole)
	t.block = t.block[:0]
}

func (t *trackWriter) close() error {
	t.flush()
	return t.err
}

// track describes a track below another; order places it among its siblings.
type track struct {
	parent trackID
	name   string
	text   string
	order  int
	// unit and axis make it a counter's: what it counts in, and the tracks that
	// share its scale.
	unit, axis string
}

func (t *trackWriter) track(d track) trackID {
	t.tracks++
	var m message
	m.number(trackUUID, uint64(t.tracks))
	m.text(trackName, valid(d.name))
	if d.parent != 0 {
		m.number(trackParent, uint64(d.parent))
	}
	if d.unit != "" {
		var c message
		c.text(counterUnitName, d.unit)
		c.text(counterAxisKey, d.axis)
		m.bytes(trackCounter, c)
	} else {
		m.number(trackOrdering, orderingExplicit)
	}
	m.number(trackRank, uint64(d.order))
	if d.text != "" {
		m.text(trackText, valid(d.text))
	}
	t.packet.bytes(packetTrack, m)
	t.emit()
	return t.tracks
}

// counter gives a counter's track a value from at on.
func (t *trackWriter) counter(id trackID, at int64, v float64) {
	t.inner = t.inner[:0]
	t.inner.number(eventType, counterEvent)
	t.inner.number(eventTrack, uint64(id))
	t.inner.double(eventDouble, v)
	t.packet.number(packetTimestamp, uint64(at))
	t.packet.bytes(packetTrackEvent, t.inner)
	t.points++
	t.emit()
}

// note is a name with a value: a string, an int64, a float64 or a bool.
type note struct {
	name  string
	value any
}

// slice writes a stretch of time; those of one track must nest.
func (t *trackWriter) slice(id trackID, begin, end int64, name string, notes []note) {
	t.event(id, begin, sliceBegin, name, notes)
	t.event(id, end, sliceEnd, "", nil)
	t.slices++
}

// instant writes a happening.
func (t *trackWriter) instant(id trackID, at int64, name string, notes []note) {
	t.event(id, at, instantEvent, name, notes)
}

func (t *trackWriter) event(id trackID, at int64, kind uint64, name string, notes []note) {
	t.inner = t.inner[:0]
	t.inner.number(eventType, kind)
	t.inner.number(eventTrack, uint64(id))
	if name != "" {
		t.name(name)
	}
	for _, n := range notes {
		var m message
		m.text(annotationName, valid(n.name))
		switch v := n.value.(type) {
		case string:
			m.text(annotationText, valid(v))
		case int64:
			m.number(annotationInt, uint64(v))
		case float64:
			m.double(annotationDouble, v)
		case bool:
			b := uint64(0)
			if v {
				b = 1
			}
			m.number(annotationBool, b)
		}
		t.inner.bytes(eventAnnotation, m)
	}
	t.packet.number(packetTimestamp, uint64(at))
	t.packet.bytes(packetTrackEvent, t.inner)
	t.packet.number(packetFlags, flagNeeds)
	t.emit()
}

// maxNames bounds the names that are interned: the reader holds them all.
const maxNames = 4096

// name refers to a name that stands once in the trace, and writes it there at
// its first use.
func (t *trackWriter) name(name string) {
	name = valid(name)
	id, ok := t.names[name]
	if !ok && len(t.names) == maxNames {
		t.inner.text(eventName, name)
		return
	}
	if !ok {
		id = uint64(len(t.names) + 1)
		t.names[name] = id
		var entry, interned message
		entry.number(internedID, id)
		entry.text(internedName, name)
		interned.bytes(internedNames, entry)
		t.packet.bytes(packetInterned, interned)
	}
	t.inner.number(eventNameID, id)
}

// valid is a text as protobuf wants it.
func valid(s string) string { return strings.ToValidUTF8(s, "�") }

// thinner passes the values of one series on: all of them, or of every bucket of
// time the least and the greatest, each with its own time, so that no peak is
// lost.
type thinner struct {
	bucket int64 // ns, 0 for all
	open   bool
	at     int64 // the bucket's number
	lo, hi point
}

type point struct {
	t int64
	v float64
}

// add takes a value; out gets what has become final.
func (h *thinner) add(p point, out func(point)) {
	if h.bucket == 0 {
		out(p)
		return
	}
	at := p.t / h.bucket
	if h.open && at == h.at {
		if p.v < h.lo.v {
			h.lo = p
		}
		if p.v > h.hi.v {
			h.hi = p
		}
		return
	}
	h.flush(out)
	h.open, h.at, h.lo, h.hi = true, at, p, p
}

func (h *thinner) flush(out func(point)) {
	if !h.open {
		return
	}
	h.open = false
	two := []point{h.lo, h.hi}
	if h.lo.t > h.hi.t {
		slices.Reverse(two)
	}
	out(two[0])
	if two[1] != two[0] {
		out(two[1])
	}
}
