/*
 * A stand-in for libnvidia-ml.so.1: the calls that gswarm makes, answered from
 * a recording of real GPUs and spoilt by a script. README.md says how to use it.
 *
 * -DSTANDIN_OLD leaves out what a driver of the 450 series lacks, and
 * -DSTANDIN_BARE all but what starts and ends the library.
 */
#define _GNU_SOURCE
#include "standin.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct gpu gpus[MAX_GPUS]; /* every GPU of the node, by number */
static struct gpu instances[MAX_GPUS * MAX_INSTANCES];
static struct gpu *shown[MAX_GPUS]; /* those that can be opened, by index */
static int shown_count;
static int users; /* nvmlInit less nvmlShutdown */
static pthread_mutex_t lifecycle = PTHREAD_MUTEX_INITIALIZER;

/* own_dir is where this library lies: script and recording lie beside it. */
static void own_dir(char *dir, size_t size)
{
	Dl_info info;
	snprintf(dir, size, ".");
	if (!dladdr((void *)own_dir, &info) || !info.dli_fname)
		return;
	char *slash;
	snprintf(dir, size, "%s", info.dli_fname);
	if ((slash = strrchr(dir, '/')))
		*slash = 0;
	else
		snprintf(dir, size, ".");
}

static int init(void)
{
	char dir[4096];
	own_dir(dir, sizeof dir);
	pthread_mutex_lock(&lifecycle);
	if (script_load(dir)) {
		pthread_mutex_unlock(&lifecycle);
		return DRIVER_NOT_LOADED;
	}
	shown_count = 0;
	for (int i = 0; i < script_gpus(); i++) {
		replay_describe(i, &gpus[i]);
		if ((gpus[i].visible = script_visible(i)))
			shown[shown_count++] = &gpus[i];
		for (int k = 0; k < MAX_INSTANCES; k++) {
			struct gpu *m = &instances[i * MAX_INSTANCES + k];
			*m = gpus[i];
			m->parent = &gpus[i];
			m->instance = k + 1;
			m->mem_total /= 7;
			snprintf(m->uuid, sizeof m->uuid, "MIG-%02x%02x%.31s", i, k, gpus[i].uuid + 8);
		}
	}
	for (int i = 0; script_reverse() && i < shown_count / 2; i++) {
		struct gpu *g = shown[i];
		shown[i] = shown[shown_count - 1 - i];
		shown[shown_count - 1 - i] = g;
	}
	pthread_mutex_unlock(&lifecycle);
	/* Without the lock: a script may have this call hang. */
	int ret = script_play("nvmlInit", NULL).ret;
	if (!ret)
		__atomic_add_fetch(&users, 1, __ATOMIC_SEQ_CST);
	return ret;
}

API int nvmlInit_v2(void) { return init(); }
API int nvmlInitWithFlags(unsigned flags) { (void)flags; return init(); }

API int nvmlShutdown(void)
{
	struct outcome o = script_play("nvmlShutdown", NULL);
	if (o.ret)
		return o.ret;
	if (__atomic_load_n(&users, __ATOMIC_SEQ_CST) == 0)
		return UNINITIALIZED;
	__atomic_sub_fetch(&users, 1, __ATOMIC_SEQ_CST);
	return OK;
}

API const char *nvmlErrorString(int ret)
{
	return ret ? "stand-in error" : "Success";
}

#ifndef STANDIN_BARE

/* What can be asked of a MIG instance. */
static int of_instance(const char *function)
{
	static const char *const known[] = {
		"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2",
		"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeRunningProcesses",
	};
	for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(known[i], function))
			return 1;
	return 0;
}

int enter(const char *function, const struct gpu *g, struct outcome *o)
{
	if (__atomic_load_n(&users, __ATOMIC_SEQ_CST) == 0)
		return UNINITIALIZED;
	if (g && (g < gpus || g >= gpus + MAX_GPUS) && (g < instances || g >= instances + MAX_GPUS * MAX_INSTANCES))
		return INVALID_ARGUMENT;
	*o = script_play(function, g);
	if (!o->ret && g && g->parent && !of_instance(function))
		return NOT_SUPPORTED;
	return o->ret;
}

