package launcher

import (
	"fmt"
	"strconv"
	"strings"
)

// maxHosts bounds what a damaged or hostile list may expand to.
const maxHosts = 1 << 17

// maxHostName is the longest name that DNS allows.
const maxHostName = 255

// ExpandHosts expands Slurm's list of hosts: "n[1-3,07],login" is n1, n2, n3,
// n07, login. Several brackets in one name multiply.
func ExpandHosts(list string) ([]string, error) {
	var hosts []string
	for _, item := range splitOutside(list) {
		expanded, err := expandOne(item)
		if err != nil {
			return nil, fmt.Errorf("host list %q: %w", list, err)
		}
		hosts = append(hosts, expanded...)
		if len(hosts) > maxHosts {
			return nil, fmt.Errorf("host list %q names more than %d hosts", list, maxHosts)
		}
	}
	return hosts, nil
}

// splitOutside splits at the commas that are outside brackets.
func splitOutside(list string) []string {
	var items []string
	depth, from := 0, 0
	for i := range len(list) {
		switch list[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				items = append(items, list[from:i])
				from = i + 1
			}
		}
	}
	items = append(items, list[from:])
	kept := items[:0]
	for _, s := range items {
		if s = strings.TrimSpace(s); s != "" {
			kept = append(kept, s)
		}
	}
	return kept
}

func expandOne(item string) ([]string, error) {
	open := strings.IndexByte(item, '[')
	if open < 0 {
		if strings.ContainsRune(item, ']') {
			return nil, fmt.Errorf("%q has a bracket that was never opened", item)
		}
		if len(item) > maxHostName {
			return nil, fmt.Errorf("a name of %d bytes is none of a host", len(item))
		}
		return []string{item}, nil
	}
	end := strings.IndexByte(item[open:], ']')
	if end < 0 {
		return nil, fmt.Errorf("%q has a bracket that is never closed", item)
	}
	end += open
	rest, err := expandOne(item[end+1:])
	if err != nil {
		return nil, err
	}
	var hosts []string
	for _, r := range strings.Split(item[open+1:end], ",") {
		lo, hi, isRange := strings.Cut(r, "-")
		if !isRange {
			hi = lo
		}
		a, errA := strconv.ParseUint(lo, 10, 32)
		b, errB := strconv.ParseUint(hi, 10, 32)
		if errA != nil || errB != nil || b < a {
			return nil, fmt.Errorf("%q is not a range", r)
		}
		if (b-a+1)*uint64(len(rest))+uint64(len(hosts)) > maxHosts {
			return nil, fmt.Errorf("%q names more than %d hosts", item, maxHosts)
		}
		if longest := open + len(hi) + len(lo) + len(rest[0]); longest > maxHostName {
			return nil, fmt.Errorf("a name of %d bytes is none of a host", longest)
		}
		for n := a; n <= b; n++ {
			for _, suffix := range rest {
				hosts = append(hosts, fmt.Sprintf("%s%0*d%s", item[:open], len(lo), n, suffix))
			}
		}
	}
	return hosts, nil
}
