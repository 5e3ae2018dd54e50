package export

import (
	"encoding/binary"
	"math"
)

// message is an encoded protobuf message to which fields are appended. Two
// formats need a handful of fields each; their schemas are the projects' own.
type message []byte

// Wire types of protobuf.
const (
	wireVarint = 0
	wireFixed  = 1 // 64 bits
	wireBytes  = 2
)

func (m *message) tag(field, wire uint64) {
	*m = binary.AppendUvarint(*m, field<<3|wire)
}

// number appends a varint of an unsigned or never negative number.
func (m *message) number(field, v uint64) {
	m.tag(field, wireVarint)
	*m = binary.AppendUvarint(*m, v)
}

func (m *message) double(field uint64, v float64) {
	m.tag(field, wireFixed)
	*m = binary.LittleEndian.AppendUint64(*m, math.Float64bits(v))
}

func (m *message) bytes(field uint64, b []byte) {
	m.tag(field, wireBytes)
	*m = binary.AppendUvarint(*m, uint64(len(b)))
	*m = append(*m, b...)
}

func (m *message) text(field uint64, s string) {
	m.tag(field, wireBytes)
	*m = binary.AppendUvarint(*m, uint64(len(s)))
	*m = append(*m, s...)
}
