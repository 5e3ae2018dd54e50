package shard

import (
	"bytes"
	"encoding/base64"
	"fmt"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/ipc"

	"github.com/gswarm/gswarm/table"
)

// arrowTypes has an entry for every type that a column can have, which a test
// holds against all tables.
var arrowTypes = [...]arrow.DataType{
	table.Int64:     arrow.PrimitiveTypes.Int64,
	table.Int32:     arrow.PrimitiveTypes.Int32,
	table.Float64:   arrow.PrimitiveTypes.Float64,
	table.Float32:   arrow.PrimitiveTypes.Float32,
	table.String:    arrow.BinaryTypes.String,
	table.Timestamp: arrow.FixedWidthTypes.Timestamp_us,
}

func arrowType(t table.Type) arrow.DataType { return arrowTypes[t] }

// arrowSchema is t as Arrow has it. With described set each field carries what
// the table says of its column, which readers show beside the data.
func arrowSchema(t *table.Table, described bool) *arrow.Schema {
	fields := make([]arrow.Field, len(t.Columns))
	for i, c := range t.Columns {
		fields[i] = arrow.Field{Name: c.Name, Type: arrowType(c.Type), Nullable: !c.Required}
		if described {
			fields[i].Metadata = describe(c)
		}
	}
	return arrow.NewSchema(fields, nil)
}

func describe(c table.Column) arrow.Metadata {
	var keys, values []string
	for _, kv := range [][2]string{
		{"unit", c.Unit}, {"window", c.Window}, {"age", c.Age}, {"source", c.Source}, {"description", c.Doc},
	} {
		if kv[1] != "" {
			keys, values = append(keys, kv[0]), append(values, kv[1])
		}
	}
	return arrow.NewMetadata(keys, values)
}

// eosLen is the length of the end-of-stream mark of an IPC stream.
const eosLen = 8

// schemaMessage is the IPC message that a stream of the schema begins with.
func schemaMessage(s *arrow.Schema) ([]byte, error) {
	var buf bytes.Buffer
	if err := ipc.NewWriter(&buf, ipc.WithSchema(s)).Close(); err != nil {
		return nil, fmt.Errorf("encoding the schema: %w", err)
	}
	return buf.Bytes()[:buf.Len()-eosLen], nil
}

// field is a column as a spool's schema frame has it. The frame holds no IPC
// message: the library's schema decoder believes the lengths that it reads, and
// a wrong one cannot be recovered from.
type field struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Required bool   `json:"required,omitempty"`
}

func fieldsOf(t *table.Table) []field {
	out := make([]field, len(t.Columns))
	for i, c := range t.Columns {
		out[i] = field{Name: c.Name, Type: c.Type.String(), Required: c.Required}
	}
	return out
}

// schemaOf is the reverse of fieldsOf, as far as Arrow goes.
func schemaOf(fields []field) (*arrow.Schema, error) {
	out := make([]arrow.Field, len(fields))
	for i, f := range fields {
		out[i] = arrow.Field{Name: f.Name, Nullable: !f.Required}
		for t := table.Int64; t <= table.Timestamp; t++ {
			if t.String() == f.Type {
				out[i].Type = arrowType(t)
			}
		}
		if out[i].Type == nil {
			return nil, fmt.Errorf("column %s has the unknown type %q: use the gswarm that wrote it, or a newer one", f.Name, f.Type)
		}
	}
	return arrow.NewSchema(out, nil), nil
}

// arrowSchemaKey is the key under which Arrow's readers look for the schema
// that a Parquet file was written from.
const arrowSchemaKey = "ARROW:schema"

func arrowSchemaValue(t *table.Table) (string, error) {
	m, err := schemaMessage(arrowSchema(t, true))
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(m), nil
}
