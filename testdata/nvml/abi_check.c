/*
 * Compares the structures in standin.h with the real header. Compiled, never
 * linked: cc -fsyntax-only -I <go-nvml>/pkg/nvml abi_check.c
 */
#include "nvml.h"
#include "standin.h"

#include <stddef.h>

#define SAME(mine, theirs) _Static_assert(sizeof(mine) == sizeof(theirs), #theirs)
#define AT(mine, a, theirs, b) _Static_assert(offsetof(mine, a) == offsetof(theirs, b), #theirs "." #b)

SAME(sn_device, nvmlDevice_t);
SAME(sn_utilization, nvmlUtilization_t);
SAME(sn_memory, nvmlMemory_t);
SAME(sn_memory_v2, nvmlMemory_v2_t);
AT(sn_memory_v2, used, nvmlMemory_v2_t, used);
AT(sn_memory_v2, reserved, nvmlMemory_v2_t, reserved);
SAME(sn_pci_info, nvmlPciInfo_t);
AT(sn_pci_info, domain, nvmlPciInfo_t, domain);
AT(sn_pci_info, bus_id, nvmlPciInfo_t, busId);
SAME(sn_field_value, nvmlFieldValue_t);
AT(sn_field_value, timestamp, nvmlFieldValue_t, timestamp);
AT(sn_field_value, value_type, nvmlFieldValue_t, valueType);
AT(sn_field_value, ret, nvmlFieldValue_t, nvmlReturn);
AT(sn_field_value, value, nvmlFieldValue_t, value);
SAME(sn_gpm_metric, nvmlGpmMetric_t);
AT(sn_gpm_metric, ret, nvmlGpmMetric_t, nvmlReturn);
AT(sn_gpm_metric, value, nvmlGpmMetric_t, value);
AT(sn_gpm_metrics_get, sample1, nvmlGpmMetricsGet_t, sample1);
AT(sn_gpm_metrics_get, metrics, nvmlGpmMetricsGet_t, metrics);
SAME(sn_gpm_support, nvmlGpmSupport_t);
SAME(sn_power_sample, nvmlSample_t);
SAME(sn_process, nvmlProcessInfo_t);
AT(sn_process, used, nvmlProcessInfo_t, usedGpuMemory);
AT(sn_process, gpu_instance, nvmlProcessInfo_t, gpuInstanceId);
SAME(sn_process_use, nvmlProcessUtilizationSample_t);
AT(sn_process_use, stamp, nvmlProcessUtilizationSample_t, timeStamp);
AT(sn_process_use, sm, nvmlProcessUtilizationSample_t, smUtil);
SAME(sn_event, nvmlEventData_t);
AT(sn_event, type, nvmlEventData_t, eventType);
AT(sn_event, gpu_instance, nvmlEventData_t, gpuInstanceId);
_Static_assert(GPU_IS_LOST == NVML_ERROR_GPU_IS_LOST, "GPU_IS_LOST");
_Static_assert(VERSION_MISMATCH == NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "VERSION_MISMATCH");
_Static_assert(INSUFFICIENT_SIZE == NVML_ERROR_INSUFFICIENT_SIZE, "INSUFFICIENT_SIZE");
