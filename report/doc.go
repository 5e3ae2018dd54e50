// Package report renders what the analysis found: as text for a terminal, as
// JSON, as one self-contained HTML page, and as pictures.
//
// It opens no run and decides nothing: a Result goes in, and for curves the
// rows of its Source, and bytes come out. Names, commands and marks in them are
// whatever a job chose to be called, so every form escapes them.
package report