struct gpu *shown_instance(const struct gpu *g, unsigned index)
{
	if (index >= (unsigned)script_instances(g->number))
		return NULL;
	return &instances[g->number * MAX_INSTANCES + index];
}

struct gpu *shown_gpu(int number) { return &gpus[number]; }

static int text(const char *s, char *to, unsigned size)
{
	if (strlen(s) >= size)
		return INSUFFICIENT_SIZE;
	strcpy(to, s);
	return OK;
}

/* System and enumeration. */

API int nvmlSystemGetDriverVersion(char *to, unsigned size)
{
	ENTER("nvmlSystemGetDriverVersion", NULL);
	return text(*script_driver() ? script_driver() : replay_driver(), to, size);
}

API int nvmlSystemGetNVMLVersion(char *to, unsigned size)
{
	ENTER("nvmlSystemGetNVMLVersion", NULL);
	return text("13.580.159.04", to, size);
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	ENTER("nvmlSystemGetCudaDriverVersion", NULL);
	*version = 13000;
	return OK;
}

API int nvmlDeviceGetCount_v2(unsigned *count)
{
	ENTER("nvmlDeviceGetCount", NULL);
	*count = u32(&o, shown_count);
	return OK;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, sn_device *device)
{
	if (index >= (unsigned)shown_count)
		return INVALID_ARGUMENT;
	ENTER("nvmlDeviceGetHandleByIndex", shown[index]);
	*device = shown[index];
	return OK;
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, sn_device *device)
{
	for (int i = 0; i < shown_count; i++) {
		if (!strcmp(uuid, shown[i]->uuid)) {
			ENTER("nvmlDeviceGetHandleByUUID", shown[i]);
			*device = shown[i];
			return OK;
		}
	}
	return NOT_FOUND;
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, sn_device *device)
{
	for (int i = 0; i < shown_count; i++) {
		if (!strcasecmp(bus_id, shown[i]->bus_id)) {
			ENTER("nvmlDeviceGetHandleByPciBusId", shown[i]);
			*device = shown[i];
			return OK;
		}
	}
	return NOT_FOUND;
}

/* What a device is. */

API int nvmlDeviceGetUUID(sn_device g, char *to, unsigned size)
{
	ENTER("nvmlDeviceGetUUID", g);
	return text(g->uuid, to, size);
}

API int nvmlDeviceGetName(sn_device g, char *to, unsigned size)
{
	ENTER("nvmlDeviceGetName", g);
	return text(g->name, to, size);
}

static int pci_info(sn_device g, sn_pci_info *p)
{
	ENTER("nvmlDeviceGetPciInfo", g);
	memset(p, 0, sizeof *p);
	snprintf(p->bus_id, sizeof p->bus_id, "%s", g->bus_id);
	snprintf(p->bus_id_legacy, sizeof p->bus_id_legacy, "%.12s", g->bus_id + 4);
	sscanf(g->bus_id, "%x:%x:%x", &p->domain, &p->bus, &p->device);
	p->pci_device_id = 0x233510de;
	return OK;
}

API int nvmlDeviceGetPciInfo_v2(sn_device g, sn_pci_info *p) { return pci_info(g, p); }

API int nvmlDeviceGetVbiosVersion(sn_device g, char *to, unsigned size)
{
	ENTER("nvmlDeviceGetVbiosVersion", g);
	return text("96.00.B8.00.01", to, size);
}

/* As an H200 answers: 6016 bits at 3201 MHz, two transfers a clock, are its 4.8 TB/s. */

API int nvmlDeviceGetMemoryBusWidth(sn_device g, unsigned *bits)
{
	ENTER("nvmlDeviceGetMemoryBusWidth", g);
	*bits = u32(&o, 6016);
	return OK;
}

API int nvmlDeviceGetMaxClockInfo(sn_device g, int clock, unsigned *mhz)
{
	ENTER("nvmlDeviceGetMaxClockInfo", g);
	*mhz = u32(&o, clock == 2 ? 3201 : 1980);
	return OK;
}

