package merge

import (
	"context"
	"errors"

	"github.com/gswarm/gswarm/shard"
	"github.com/gswarm/gswarm/table"
)

func sortedParts(t *table.Table, pieces []piece) []part { return nil }

func (m *merger) sorted(ctx context.Context, p *part, w *shard.ParquetWriter) (map[*node]int64, error) {
	return nil, errors.New("not yet")
}
