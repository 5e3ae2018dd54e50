package shard

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gswarm/gswarm/table"
)

// What the footers of gswarm's Parquet files use of Parquet's enumerations.
const (
	physInt32  = 1
	physInt64  = 2
	physFloat  = 4
	physDouble = 5
	physBytes  = 6

	encodingPlain = 0
	encodingRLE   = 3
	encodingDelta = 5
	encodingDict  = 8 // RLE_DICTIONARY

	codecParquetZstd = 6

	pageData = 0
	pageDict = 2
)

// fileColumn is a column as a file's schema has it.
type fileColumn struct {
	name     string
	physical int8
	optional bool
}

// fileSchema is a file's columns. Files of one table share it.
type fileSchema struct {
	columns []fileColumn
	index   map[string]int
}

// chunk is what a footer says of a column chunk.
type chunk struct {
	// begin and size are where its pages lie; dict is where its dictionary
	// page does, 0 for none, and page where its first data page does.
	begin, size, dict, page int64
	// raw is the length of its pages before compression.
	raw    int64
	values int64
	// encodings and stats are as the footer has them: copied, not looked
	// into.
	encodings []byte
	stats     []byte
}

// rowGroup is the light index's entry of a row group. The chunks are read again
// from the footer when they are wanted.
type rowGroup struct {
	rows int64
	// tMin and tMax bound the first column, the time; known says whether
	// the file has them.
	tMin, tMax int64
	known      bool
	// sorted says that the file claims the rows are in order of the first
	// column.
	sorted bool
	// begin and end are where its column chunks lie; sum is their CRC32C,
	// where summed.
	begin, end int64
	sum        uint32
	summed     bool
	// at and length are where it stands in the footer.
	at, length int
}

// footer is what a file's footer says.
type footer struct {
	schema *fileSchema
	rows   int64
	groups []rowGroup
	kv     map[string]string
}

// parseFooter reads a footer that has been verified; data is the length of what
// lies before it and the trailer.
func parseFooter(b []byte, data int64) (*footer, error) {
	f := &footer{kv: make(map[string]string)}
	r := &thriftReader{b: b}
	var err error
	note := func(e error) {
		if e != nil && err == nil {
			err = e
			r.fail()
		}
	}
	r.fields(func(id int16, kind byte) bool {
		switch {
		case id == 2 && kind == thriftList:
			var e error
			f.schema, e = readSchema(r)
			note(e)
		case id == 3 && kind == thriftI64:
			f.rows = r.int()
		case id == 4 && kind == thriftList:
			n, _ := r.list()
			for range n {
				if r.err != nil || f.schema == nil {
					break
				}
				g, e := readRowGroup(r, f.schema, data, nil)
				if e != nil {
					e = fmt.Errorf("row group %d: %w", len(f.groups), e)
				}
				note(e)
				f.groups = append(f.groups, g)
			}
		case id == 5 && kind == thriftList:
			n, _ := r.list()
			for range n {
				var key, value string
				r.fields(func(id int16, kind byte) bool {
					switch {
					case id == 1 && kind == thriftBinary:
						key = string(r.bytes())
					case id == 2 && kind == thriftBinary:
						value = string(r.bytes())
					default:
						return false
					}
					return true
				})
				f.kv[key] = value
			}
		default:
			return false
		}
		return true
	})
	if err == nil {
		err = r.err
	}
	if err == nil && f.schema == nil {
		err = errors.New("it has no schema")
	}
	if err != nil {
		return nil, err
	}
	return f, f.sums()
}

// schemas keeps one copy of each schema that was met.
var schemas sync.Map // of the schema's bytes to *fileSchema

func readSchema(r *thriftReader) (*fileSchema, error) {
	begin := r.at
	s := &fileSchema{index: make(map[string]int)}
	n, _ := r.list()
	for i := range n {
		c := fileColumn{physical: -1}
		children, repetition := int64(0), int64(0)
		r.fields(func(id int16, kind byte) bool {
			switch {
			case id == 1 && kind == thriftI32:
				c.physical = int8(r.int())
			case id == 3 && kind == thriftI32:
				repetition = r.int()
			case id == 4 && kind == thriftBinary:
				c.name = string(r.bytes())
			case id == 5 && kind == thriftI32:
				children = r.int()
			default:
				return false
			}
			return true
		})
		if i == 0 {
			continue // the root
		}
		if children != 0 || repetition > 1 {
			return nil, fmt.Errorf("column %s is nested", c.name)
		}
		c.optional = repetition == 1
		s.index[c.name] = len(s.columns)
		s.columns = append(s.columns, c)
	}
	if r.err != nil {
		return nil, r.err
	}
	if len(s.index) != len(s.columns) || len(s.columns) == 0 {
		return nil, errors.New("its columns' names are not distinct")
	}
	if have, ok := schemas.LoadOrStore(string(r.b[begin:r.at]), s); ok {
		s, _ = have.(*fileSchema)
	}
	return s, nil
}

