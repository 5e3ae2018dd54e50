// ending WAY [NUMBER]: says a word on both streams and ends in some way.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef MPI
#include <mpi.h>
#endif

static void say(int fd, const char *text, size_t n) {
	if (write(fd, text, n) < 0 && errno != EBADF)
		_exit(98);
}

static int rank(void) {
	const char *names[] = {"SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
	for (int i = 2; i >= 0; i--) // an mpirun's own goes before Slurm's
		if (getenv(names[i]))
			return atoi(getenv(names[i]));
	return 0;
}

static void by_signal(int number) {
	if (number == SIGKILL || number == SIGTERM) // srun then drops what has not reached it yet
		usleep(300000);
	kill(getpid(), number);
	usleep(300000);
	printf("survived signal %d\n", number); // it is ignored here, or does not end a process
}

// descriptors lists what is open, by kind, and which signals are ignored and blocked.
static void descriptors(void) {
	for (int fd = 0; fd < 256; fd++) {
		struct stat st;
		if (fstat(fd, &st) == 0)
			fprintf(stderr, "%d %s\n", fd, S_ISFIFO(st.st_mode) ? "pipe" : S_ISSOCK(st.st_mode) ? "socket"
				: S_ISCHR(st.st_mode) ? "device" : S_ISREG(st.st_mode) ? "file" : "other");
	}
	const char *names[] = {"PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"};
	for (int i = 0; i < 6; i++)
		fprintf(stderr, "%s=%s\n", names[i], getenv(names[i]) ? getenv(names[i]) : "unset");
	char line[256];
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, "SigIgn", 6) == 0 || strncmp(line, "SigBlk", 6) == 0)
			fputs(line, stderr);
}

int main(int argc, char **argv) {
	const char *way = argc > 1 ? argv[1] : "exit";
	int number = argc > 2 ? atoi(argv[2]) : 0;
	struct rlimit none = {0, 0}, all = {RLIM_INFINITY, RLIM_INFINITY};
	setrlimit(RLIMIT_CORE, strcmp(way, "core") == 0 ? &all : &none);
#ifdef MPI
	if (strncmp(way, "mpi-", 4) == 0)
		MPI_Init(&argc, &argv);
#endif
	setvbuf(stdout, NULL, _IONBF, 0);
	if (strcmp(way, "children") != 0 && rank() == 0) {
		say(1, "out \0\377\n", 7);
		say(2, "err \001", 5); // without an end of line
		say(2, "\n", 1);
	}
	if (strcmp(way, "exit") == 0)
		return number;
	if (strcmp(way, "signal") == 0 || strcmp(way, "core") == 0) {
		by_signal(number);
	} else if (strcmp(way, "second") == 0) { // rank 1 fails while the others wait
		if (rank() != 1) {
			sleep(4);
			return 0;
		}
		usleep(700000);
		number < 0 ? by_signal(-number) : exit(number);
	} else if (strcmp(way, "descriptors") == 0) {
		descriptors();
	} else if (strcmp(way, "cat") == 0) {
		char buf[4096];
		ssize_t n, sum = 0;
		while ((n = read(0, buf, sizeof buf)) > 0)
			sum += n;
		printf("read %zd, then %s\n", sum, n < 0 ? strerror(errno) : "the end");
	} else if (strcmp(way, "close") == 0) {
		close(1);
		close(2);
		usleep(300000);
		return number;
	} else if (strcmp(way, "children") == 0) {
		for (int i = 0; i < 3; i++)
			if (fork() == 0) {
				if (i == 2)
					setsid();
				sleep(i == 0 ? 1 : 2); // and hold both streams meanwhile
				say(1, "late\n", 5);
				_exit(0);
			}
		say(1, "early\n", 6);
		return number;
	}
#ifdef MPI
	if (strcmp(way, "mpi-abort") == 0)
		MPI_Abort(MPI_COMM_WORLD, number);
	else if (strcmp(way, "mpi-exit") == 0)
		_exit(number);
	else if (strcmp(way, "mpi-signal") == 0)
		by_signal(number);
	else if (strcmp(way, "mpi-finalize") == 0) {
		MPI_Finalize();
		return number;
	}
#endif
	return strcmp(way, "descriptors") == 0 || strcmp(way, "cat") == 0 ? 0 : 99;
}
