/*
 * The recording and the clock that walks through it. The format is described
 * in README.md; package rankagent/gpu/nvmltest writes and checks it.
 */
#include "standin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_COLUMNS 16

struct table {
	int columns;
	int64_t scale[MAX_COLUMNS];
	long rows[MAX_GPUS];
	int64_t *cell[MAX_GPUS];     /* rows x columns */
	uint32_t *null[MAX_GPUS];    /* one bit per column */
};

static struct {
	char path[4096];
	char driver[80];
	int gpus;
	struct gpu gpu[MAX_GPUS];
	struct table cheap, activity, power, counter, process;
	int64_t *power_at[MAX_GPUS];  /* of each sample, on the raw clock */
	int64_t anchor_raw, anchor_real;
	int64_t *window_begin[MAX_GPUS], *window_end[MAX_GPUS];
	int64_t begin, end;          /* of the time in which every GPU has rows */
} rec;

/* The recording is at start_ns past its begin when the raw clock is origin. */
static int64_t origin, start, origin_real;

struct reader { const unsigned char *p, *end; int bad; };

static uint64_t uvarint(struct reader *r)
{
	uint64_t v = 0;
	for (int shift = 0; shift < 64; shift += 7) {
		if (r->p >= r->end)
			break;
		unsigned char b = *r->p++;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return v;
	}
	r->bad = 1;
	return 0;
}

static int64_t varint(struct reader *r)
{
	uint64_t u = uvarint(r);
	return (int64_t)(u >> 1) ^ -(int64_t)(u & 1);
}

static void string(struct reader *r, char *to, size_t size)
{
	uint64_t n = uvarint(r);
	if (r->bad || n >= size || n > (uint64_t)(r->end - r->p)) {
		r->bad = 1;
		return;
	}
	memcpy(to, r->p, n);
	to[n] = 0;
	r->p += n;
}

static void read_table(struct reader *r, struct table *t, int want_columns)
{
	char name[64];
	string(r, name, sizeof name);
	t->columns = (int)uvarint(r);
	if (r->bad || t->columns != want_columns) {
		r->bad = 1;
		return;
	}
	for (int c = 0; c < t->columns; c++) {
		string(r, name, sizeof name);
		t->scale[c] = (int64_t)uvarint(r);
	}
	uint64_t rows = uvarint(r);
	if (rows > 10 * 1000 * 1000)
		r->bad = 1;
	int64_t last[MAX_GPUS][MAX_COLUMNS] = {{0}};
	long room[MAX_GPUS] = {0};
	for (uint64_t i = 0; i < rows && !r->bad; i++) {
		uint64_t g = uvarint(r), mask = uvarint(r), null = 0;
		if (g >= (uint64_t)rec.gpus) {
			r->bad = 1;
			return;
		}
		if (mask & 1)
			null = uvarint(r);
		long n = t->rows[g];
		if (n == room[g]) {
			room[g] = room[g] ? 2 * room[g] : 1024;
			t->cell[g] = realloc(t->cell[g], sizeof(int64_t) * room[g] * t->columns);
			t->null[g] = realloc(t->null[g], sizeof(uint32_t) * room[g]);
			if (!t->cell[g] || !t->null[g])
				abort();
		}
		for (int c = 0; c < t->columns; c++)
			if (mask >> (c + 1) & 1)
				last[g][c] += varint(r);
		memcpy(t->cell[g] + n * t->columns, last[g], sizeof(int64_t) * t->columns);
		t->null[g][n] = (uint32_t)null;
		t->rows[g]++;
	}
}

/* GPM windows are kept as gap and length; replay wants begin and end. */
static void lay_windows(int g)
{
	long n = rec.activity.rows[g];
	int64_t at = 0;
	rec.window_begin[g] = calloc(n + 1, sizeof(int64_t));
	rec.window_end[g] = calloc(n + 1, sizeof(int64_t));
	if (!rec.window_begin[g] || !rec.window_end[g])
		abort();
	for (long i = 0; i < n; i++) {
		const int64_t *row = rec.activity.cell[g] + i * A_COLUMNS;
		rec.window_begin[g][i] = at + row[A_GAP];
		at = rec.window_end[g][i] = rec.window_begin[g][i] + row[A_LENGTH];
	}
}

/* Power samples are kept by their distance, in us of the recorder's REALTIME. */
static void lay_power(int g)
{
	long n = rec.power.rows[g];
	int64_t at = 0;
	rec.power_at[g] = calloc(n + 1, sizeof(int64_t));
	if (!rec.power_at[g])
		abort();
	for (long i = 0; i < n; i++) {
		at += rec.power.cell[g][i * P_COLUMNS + P_GAP];
		rec.power_at[g][i] = at * 1000 - rec.anchor_real + rec.anchor_raw;
	}
}

/*
 * replay_load reads a recording once; what it replaces is not freed, since a
 * thread may still be hanging in a call that uses it.
 */
