package main

import (
	"bytes"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo-terminal so many columns wide.
func terminal(t *testing.T, columns uint16) *os.File {
	t.Helper()
	head, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { head.Close() })
	if err := unix.IoctlSetPointerInt(int(head.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(head.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: 24}); err != nil {
		t.Fatal(err)
	}
	return tty
}

// TestTextOptions: text is as wide as the terminal and coloured there, and plain
// wherever else it goes.
func TestTextOptions(t *testing.T) {
	read, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer pipe.Close()
	for _, c := range []struct {
		name   string
		out    any
		env    []string
		width  int
		colour bool
	}{
		{"terminal", uint16(60), []string{"TERM=xterm"}, 60, true},
		{"wide terminal", uint16(250), nil, 100, true},
		{"terminal of no size", uint16(0), nil, 80, true},
		{"NO_COLOR", uint16(90), []string{"NO_COLOR=1"}, 90, false},
		{"empty NO_COLOR", uint16(90), []string{"NO_COLOR="}, 90, true},
		{"dumb", uint16(90), []string{"TERM=dumb"}, 90, false},
		{"COLUMNS", uint16(90), []string{"COLUMNS=44"}, 44, true},
		{"pipe", pipe, []string{"TERM=xterm"}, 80, false},
		{"pipe with COLUMNS", pipe, []string{"COLUMNS=120"}, 120, false},
		{"odd COLUMNS", pipe, []string{"COLUMNS=wide"}, 80, false},
		{"memory", &bytes.Buffer{}, nil, 80, false},
	} {
		a := &app{env: c.env}
		switch out := c.out.(type) {
		case uint16:
			a.stdout = terminal(t, out)
		case *os.File:
			a.stdout = out
		case *bytes.Buffer:
			a.stdout = out
		}
		if o := a.textOptions("run"); o.Width != c.width || o.Colour != c.colour || o.Dir != "run" {
			t.Errorf("%s: %+v, want %d, %v", c.name, o, c.width, c.colour)
		}
	}
}
