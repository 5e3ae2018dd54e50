/*
 * The script: which GPUs there are and what goes wrong with them, when.
 * README.md describes its lines.
 */
#include "standin.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_FAULTS 256

enum action { RETURN, SLOW, HANG, VALUE, STAMP };

struct fault {
	char function[64];
	int gpu;                 /* -1 for all */
	enum action action;
	double number;
	long long integer;
	int64_t from, to;        /* ns since the origin */
};

static struct {
	int gpus, reverse, faults;
	char driver[80], recording[4096], node[1024];
	struct fault fault[MAX_FAULTS];
	int instances[MAX_GPUS];
	int processes, events;
	struct { int gpu; unsigned pid; unsigned long long bytes; int64_t from, to; } process[MAX_FAULTS];
	struct { int gpu, told; unsigned long long type, data; int64_t at; } event[MAX_FAULTS];
} script;

/* A call may read the script while another thread's nvmlInit replaces it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int script_gpus(void) { return script.gpus; }
int script_reverse(void) { return script.reverse; }
int script_instances(int number) { return script.instances[number]; }
const char *script_driver(void) { return script.driver; }
const char *script_recording(void) { return script.recording; }

static int complain(const char *path, int line, const char *what)
{
	fprintf(stderr, "nvml stand-in: %s:%d: %s\n", path, line, what);
	return -1;
}

/* times reads the rest of a line: "from S", "to S", either, both or neither. */
static int times(char **save, struct fault *f)
{
	char *word, *value;
	f->from = INT64_MIN;
	f->to = INT64_MAX;
	while ((word = strtok_r(NULL, " \t", save))) {
		value = strtok_r(NULL, " \t", save);
		if (!value)
			return -1;
		if (!strcmp(word, "from"))
			f->from = (int64_t)(strtod(value, NULL) * 1e9);
		else if (!strcmp(word, "to"))
			f->to = (int64_t)(strtod(value, NULL) * 1e9);
		else
			return -1;
	}
	return 0;
}

static int fault_line(char **save, int lost)
{
	if (script.faults == MAX_FAULTS)
		return -1;
	struct fault *f = &script.fault[script.faults];
	memset(f, 0, sizeof *f);
	char *word = "*";
	if (!lost && !(word = strtok_r(NULL, " \t", save)))
		return -1;
	snprintf(f->function, sizeof f->function, "%s", word);
	if (!(word = strtok_r(NULL, " \t", save)))
		return -1;
	f->gpu = strcmp(word, "*") ? atoi(word) : -1;
	if (lost) {
		f->action = RETURN;
		f->number = GPU_IS_LOST;
	} else {
		if (!(word = strtok_r(NULL, " \t", save)))
			return -1;
		if (!strcmp(word, "return"))
			f->action = RETURN;
		else if (!strcmp(word, "slow"))
			f->action = SLOW;
		else if (!strcmp(word, "hang"))
			f->action = HANG;
		else if (!strcmp(word, "value"))
			f->action = VALUE;
		else if (!strcmp(word, "stamp"))
			f->action = STAMP;
		else
			return -1;
		if (f->action != HANG) {
			if (!(word = strtok_r(NULL, " \t", save)))
				return -1;
			f->number = strtod(word, NULL);
			/* Unsigned 64-bit sentinels have to arrive with every bit. */
			f->integer = word[0] == '-' ? strtoll(word, NULL, 0) : (long long)strtoull(word, NULL, 0);
		}
	}
	if (times(save, f))
		return -1;
	script.faults++;
	return 0;
}

/* process_line reads "process GPU PID BYTES [from S] [to S]". */
static int process_line(char **save)
{
	struct fault span;
	char *w[3];
	for (int i = 0; i < 3; i++)
		if (!(w[i] = strtok_r(NULL, " \t", save)))
			return -1;
	if (script.processes == MAX_FAULTS || times(save, &span))
		return -1;
	int n = script.processes++;
	script.process[n].gpu = atoi(w[0]);
	script.process[n].pid = (unsigned)strtoul(w[1], NULL, 0);
	script.process[n].bytes = strtoull(w[2], NULL, 0);
	script.process[n].from = span.from;
	script.process[n].to = span.to;
	return 0;
}

/* event_line reads "event GPU TYPE DATA SECONDS". */
static int event_line(char **save)
{
	char *w[4];
	for (int i = 0; i < 4; i++)
		if (!(w[i] = strtok_r(NULL, " \t", save)))
			return -1;
	if (script.events == MAX_FAULTS)
		return -1;
	int n = script.events++;
	script.event[n].gpu = atoi(w[0]);
	script.event[n].type = strtoull(w[1], NULL, 0);
	script.event[n].data = strtoull(w[2], NULL, 0);
	script.event[n].at = (int64_t)(strtod(w[3], NULL) * 1e9);
	return 0;
}

/* mig_line reads "mig GPU INSTANCES". */
static int mig_line(char **save)
{
	char *g = strtok_r(NULL, " \t", save), *n = g ? strtok_r(NULL, " \t", save) : NULL;
	if (!n || atoi(g) < 0 || atoi(g) >= MAX_GPUS || atoi(n) < 0 || atoi(n) > MAX_INSTANCES)
		return -1;
	script.instances[atoi(g)] = atoi(n);
	return 0;
}

