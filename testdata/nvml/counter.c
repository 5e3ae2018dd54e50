/*
 * Counters, buffered samples, processes, events and MIG instances: the calls
 * that are made seldom.
 */
#define _GNU_SOURCE
#include "standin.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef STANDIN_BARE

#define BUFFERED 120 /* power samples that the driver keeps */

API int nvmlDeviceGetTotalEnergyConsumption(sn_device g, unsigned long long *mj)
{
	ENTER("nvmlDeviceGetTotalEnergyConsumption", g);
	int missing = 0;
	*mj = u64(&o, replay_counter(g, C_ENERGY, &missing));
	return missing ? NOT_SUPPORTED : OK;
}

API int nvmlDeviceGetTotalEccErrors(sn_device g, int type, int counter, unsigned long long *n)
{
	ENTER("nvmlDeviceGetTotalEccErrors", g);
	int missing = 0;
	if ((type != 0 && type != 1) || counter != 0)
		return INVALID_ARGUMENT;
	*n = u64(&o, replay_counter(g, type == 0 ? C_ECC_CORRECTED : C_ECC_UNCORRECTED, &missing));
	return missing ? NOT_SUPPORTED : OK;
}

/* As on real GPUs, asking without a buffer gives the most there can be. */
API int nvmlDeviceGetSamples(sn_device g, int type, unsigned long long after, int *kind, unsigned *count, sn_power_sample *to)
{
	ENTER("nvmlDeviceGetSamples", g);
	if (type != 0)
		return NOT_SUPPORTED;
	*kind = 1; /* unsigned int */
	if (!to) {
		*count = BUFFERED;
		return OK;
	}
	int n = replay_power(g, after, to, *count < BUFFERED ? (int)*count : BUFFERED);
	for (int i = 0; i < n; i++) {
		to[i].stamp += (unsigned long long)o.stamp_us;
		if (o.has_value)
			to[i].value.ui = (unsigned)o.integer;
	}
	*count = (unsigned)n;
	return n ? OK : NOT_FOUND;
}

static int processes(sn_device g, unsigned *count, sn_process *to)
{
	ENTER("nvmlDeviceGetComputeRunningProcesses", g);
	sn_process list[64];
	int n = script_processes(g->number, list, 64);
	if (n < 0)
		n = replay_processes(g, list, 64);
	if ((unsigned)n > *count) {
		*count = (unsigned)n;
		return INSUFFICIENT_SIZE;
	}
	for (int i = 0; i < n; i++) {
		to[i] = list[i];
		if (o.has_value)
			to[i].used = (unsigned long long)o.integer;
	}
	*count = (unsigned)n;
	return OK;
}

#ifndef STANDIN_OLD

API int nvmlDeviceGetComputeRunningProcesses_v3(sn_device g, unsigned *count, sn_process *to) { return processes(g, count, to); }

API int nvmlDeviceGetRemappedRows(sn_device g, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
	ENTER("nvmlDeviceGetRemappedRows", g);
	*corrected = *uncorrected = u32(&o, 0);
	*pending = *failed = 0;
	return OK;
}

/* MIG. */

API int nvmlDeviceGetMaxMigDeviceCount(sn_device g, unsigned *count)
{
	ENTER("nvmlDeviceGetMaxMigDeviceCount", g);
	*count = u32(&o, MAX_INSTANCES);
	return OK;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(sn_device g, unsigned index, sn_device *to)
{
	ENTER("nvmlDeviceGetMigDeviceHandleByIndex", g);
	*to = shown_instance(g, index);
	return *to ? OK : NOT_FOUND;
}

API int nvmlDeviceGetGpuInstanceId(sn_device g, unsigned *id)
{
	ENTER("nvmlDeviceGetGpuInstanceId", g);
	if (!g->parent)
		return INVALID_ARGUMENT;
	*id = u32(&o, g->instance);
	return OK;
}

#else

/* Before MIG a process had no instances. */
struct old_process {
	unsigned pid;
	unsigned long long used;
};

API int nvmlDeviceGetComputeRunningProcesses(sn_device g, unsigned *count, struct old_process *to)
{
	sn_process list[64];
	unsigned n = 64;
	int ret = processes(g, &n, list);
	if (ret || n > *count) {
		*count = n;
		return ret ? ret : INSUFFICIENT_SIZE;
	}
	for (unsigned i = 0; i < n; i++) {
		to[i].pid = list[i].pid;
		to[i].used = list[i].used;
	}
	*count = n;
	return OK;
}

#endif

/* Every process of a GPU is said to use as much of it as was recorded. */
API int nvmlDeviceGetProcessUtilization(sn_device g, sn_process_use *to, unsigned *count, unsigned long long after)
{
	ENTER("nvmlDeviceGetProcessUtilization", g);
	if (!to) {
		*count = 100;
		return INSUFFICIENT_SIZE;
	}
	sn_process list[64];
	unsigned n = 64;
	int ret = processes(g, &n, list);
	if (ret)
		return ret;
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	unsigned long long now = (unsigned long long)ts.tv_sec * 1000000 + (unsigned long long)ts.tv_nsec / 1000;
	if (!n || now <= after)
		return NOT_FOUND;
	for (unsigned i = 0; i < n && i < *count; i++) {
		memset(&to[i], 0, sizeof to[i]);
		to[i].pid = list[i].pid;
		to[i].stamp = now;
		to[i].sm = u32(&o, replay_cell(g, R_UTIL));
	}
	*count = n;
	return OK;
}

/* Events. */

struct events {
	unsigned long long mask[MAX_GPUS];
};

API int nvmlEventSetCreate(struct events **set)
{
	ENTER("nvmlEventSetCreate", NULL);
	*set = calloc(1, sizeof **set);
	return *set ? OK : 20;
}

API int nvmlEventSetFree(struct events *set)
{
	ENTER("nvmlEventSetFree", NULL);
	free(set);
	return OK;
}

API int nvmlDeviceGetSupportedEventTypes(sn_device g, unsigned long long *types)
{
	ENTER("nvmlDeviceGetSupportedEventTypes", g);
	*types = u64(&o, 1 | 2 | 4 | 8 | 16);
	return OK;
}

API int nvmlDeviceRegisterEvents(sn_device g, unsigned long long types, struct events *set)
{
	ENTER("nvmlDeviceRegisterEvents", g);
	set->mask[g->number] |= types;
	return OK;
}

API int nvmlEventSetWait_v2(struct events *set, sn_event *e, unsigned timeout_ms)
{
	ENTER("nvmlEventSetWait", NULL);
	for (;;) {
		for (int i = 0; i < script_gpus(); i++) {
			if (script_event(i, set->mask[i], e)) {
				e->device = shown_gpu(i);
				return OK;
			}
		}
		if (!timeout_ms--)
			return TIMEOUT;
		nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
	}
}

API int nvmlEventSetWait(struct events *set, sn_event *e, unsigned timeout_ms) { return nvmlEventSetWait_v2(set, e, timeout_ms); }

#endif /* STANDIN_BARE */
