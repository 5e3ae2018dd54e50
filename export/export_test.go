package export

// LimitCells bounds the frames that are filled at a time.
func (s *Source) LimitCells(n int) { s.cells = n }

// Ordinals are the GPUs' ordinals in their nodes.
var Ordinals = ordinals
