// Command recode makes the stand-in's recording from the files that a recorder
// leaves, or gives those files back.
//
//	go run ./rankagent/gpu/nvmltest/recode -o testdata/nvml/h200x8.rec DIR
//	go run ./rankagent/gpu/nvmltest/recode -csv gpu testdata/nvml/h200x8.rec
//
// DIR holds meta.txt and gpu*.csv.gz.
package main

import (
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gswarm/gswarm/rankagent/gpu/nvmltest"
)

func main() {
	out := flag.String("o", "", "write the recording of `FILE`")
	csv := flag.String("csv", "", "print the table of this `NAME` (gpu, gpu_activity, gpu_power, ...) of a recording")
	flag.Parse()
	if err := run(*out, *csv, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "recode:", err)
		os.Exit(1)
	}
}

func run(out, csv, arg string) error {
	if arg == "" || (out == "") == (csv == "") {
		return errors.New("either -o FILE DIR or -csv TABLE FILE")
	}
	if csv != "" {
		return print(csv, arg)
	}
	meta, err := os.ReadFile(filepath.Join(arg, "meta.txt"))
	if err != nil {
		return err
	}
	r, err := nvmltest.Parse(string(meta), func(table string) (io.Reader, error) {
		return open(filepath.Join(arg, table+".csv.gz"))
	})
	if err != nil {
		return err
	}
	return os.WriteFile(out, r.Marshal(), 0o644)
}

func open(path string) (io.Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return gzip.NewReader(f)
}

func print(table, path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	r, err := nvmltest.Unmarshal(b)
	if err != nil {
		return err
	}
	text := r.CSV(table)
	if text == nil {
		return fmt.Errorf("no table %q", table)
	}
	_, err = os.Stdout.Write(text)
	return err
}