API int nvmlDeviceGetEnforcedPowerLimit(sn_device g, unsigned *mw)
{
	ENTER("nvmlDeviceGetEnforcedPowerLimit", g);
	*mw = u32(&o, g->power_limit);
	return OK;
}

API int nvmlDeviceGetMigMode(sn_device g, unsigned *current, unsigned *pending)
{
	ENTER("nvmlDeviceGetMigMode", g);
	*current = *pending = u32(&o, script_instances(g->number) > 0);
	return OK;
}

/* Eighteen links of each GPU end at the switch that joins them all. */

API int nvmlDeviceGetNvLinkState(sn_device g, unsigned link, int *active)
{
	ENTER("nvmlDeviceGetNvLinkState", g);
	if (link >= 18)
		return INVALID_ARGUMENT;
	*active = (int)u32(&o, 1);
	return OK;
}

API int nvmlDeviceGetNvLinkRemoteDeviceType(sn_device g, unsigned link, int *type)
{
	ENTER("nvmlDeviceGetNvLinkRemoteDeviceType", g);
	if (link >= 18)
		return INVALID_ARGUMENT;
	*type = (int)u32(&o, 2);
	return OK;
}

API int nvmlDeviceGetNvLinkRemotePciInfo_v2(sn_device g, unsigned link, sn_pci_info *p)
{
	ENTER("nvmlDeviceGetNvLinkRemotePciInfo", g);
	if (link >= 18)
		return INVALID_ARGUMENT;
	memset(p, 0, sizeof *p);
	strcpy(p->bus_id, "00000000:80:00.0");
	p->bus = 0x80;
	return OK;
}

API int nvmlDeviceGetTopologyCommonAncestor(sn_device a, sn_device b, int *level)
{
	ENTER("nvmlDeviceGetTopologyCommonAncestor", a);
	*level = (int)u32(&o, a == b ? 0 : 30);
	return OK;
}

/* The cheap readings. */

API int nvmlDeviceGetUtilizationRates(sn_device g, sn_utilization *u)
{
	ENTER("nvmlDeviceGetUtilizationRates", g);
	u->gpu = u32(&o, replay_cell(g, R_UTIL));
	u->memory = u32(&o, replay_cell(g, R_UTIL_MEM));
	return OK;
}

API int nvmlDeviceGetMemoryInfo(sn_device g, sn_memory *m)
{
	ENTER("nvmlDeviceGetMemoryInfo", g);
	m->total = (unsigned long long)g->mem_total;
	m->used = u64(&o, replay_cell(g, R_MEM_USED) + 500000000);
	m->free = m->total - m->used;
	return OK;
}

API int nvmlDeviceGetTemperature(sn_device g, int sensor, unsigned *c)
{
	ENTER("nvmlDeviceGetTemperature", g);
	if (sensor != 0)
		return INVALID_ARGUMENT;
	*c = u32(&o, replay_cell(g, R_TEMP));
	return OK;
}

API int nvmlDeviceGetClockInfo(sn_device g, int type, unsigned *mhz)
{
	ENTER("nvmlDeviceGetClockInfo", g);
	if (type != 1 && type != 2)
		return INVALID_ARGUMENT;
	*mhz = u32(&o, replay_cell(g, type == 1 ? R_SM_MHZ : R_MEM_MHZ));
	return OK;
}

API int nvmlDeviceGetCurrentClocksThrottleReasons(sn_device g, unsigned long long *reasons)
{
	ENTER("nvmlDeviceGetCurrentClocksThrottleReasons", g);
	*reasons = u64(&o, replay_cell(g, R_REASONS));
	return OK;
}

API int nvmlDeviceGetPerformanceState(sn_device g, int *state)
{
	ENTER("nvmlDeviceGetPerformanceState", g);
	*state = (int)u32(&o, 0);
	return OK;
}

