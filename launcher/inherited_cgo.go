//go:build linux && cgo

package launcher

/*
#include <fcntl.h>
#include <signal.h>

// Go's runtime opens /dev/null in place of closed standard descriptors and
// installs handlers over ignored signals and unblocks some of the blocked ones
// before any Go code runs. What the process really inherited can only be read
// before that.
static unsigned gswarm_closed;
static unsigned long long gswarm_ignored, gswarm_blocked;

__attribute__((constructor)) static void gswarm_look(void) {
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			gswarm_closed |= 1u << fd;
	sigset_t blocked;
	sigemptyset(&blocked);
	sigprocmask(SIG_BLOCK, 0, &blocked);
	for (int s = 1; s <= 64; s++) {
		if (sigismember(&blocked, s) == 1)
			gswarm_blocked |= 1ull << (s - 1);
		struct sigaction sa;
		if (sigaction(s, 0, &sa) == 0 && sa.sa_handler == SIG_IGN)
			gswarm_ignored |= 1ull << (s - 1);
	}
}

static unsigned gswarm_get_closed(void) { return gswarm_closed; }
static unsigned long long gswarm_get_ignored(void) { return gswarm_ignored; }
static unsigned long long gswarm_get_blocked(void) { return gswarm_blocked; }
*/
import "C"

// inherit returns what the process began with.
func inherit() inherited {
	return inherited{
		closed:  uint(C.gswarm_get_closed()),
		ignored: uint64(C.gswarm_get_ignored()),
		blocked: uint64(C.gswarm_get_blocked()),
	}
}