// readRowGroup reads one row group and checks that its chunks lie within the
// data. Chunks, if not nil, receives them.
func readRowGroup(r *thriftReader, s *fileSchema, data int64, chunks *[]chunk) (rowGroup, error) {
	g := rowGroup{at: r.at, begin: data}
	var err error
	column, first := 0, chunk{}
	r.fields(func(id int16, kind byte) bool {
		switch {
		case id == 1 && kind == thriftList:
			n, _ := r.list()
			if n != len(s.columns) {
				err = fmt.Errorf("it has %d columns of %d", n, len(s.columns))
				r.fail()
				return true
			}
			for ; column < n && r.err == nil; column++ {
				c, e := readChunk(r)
				if e == nil && (c.begin < 0 || c.size < 0 || c.begin > data || c.size > data-c.begin) {
					e = errors.New("it lies outside the file")
				}
				if e != nil {
					err = fmt.Errorf("column %s: %w", s.columns[column].name, e)
					r.fail()
					return true
				}
				if column == 0 {
					first = c
				}
				g.begin, g.end = min(g.begin, c.begin), max(g.end, c.begin+c.size)
				if chunks != nil {
					*chunks = append(*chunks, c)
				}
			}
		case id == 3 && kind == thriftI64:
			g.rows = r.int()
		case id == 4 && kind == thriftList:
			n, _ := r.list()
			for i := range n {
				idx, desc := int64(-1), false
				r.fields(func(id int16, kind byte) bool {
					switch {
					case id == 1 && kind == thriftI32:
						idx = r.int()
					case id == 2:
						desc = kind == thriftTrue
					default:
						return false
					}
					return true
				})
				if i == 0 {
					g.sorted = idx == 0 && !desc
				}
			}
		default:
			return false
		}
		return true
	})
	if err == nil {
		err = r.err
	}
	if err == nil && (column != len(s.columns) || g.rows <= 0 || g.rows > MaxRowGroup || first.values != g.rows) {
		err = fmt.Errorf("it claims %d rows", g.rows)
	}
	if err != nil {
		return g, err
	}
	g.length = r.at - g.at
	if s.columns[0].physical == physInt64 {
		g.tMin, g.tMax, g.known = intStats(first.stats)
	}
	return g, nil
}

func readChunk(r *thriftReader) (c chunk, err error) {
	codec := int64(-1)
	r.fields(func(id int16, kind byte) bool {
		if id != 3 || kind != thriftStruct {
			return false
		}
		r.fields(func(id int16, kind byte) bool {
			at := r.at
			switch {
			case id == 2 && kind == thriftList:
				r.skip(kind, 0)
				c.encodings = r.b[at:r.at]
			case id == 4 && kind == thriftI32:
				codec = r.int()
			case id == 5 && kind == thriftI64:
				c.values = r.int()
			case id == 6 && kind == thriftI64:
				c.raw = r.int()
			case id == 7 && kind == thriftI64:
				c.size = r.int()
			case id == 9 && kind == thriftI64:
				c.page = r.int()
			case id == 11 && kind == thriftI64:
				c.dict = r.int()
			case id == 12 && kind == thriftStruct:
				r.skip(kind, 0)
				c.stats = r.b[at:r.at]
			default:
				return false
			}
			return true
		})
		return true
	})
	if r.err != nil {
		return c, r.err
	}
	if codec != codecParquetZstd {
		return c, fmt.Errorf("it has codec %d; gswarm writes zstd", codec)
	}
	c.begin = c.page
	if c.dict > 0 {
		c.begin = min(c.begin, c.dict)
	}
	return c, nil
}

// intStats reads the least and greatest value of a chunk of 64-bit integers.
func intStats(stats []byte) (lo, hi int64, ok bool) {
	if len(stats) == 0 {
		return 0, 0, false
	}
	r := &thriftReader{b: stats}
	var minimum, maximum []byte
	r.fields(func(id int16, kind byte) bool {
		switch {
		case id == 5 && kind == thriftBinary:
			maximum = r.bytes()
		case id == 6 && kind == thriftBinary:
			minimum = r.bytes()
		default:
			return false
		}
		return true
	})
	if r.err != nil || len(minimum) != 8 || len(maximum) != 8 {
		return 0, 0, false
	}
	return int64(le.Uint64(minimum)), int64(le.Uint64(maximum)), true
}

// holds says whether a column of the file can be read as one of a table.
func holds(physical int8, to table.Type) bool {
	switch physical {
	case physInt64:
		return to == table.Int64 || to == table.Timestamp
	case physInt32:
		return to == table.Int32 || to == table.Int64
	case physDouble:
		return to == table.Float64
	case physFloat:
		return to == table.Float32 || to == table.Float64
	case physBytes:
		return to == table.String
	}
	return false
}