static int load(const char *dir)
{
	memset(&script, 0, sizeof script);
	snprintf(script.recording, sizeof script.recording, "%s/h200x8.rec", dir);
	char path[4096];
	const char *named = getenv("GSWARM_NVML_SCRIPT");
	snprintf(path, sizeof path, "%s%s", named ? named : dir, named ? "" : "/nvml.script");
	int64_t origin = 0, start = 0;
	FILE *f = fopen(path, "r");
	if (!f && named)
		return complain(path, 0, "cannot be opened");
	char line[4096];
	for (int n = 1; f && fgets(line, sizeof line, f); n++) {
		char *save, *word, *rest;
		line[strcspn(line, "#\n")] = 0;
		if (!(word = strtok_r(line, " \t", &save)))
			continue;
		int bad = 0;
		if (!strcmp(word, "fault") || !strcmp(word, "lost"))
			bad = fault_line(&save, word[0] == 'l');
		else if (!strcmp(word, "process"))
			bad = process_line(&save);
		else if (!strcmp(word, "event"))
			bad = event_line(&save);
		else if (!strcmp(word, "mig"))
			bad = mig_line(&save);
		else if (!strcmp(word, "reverse"))
			script.reverse = 1;
		else if (!(rest = strtok_r(NULL, " \t", &save)))
			bad = 1;
		else if (!strcmp(word, "gpus"))
			bad = (script.gpus = atoi(rest)) < 1 || script.gpus > MAX_GPUS;
		else if (!strcmp(word, "origin"))
			origin = strtoll(rest, NULL, 10);
		else if (!strcmp(word, "start"))
			start = (int64_t)(strtod(rest, NULL) * 1e9);
		else if (!strcmp(word, "driver"))
			snprintf(script.driver, sizeof script.driver, "%s", rest);
		else if (!strcmp(word, "recording"))
			snprintf(script.recording, sizeof script.recording, "%s", rest);
		else if (!strcmp(word, "node"))
			snprintf(script.node, sizeof script.node, "%s", rest);
		else
			bad = 1;
		if (bad) {
			fclose(f);
			return complain(path, n, "not understood");
		}
	}
	if (f)
		fclose(f);
	if (replay_load(script.recording))
		return -1;
	if (!script.gpus)
		script.gpus = replay_gpus();
	replay_origin(origin, start);
	return 0;
}

/* script_load reads the script anew; every nvmlInit does. */
int script_load(const char *dir)
{
	pthread_mutex_lock(&lock);
	int err = load(dir);
	pthread_mutex_unlock(&lock);
	return err;
}

/*
 * script_visible is real NVML's rule: a GPU is shown to whoever may open its
 * device node, which is how a device cgroup hides it. A node without hardware
 * behind it answers ENXIO once the cgroup has let the open pass.
 */
int script_visible(int number)
{
	char path[1100];
	char *mark = strstr(script.node, "%d");
	if (!script.node[0])
		return 1;
	if (!mark)
		return 0;
	snprintf(path, sizeof path, "%.*s%d%s", (int)(mark - script.node), script.node, number, mark + 2);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		close(fd);
		return 1;
	}
	return errno == ENXIO;
}

static void sleep_ns(int64_t ns)
{
	struct timespec ts = { ns / 1000000000, ns % 1000000000 };
	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

/* script_play says how a call ends, after making it as slow as it should be. */
struct outcome script_play(const char *function, const struct gpu *g)
{
	struct outcome o = { 0 };
	int64_t slow = 0, until = 0, now = replay_elapsed();
	pthread_mutex_lock(&lock);
	for (int i = 0; i < script.faults; i++) {
		const struct fault *f = &script.fault[i];
		if (now < f->from || now >= f->to)
			continue;
		if (f->gpu >= 0 && (!g || g->number != f->gpu))
			continue;
		/* "*" means every call about a device, not nvmlInit. */
		if (strcmp(f->function, "*") ? strcmp(f->function, function) : !g)
			continue;
		switch (f->action) {
		case RETURN:
			o.ret = (int)f->number;
			break;
		case SLOW:
			slow = (int64_t)(f->number * 1000);
			break;
		case HANG:
			until = f->to;
			break;
		case VALUE:
			o.has_value = 1;
			o.value = f->number;
			o.integer = f->integer;
			break;
		case STAMP:
			o.stamp_us = f->integer;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	if (slow)
		sleep_ns(slow);
	while (until && (until == INT64_MAX || replay_elapsed() < until))
		sleep_ns(5 * 1000 * 1000);
	return o;
}

int script_processes(int number, sn_process *to, int room)
{
	int n = 0;
	int64_t now = replay_elapsed();
	pthread_mutex_lock(&lock);
	int any = script.processes;
	for (int i = 0; i < script.processes && n < room; i++) {
		if (script.process[i].gpu != number || now < script.process[i].from || now >= script.process[i].to)
			continue;
		to[n].pid = script.process[i].pid;
		to[n].used = script.process[i].bytes;
		to[n].gpu_instance = to[n].compute_instance = ~0u;
		n++;
	}
	pthread_mutex_unlock(&lock);
	return any ? n : -1;
}

/* script_event delivers the next event of a GPU that is due, once. */
int script_event(int number, unsigned long long mask, sn_event *e)
{
	int found = 0;
	int64_t now = replay_elapsed();
	pthread_mutex_lock(&lock);
	for (int i = 0; i < script.events && !found; i++) {
		if (script.event[i].gpu != number || script.event[i].told || now < script.event[i].at || !(script.event[i].type & mask))
			continue;
		script.event[i].told = found = 1;
		e->type = script.event[i].type;
		e->data = script.event[i].data;
		e->gpu_instance = e->compute_instance = ~0u;
	}
	pthread_mutex_unlock(&lock);
	return found;
}