API int nvmlDeviceGetPowerUsage(sn_device g, unsigned *mw)
{
	ENTER("nvmlDeviceGetPowerUsage", g);
	*mw = u32(&o, replay_cell(g, R_POWER_AVG));
	return OK;
}

#ifndef STANDIN_OLD

API int nvmlDeviceGetPciInfo_v3(sn_device g, sn_pci_info *p) { return pci_info(g, p); }

API int nvmlDeviceGetArchitecture(sn_device g, unsigned *architecture)
{
	ENTER("nvmlDeviceGetArchitecture", g);
	*architecture = u32(&o, 9);
	return OK;
}

API int nvmlDeviceGetNumaNodeId(sn_device g, unsigned *node)
{
	ENTER("nvmlDeviceGetNumaNodeId", g);
	if (!o.has_value)
		return NOT_SUPPORTED; /* only coherent GPUs have one */
	*node = u32(&o, 0);
	return OK;
}

API int nvmlDeviceGetMemoryInfo_v2(sn_device g, sn_memory_v2 *m)
{
	ENTER("nvmlDeviceGetMemoryInfo_v2", g);
	if (m->version != (sizeof *m | 2u << 24))
		return VERSION_MISMATCH;
	m->total = (unsigned long long)g->mem_total;
	m->reserved = 500000000;
	m->used = u64(&o, replay_cell(g, R_MEM_USED) / (g->parent ? 7 : 1));
	m->free = m->total - m->reserved - m->used;
	return OK;
}

API int nvmlDeviceGetCurrentClocksEventReasons(sn_device g, unsigned long long *reasons)
{
	ENTER("nvmlDeviceGetCurrentClocksEventReasons", g);
	*reasons = u64(&o, replay_cell(g, R_REASONS));
	return OK;
}

static void counter_field(const struct gpu *g, sn_field_value *f, const struct outcome *o, int column, int *missing)
{
	f->value_type = 3; /* unsigned long long */
	f->value.ull = u64(o, replay_counter(g, column, missing));
}

static void field(const struct gpu *g, sn_field_value *f)
{
	char name[32];
	snprintf(name, sizeof name, "field:%u", f->field_id);
	struct outcome o = script_play(name, g);
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	f->timestamp = (long long)ts.tv_sec * 1000000 + ts.tv_nsec / 1000 + o.stamp_us;
	f->latency_usec = 1;
	f->value_type = 1; /* unsigned int */
	f->ret = o.ret;
	f->value.ull = 0;
	int missing = 0;
	switch (f->field_id) {
	case 83:
		counter_field(g, f, &o, C_ENERGY, &missing);
		break;
	case 94:
		f->value.ui = u32(&o, 0);
		break;
	case 138:
	case 139:
		counter_field(g, f, &o, f->field_id == 138 ? C_NVL_TX : C_NVL_RX, &missing);
		if (f->scope_id != (unsigned)-1) { /* one link: an even share */
			if (f->scope_id >= 18)
				f->ret = INVALID_ARGUMENT;
			else if (!o.has_value)
				f->value.ull /= 18;
		}
		break;
	case 269:
	case 270:
	case 271:
		counter_field(g, f, &o, C_THR_SW_THERMAL + (int)f->field_id - 269, &missing);
		break;
	case 82:
		f->value.ui = u32(&o, replay_cell(g, R_TEMP_MEM));
		break;
	case 185:
		f->value.ui = u32(&o, replay_cell(g, R_POWER_AVG));
		break;
	case 186:
		f->value.ui = u32(&o, replay_cell(g, R_POWER_NOW));
		break;
	default:
		missing = 1;
	}
	if (missing && !f->ret)
		f->ret = NOT_SUPPORTED;
}

API int nvmlDeviceGetFieldValues(sn_device g, int count, sn_field_value *values)
{
	ENTER("nvmlDeviceGetFieldValues", g);
	if (count <= 0 || !values)
		return INVALID_ARGUMENT;
	for (int i = 0; i < count; i++)
		field(g, &values[i]);
	return OK;
}

#endif /* STANDIN_OLD */
#endif /* STANDIN_BARE */