int replay_load(const char *path)
{
	if (!strcmp(path, rec.path))
		return 0;
	FILE *f = fopen(path, "rb");
	if (!f) {
		fprintf(stderr, "nvml stand-in: cannot open the recording %s\n", path);
		return -1;
	}
	fseek(f, 0, SEEK_END);
	long size = ftell(f);
	rewind(f);
	unsigned char *buf = malloc(size > 0 ? size : 1);
	if (!buf || fread(buf, 1, size, f) != (size_t)size || size < 8) {
		fclose(f);
		free(buf);
		return -1;
	}
	fclose(f);

	struct reader r = { buf + 8, buf + size, memcmp(buf, "gswrec2\n", 8) != 0 };
	memset(&rec, 0, sizeof rec);
	string(&r, rec.driver, sizeof rec.driver);
	rec.anchor_raw = (int64_t)uvarint(&r);
	rec.anchor_real = (int64_t)uvarint(&r);
	uint64_t gpus = uvarint(&r);
	if (gpus == 0 || gpus > MAX_GPUS)
		r.bad = 1;
	rec.gpus = r.bad ? 0 : (int)gpus;
	for (int i = 0; i < rec.gpus; i++) {
		struct gpu *g = &rec.gpu[i];
		string(&r, g->name, sizeof g->name);
		string(&r, g->uuid, sizeof g->uuid);
		string(&r, g->bus_id, sizeof g->bus_id);
		g->power_limit = (long long)uvarint(&r);
		g->mem_total = (long long)uvarint(&r);
	}
	if (!r.bad)
		read_table(&r, &rec.cheap, R_COLUMNS);
	if (!r.bad)
		read_table(&r, &rec.activity, A_COLUMNS);
	if (!r.bad)
		read_table(&r, &rec.power, P_COLUMNS);
	if (!r.bad)
		read_table(&r, &rec.counter, C_COLUMNS);
	if (!r.bad)
		read_table(&r, &rec.process, L_COLUMNS);
	free(buf);
	for (int i = 0; i < rec.gpus && !r.bad; i++)
		if (!rec.cheap.rows[i] || !rec.activity.rows[i] || !rec.counter.rows[i])
			r.bad = 1;
	if (r.bad) {
		fprintf(stderr, "nvml stand-in: %s is not a recording\n", path);
		memset(&rec, 0, sizeof rec);
		return -1;
	}
	for (int i = 0; i < rec.gpus; i++) {
		int64_t first = rec.cheap.cell[i][R_T];
		int64_t last = rec.cheap.cell[i][(rec.cheap.rows[i] - 1) * R_COLUMNS + R_T];
		if (i == 0 || first > rec.begin)
			rec.begin = first;
		if (i == 0 || last < rec.end)
			rec.end = last;
		lay_windows(i);
		lay_power(i);
	}
	snprintf(rec.path, sizeof rec.path, "%s", path);
	return 0;
}

int replay_gpus(void) { return rec.gpus; }
const char *replay_driver(void) { return rec.driver; }

/* More GPUs than were recorded repeat them under identities of their own. */
void replay_describe(int number, struct gpu *g)
{
	*g = rec.gpu[number % rec.gpus];
	g->number = number;
	g->recorded = number % rec.gpus;
	if (number >= rec.gpus) {
		char tag[3];
		snprintf(tag, sizeof tag, "%02x", number);
		memcpy(g->uuid + 4, tag, 2);
		snprintf(g->bus_id, sizeof g->bus_id, "00000000:%02X:00.0", 0x20 + number);
	}
}

void replay_origin(int64_t raw_ns, int64_t start_ns)
{
	origin = raw_ns ? raw_ns : replay_now();
	start = start_ns;
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	origin_real = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec - (replay_now() - origin);
}

int64_t replay_now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t replay_elapsed(void) { return replay_now() - origin; }

/* recorded_time maps the raw clock to the recording's, which loops. */
static int64_t recorded_time(int64_t raw)
{
	int64_t period = rec.end - rec.begin;
	int64_t at = (raw - origin + start) % period;
	if (at < 0)
		at += period;
	return rec.begin + at;
}

/* replay_cell returns the value recorded last before now. */
int64_t replay_cell(const struct gpu *g, int column)
{
	int64_t t = recorded_time(replay_now());
	const int64_t *cell = rec.cheap.cell[g->recorded];
	long lo = 0, hi = rec.cheap.rows[g->recorded] - 1;
	while (lo < hi) {
		long mid = lo + (hi - lo + 1) / 2;
		if (cell[mid * R_COLUMNS + R_T] <= t)
			lo = mid;
		else
			hi = mid - 1;
	}
	return cell[lo * R_COLUMNS + column];
}

/*
 * replay_average is what GPM would say of [from, to]: the recorded windows,
 * weighted by how much of each lies within. Like real GPM it says NaN of a
 * window under 100 ms.
 */
