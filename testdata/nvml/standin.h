/*
 * What the parts of the stand-in share: the few structures of NVML's ABI that
 * gswarm's calls use, and the seams between replay.c (what the GPUs would say),
 * script.c (what goes wrong) and nvml.c (the exported functions).
 *
 * The structures are written down here rather than taken from nvml.h so that
 * the stand-in needs nothing but a C compiler; abi_check.c compares them with
 * the real header.
 */
#ifndef GSWARM_STANDIN_H
#define GSWARM_STANDIN_H

#include <stdint.h>

#define MAX_GPUS 16
#define MAX_GPM_METRICS 333
#define MAX_INSTANCES 7

enum {
	OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3,
	NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
	DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, VERSION_MISMATCH = 25,
};

typedef struct gpu *sn_device;

typedef struct { unsigned gpu, memory; } sn_utilization;
typedef struct { unsigned long long total, free, used; } sn_memory;
typedef struct {
	unsigned version;
	unsigned long long total, reserved, free, used;
} sn_memory_v2;
typedef struct {
	char bus_id_legacy[16];
	unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
	char bus_id[32];
} sn_pci_info;
typedef union {
	double d;
	int si;
	unsigned ui;
	unsigned long long ull;
	long long sll;
} sn_value;
typedef struct {
	unsigned field_id, scope_id;
	long long timestamp, latency_usec;
	int value_type, ret;
	sn_value value;
} sn_field_value;
typedef struct sample *sn_gpm_sample;
typedef struct {
	unsigned metric_id;
	int ret;
	double value;
	char *short_name, *long_name, *unit;
} sn_gpm_metric;
typedef struct {
	unsigned version, num_metrics;
	sn_gpm_sample sample1, sample2;
	sn_gpm_metric metrics[MAX_GPM_METRICS];
} sn_gpm_metrics_get;
typedef struct { unsigned version, is_supported; } sn_gpm_support;
typedef struct { unsigned long long stamp; sn_value value; } sn_power_sample;
typedef struct {
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
} sn_process;
typedef struct {
	unsigned pid;
	unsigned long long stamp;
	unsigned sm, memory, encoder, decoder;
} sn_process_use;
typedef struct {
	sn_device device;
	unsigned long long type, data;
	unsigned gpu_instance, compute_instance;
} sn_event;

/* Columns of the recording's two tables, in its order. */
enum {
	R_T, R_READ, R_UTIL, R_UTIL_MEM, R_MEM_USED, R_POWER_NOW, R_POWER_AVG,
	R_TEMP, R_TEMP_MEM, R_SM_MHZ, R_MEM_MHZ, R_REASONS, R_COLUMNS
};
enum {
	A_GAP, A_LENGTH, A_SM, A_OCCUPANCY, A_TENSOR, A_DRAM, A_FP64, A_FP32,
	A_FP16, A_PCIE_TX, A_PCIE_RX, A_NVL_RX, A_NVL_TX, A_COLUMNS
};

enum { P_GAP, P_POWER, P_COLUMNS };
enum {
	C_T, C_READ, C_ENERGY, C_NVL_TX, C_NVL_RX, C_ECC_CORRECTED, C_ECC_UNCORRECTED,
	C_THR_POWER, C_THR_SW_THERMAL, C_THR_HW_THERMAL, C_THR_BRAKE, C_COLUMNS
};
enum { L_T, L_PID, L_MEM, L_COLUMNS };

/* A GPU as the library's caller sees it: a nvmlDevice_t points to one. */
struct gpu {
	int number;    /* in the script and in the recording (modulo its GPUs) */
	int visible;   /* its device node can be opened */
	int recorded;  /* index in the recording */
	char name[64], uuid[48], bus_id[32];
	struct gpu *parent; /* of a MIG instance */
	int instance;
	long long mem_total, power_limit;
};

/* replay.c */
int replay_load(const char *path);
int replay_gpus(void);
const char *replay_driver(void);
void replay_describe(int number, struct gpu *g);
void replay_origin(int64_t raw_ns, int64_t start_ns);
int64_t replay_now(void);                 /* CLOCK_MONOTONIC_RAW */
int64_t replay_elapsed(void);             /* since the origin */
int64_t replay_cell(const struct gpu *g, int column);
long long replay_counter(const struct gpu *g, int column, int *missing);
int replay_power(const struct gpu *g, unsigned long long after, sn_power_sample *to, int room);
int replay_processes(const struct gpu *g, sn_process *to, int room);
double replay_average(const struct gpu *g, int column, int64_t from_raw, int64_t to_raw);

/* script.c */
struct outcome {
	int ret;            /* what the call returns; OK to go on */
	int has_value;      /* value overrides what the call would deliver */
	double value;
	long long integer;  /* the same, exact */
	long long stamp_us; /* added to the stamps of field values */
};
int script_load(const char *dir);
int script_gpus(void);
int script_reverse(void);
const char *script_driver(void);
const char *script_recording(void);
int script_visible(int number);
int script_instances(int number);
int script_processes(int number, sn_process *to, int room); /* -1: as recorded */
int script_event(int number, unsigned long long mask, sn_event *e);
struct outcome script_play(const char *function, const struct gpu *g);

/* nvml.c */
int enter(const char *function, const struct gpu *g, struct outcome *o);
struct gpu *shown_instance(const struct gpu *g, unsigned index);
struct gpu *shown_gpu(int number);

#define API __attribute__((visibility("default")))

/* ENTER is the beginning of every call about a device. */
#define ENTER(function, g) \
	struct outcome o; \
	do { \
		int entered = enter(function, g, &o); \
		if (entered) \
			return entered; \
	} while (0)

static inline unsigned u32(const struct outcome *o, long long v)
{
	return (unsigned)(o->has_value ? o->integer : v);
}

static inline unsigned long long u64(const struct outcome *o, long long v)
{
	return (unsigned long long)(o->has_value ? o->integer : v);
}

#endif
