package nvmltest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sums are the SHA-256 sums of the files that the recorder left, uncompressed.
var sums = map[string]string{
	"gpu":          "49f68821ea4e70b4d11becf6d31ae13870b54b9e7980d9ab915024ce5748f2a6",
	"gpu_activity": "ff92bf5e1c4d6ece63d1f94ca003dff7e7ab53f508f633fb7000aeac8975453c",
	"gpu_power":    "e20496f064b08ba893db82465bfaabbae2d31a5727d8baa8c8bf25ed442eef0b",
	"gpu_counter":  "ac268b749c67bd0529af83d55bfc0b8764210a774d8a1b8a3d61b20aa70480f4",
	"gpu_process":  "5df2a69059d0372fccbfd19502fd35876f03c728d3468b067f872320f8a52575",
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// TestRecordingIsLossless proves that the recording holds the recorded CSV
// files to the last digit.
func TestRecordingIsLossless(t *testing.T) {
	r, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for table, want := range sums {
		if got := sum(r.CSV(table)); got != want {
			t.Errorf("%s.csv has SHA-256 %s, recorded was %s", table, got, want)
		}
	}
	if len(r.GPUs) != 8 || r.Driver != "580.159.04" {
		t.Errorf("%d GPUs, driver %q", len(r.GPUs), r.Driver)
	}
}

// TestParseMarshal takes the CSV files through Parse, Marshal and Unmarshal.
func TestParseMarshal(t *testing.T) {
	r, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	meta := "driver 1.2.3 devices 2 anchor_raw_ns 36 anchor_real_ns 1795\n" +
		"gpu 0 NVIDIA H200 GPU-a 00000000:00:06.0 power_limit_mw 700000 mem_total 150754820096 numa 0\n" +
		"gpu 1 Other GPU-b 00000000:00:07.0 power_limit_mw 1 mem_total 2 numa 0\n"
	again, err := Parse(meta, func(table string) (io.Reader, error) { return bytes.NewReader(r.CSV(table)), nil })
	if err != nil {
		t.Fatal(err)
	}
	again, err = Unmarshal(again.Marshal())
	if err != nil {
		t.Fatal(err)
	}
	for table, want := range sums {
		if sum(again.CSV(table)) != want {
			t.Errorf("%s changed on the way", table)
		}
	}
	want := GPU{"NVIDIA H200", "GPU-a", "00000000:00:06.0", 700000, 150754820096}
	if len(again.GPUs) != 2 || again.GPUs[0] != want || again.Driver != "1.2.3" || again.AnchorRaw != 36 || again.AnchorReal != 1795 {
		t.Errorf("got %q %+v", again.Driver, again.GPUs)
	}
}

func TestUnmarshalRejectsDamage(t *testing.T) {
	src, err := Sources()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(src, RecordingName))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 7, 8, 100, len(b) / 2, len(b) - 1} {
		if _, err := Unmarshal(b[:n]); err == nil {
			t.Errorf("the first %d bytes pass for a recording", n)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(magic))
	small := &Recording{Driver: "1", GPUs: []GPU{{"a", "b", "c", 1, 2}},
		Cheap: Table{"gpu", cheapColumns, []Row{{0, 1, make([]int64, len(cheapColumns))}}}}
	f.Add(small.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		_, _ = Unmarshal(b)
	})
}

// TestABI compares the stand-in's structures with the header that go-nvml is
// made from.
func TestABI(t *testing.T) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skip("no C compiler")
	}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Skipf("go list: %v", err)
	}
	src, err := Sources()
	if err != nil {
		t.Fatal(err)
	}
	header := filepath.Join(strings.TrimSpace(string(dir)), "pkg", "nvml")
	out, err := exec.Command(cc, "-fsyntax-only", "-I", header, filepath.Join(src, "abi_check.c")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