double replay_average(const struct gpu *g, int column, int64_t from_raw, int64_t to_raw)
{
	if (to_raw - from_raw < 100 * 1000 * 1000)
		return NAN;
	int i = g->recorded;
	int64_t from = recorded_time(from_raw), to = recorded_time(to_raw);
	if (to < from)
		to = rec.end; /* the recording looped within the window */
	const struct table *t = &rec.activity;
	long lo = 0, hi = t->rows[i];
	while (lo < hi) { /* the first window that ends after from */
		long mid = lo + (hi - lo) / 2;
		if (rec.window_end[i][mid] > from)
			hi = mid;
		else
			lo = mid + 1;
	}
	double sum = 0, weight = 0;
	for (; lo < t->rows[i] && rec.window_begin[i][lo] < to; lo++) {
		int64_t a = rec.window_begin[i][lo], b = rec.window_end[i][lo];
		if (a < from)
			a = from;
		if (b > to)
			b = to;
		if (t->null[i][lo] >> column & 1)
			return NAN;
		double value = (double)t->cell[i][lo * A_COLUMNS + column] / (double)t->scale[column];
		sum += value * (double)(b - a);
		weight += (double)(b - a);
	}
	return weight > 0 ? sum / weight : NAN;
}

/* loops is how often the recording has been played to its end by now. */
static int64_t loops(void)
{
	int64_t period = rec.end - rec.begin, at = replay_now() - origin + start;
	return at < 0 ? (at + 1) / period - 1 : at / period;
}

/* last_row is the last row of a table that is not after t, 0 where all are. */
static long last_row(const struct table *tab, int g, int columns, int64_t t)
{
	long lo = 0, hi = tab->rows[g] - 1;
	while (lo < hi) {
		long mid = lo + (hi - lo + 1) / 2;
		if (tab->cell[g][mid * columns] <= t)
			lo = mid;
		else
			hi = mid - 1;
	}
	return lo;
}

/*
 * replay_counter is a counter as it stands between the readings that were
 * recorded. It goes on growing when the recording is played again.
 */
long long replay_counter(const struct gpu *g, int column, int *missing)
{
	const struct table *tab = &rec.counter;
	int64_t t = recorded_time(replay_now()), n = tab->rows[g->recorded];
	const int64_t *cell = tab->cell[g->recorded];
	long i = last_row(tab, g->recorded, C_COLUMNS, t);
	if (tab->null[g->recorded][i] >> column & 1) {
		*missing = 1;
		return 0;
	}
	const int64_t *a = cell + i * C_COLUMNS, *b = i + 1 < n ? a + C_COLUMNS : a;
	int64_t v = a[column];
	if (t > a[C_T] && b[C_T] > a[C_T])
		v += (int64_t)((double)(b[column] - a[column]) * (double)(t - a[C_T]) / (double)(b[C_T] - a[C_T]));
	return v + loops() * (cell[(n - 1) * C_COLUMNS + column] - cell[column]);
}

/*
 * replay_power delivers up to room of the newest samples that are stamped after
 * a time, oldest first, and returns how many. A sample's stamp is always the
 * same.
 */
int replay_power(const struct gpu *g, unsigned long long after, sn_power_sample *to, int room)
{
	int64_t t = recorded_time(replay_now()), turn = loops() * (rec.end - rec.begin);
	const int64_t *at = rec.power_at[g->recorded];
	long lo = 0, hi = rec.power.rows[g->recorded];
	while (lo < hi) { /* the first that is still to come */
		long mid = lo + (hi - lo) / 2;
		if (at[mid] > t)
			hi = mid;
		else
			lo = mid + 1;
	}
	long first = lo > room ? lo - room : 0;
	int n = 0;
	for (long i = first; i < lo; i++) {
		int64_t stamp = (origin_real + at[i] - rec.begin - start + turn) / 1000;
		if (at[i] < rec.begin || stamp <= (int64_t)after)
			continue;
		to[n].stamp = (unsigned long long)stamp;
		to[n].value.ull = 0;
		to[n].value.ui = (unsigned)rec.power.cell[g->recorded][i * P_COLUMNS + P_POWER];
		n++;
	}
	return n;
}

/* replay_processes delivers the list that was read last. */
int replay_processes(const struct gpu *g, sn_process *to, int room)
{
	const struct table *tab = &rec.process;
	int64_t t = recorded_time(replay_now());
	if (!tab->rows[g->recorded])
		return 0;
	const int64_t *cell = tab->cell[g->recorded];
	long i = last_row(tab, g->recorded, L_COLUMNS, t);
	int n = 0;
	/* A list is as good for as long as until the next was due. */
	for (; i >= 0 && n < room && cell[i * L_COLUMNS] <= t && t - cell[i * L_COLUMNS] < 11000000000ll; i--) {
		if (n && cell[i * L_COLUMNS] != cell[(i + 1) * L_COLUMNS])
			break;
		to[n].pid = (unsigned)cell[i * L_COLUMNS + L_PID];
		to[n].used = (unsigned long long)cell[i * L_COLUMNS + L_MEM];
		to[n].gpu_instance = to[n].compute_instance = ~0u;
		n++;
	}
	return n;
}
