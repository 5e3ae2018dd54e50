// Package plant makes runs whose trouble is known: the recorded job of eight
// H200s as it was, and jobs put together from it into which one cause was
// planted. It is for tests only, and for the proof of package analysis, with
// which it shares the types of its input and nothing else: no rule, no
// threshold, no way of looking at a row.
package plant
