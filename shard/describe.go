package shard

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/ipc"

	"github.com/gswarm/gswarm/table"
)

// ColumnInfo is what a Parquet file says of one of its columns.
type ColumnInfo struct {
	Name     string
	Type     string // as table.Type has it
	Required bool
	Unit     string
	Window   string
}

// Describe compares a Parquet file with its checksums and returns what it says
// of its columns.
func Describe(path string) (columns []ColumnInfo, err error) {
	if err := VerifyParquet(path); err != nil {
		return nil, err
	}
	in, err := ReadInfo(path)
	if err != nil {
		return nil, err
	}
	defer guard(&err)
	described, err := describedSchema(in.Metadata[arrowSchemaKey])
	if err != nil {
		return nil, &CorruptError{Path: path, Err: err}
	}
	for _, f := range described.Fields() {
		c := ColumnInfo{
			Name: f.Name, Type: f.Type.String(), Required: !f.Nullable,
			Unit: metadataValue(f, "unit"), Window: metadataValue(f, "window"),
		}
		for t := table.Int64; t <= table.Timestamp; t++ {
			if arrow.TypeEqual(f.Type, arrowType(t)) {
				c.Type = t.String()
			}
		}
		columns = append(columns, c)
	}
	return columns, nil
}

func metadataValue(f arrow.Field, key string) string {
	if i := f.Metadata.FindKey(key); i >= 0 {
		return f.Metadata.Values()[i]
	}
	return ""
}

// describedSchema decodes the schema that a file was written from. It is called
// behind a checksum only: the library believes the lengths within.
func describedSchema(value string) (*arrow.Schema, error) {
	b, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", arrowSchemaKey, err)
	}
	const prefix = 8 // continuation mark and length
	if len(b) < prefix || int64(binary.LittleEndian.Uint32(b[4:])) > int64(len(b)-prefix) {
		return nil, errors.New(arrowSchemaKey + ": it is cut short")
	}
	r, err := ipc.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", arrowSchemaKey, err)
	}
	defer r.Release()
	return r.Schema(), nil
}
