/* GPM: two samples, and the metrics between them. */
#define _GNU_SOURCE
#include "standin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#if !defined STANDIN_BARE && !defined STANDIN_OLD

struct sample {
	const struct gpu *gpu;
	int64_t raw;
};

API int nvmlGpmQueryDeviceSupport(sn_device g, sn_gpm_support *s)
{
	ENTER("nvmlGpmQueryDeviceSupport", g);
	s->is_supported = u32(&o, 1);
	return OK;
}

API int nvmlGpmSampleAlloc(sn_gpm_sample *s)
{
	ENTER("nvmlGpmSampleAlloc", NULL);
	*s = calloc(1, sizeof **s);
	return *s ? OK : 20;
}

API int nvmlGpmSampleFree(sn_gpm_sample s)
{
	ENTER("nvmlGpmSampleFree", NULL);
	free(s);
	return OK;
}

API int nvmlGpmMigSampleGet(sn_device g, unsigned instance, sn_gpm_sample s)
{
	ENTER("nvmlGpmMigSampleGet", g);
	if (instance < 1 || instance > (unsigned)script_instances(g->number))
		return INVALID_ARGUMENT;
	s->gpu = g;
	s->raw = replay_now();
	return OK;
}

API int nvmlGpmSampleGet(sn_device g, sn_gpm_sample s)
{
	ENTER("nvmlGpmSampleGet", g);
	s->gpu = g;
	s->raw = replay_now();
	return OK;
}

static int gpm_column(unsigned id)
{
	switch (id) {
	case 2: return A_SM;
	case 3: return A_OCCUPANCY;
	case 5: return A_TENSOR;
	case 10: return A_DRAM;
	case 11: return A_FP64;
	case 12: return A_FP32;
	case 13: return A_FP16;
	case 20: return A_PCIE_TX;
	case 21: return A_PCIE_RX;
	case 60: return A_NVL_RX;
	case 61: return A_NVL_TX;
	}
	return -1;
}

static int metrics_get(sn_gpm_metrics_get *m)
{
	if (m->version != 1)
		return VERSION_MISMATCH;
	if (!m->sample1 || !m->sample2 || !m->sample1->gpu || m->sample1->gpu != m->sample2->gpu)
		return INVALID_ARGUMENT;
	const struct gpu *g = m->sample1->gpu;
	ENTER("nvmlGpmMetricsGet", g);
	for (unsigned i = 0; i < m->num_metrics; i++) {
		sn_gpm_metric *metric = &m->metrics[i];
		char name[32];
		snprintf(name, sizeof name, "gpm:%u", metric->metric_id);
		struct outcome own = script_play(name, g);
		int column = gpm_column(metric->metric_id);
		metric->ret = own.ret ? own.ret : column < 0 ? INVALID_ARGUMENT : OK;
		metric->value = NAN;
		if (own.has_value)
			metric->value = own.value;
		else if (o.has_value)
			metric->value = o.value;
		else if (column >= 0)
			metric->value = replay_average(g, column, m->sample1->raw, m->sample2->raw);
	}
	return OK;
}

/* Driver 580.159 may crash where two GPUs' metrics are computed at once: this one always does. */
API int nvmlGpmMetricsGet(sn_gpm_metrics_get *m)
{
	static int inside;
	if (__atomic_fetch_add(&inside, 1, __ATOMIC_SEQ_CST))
		abort();
	int ret = metrics_get(m);
	__atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
	return ret;
}

#endif
