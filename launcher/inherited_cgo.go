//go:build linux && cgo

package launcher

/*
#include <fcntl.h>
#include <signal.h>

// Go's runtime opens /dev/null in place of closed standard descriptors and
// installs handlers over ignored signals before any Go code runs. What the
// process really inherited can only be read before that.
static unsigned gswarm_closed;
static unsigned long long gswarm_ignored;

__attribute__((constructor)) static void gswarm_look(void) {
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			gswarm_closed |= 1u << fd;
	for (int s = 1; s <= 64; s++) {
		struct sigaction sa;
		if (sigaction(s, 0, &sa) == 0 && sa.sa_handler == SIG_IGN)
			gswarm_ignored |= 1ull << (s - 1);
	}
}

static unsigned gswarm_get_closed(void) { return gswarm_closed; }
static unsigned long long gswarm_get_ignored(void) { return gswarm_ignored; }
*/
import "C"

// inherited returns which of the descriptors 0 to 2 were closed when the
// process began (bit n for descriptor n) and which signals were ignored (bit
// n-1 for signal n).
func inherited() (closed uint, ignored uint64) {
	return uint(C.gswarm_get_closed()), uint64(C.gswarm_get_ignored())
}
