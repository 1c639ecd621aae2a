/* A stand-in for libnvidia-ml.so.1 whose every answer a test sets while the program under test runs.
 *
 * The file that $FAKE_NVML names holds the whole state, one line for each thing that differs from the defaults:
 *
 *   gpus * 8                          number of GPUs
 *   text driver 580.95.05             driver, nvml: versions
 *   name 0 NVIDIA GeForce RTX 3090    the 0 is the GPU, * stands for all; also: uuid
 *   busy 0 97                         any number of NUMBERS below
 *   field 0 197 4096                  value of a field, in place of one that goes on with time
 *   field_return 0 82 3               what NVML returns for that field
 *   gpm 0 10 62.5                     a GPM metric; gpm_return likewise
 *   process 0 compute 4711 1e9        list (compute, graphics, mps), pid, bytes; -1: the driver does not tell
 *   ancestor 0 1 30                   level of the nearest common ancestor on PCIe of two GPUs
 *   p2p 0 1 2 5                       of two GPUs, by index of the capability: its status
 *   fault 0 nvmlDeviceGetName return 4        or: crash, hang, slow MICROSECONDS; * for any GPU or for none
 *
 * The function "handle" stands for nvmlDeviceGetHandleByIndex_v2 of one GPU.
 * The file is read again when it has changed, at the next call. $FAKE_NVML.calls counts the calls: slots of 64 bytes,
 * 56 of a name and 8 of a number. Layouts and numbers follow the public ABI of NVML 13.
 */
#include "fake_nvml_state.h"

#define ENTER                                  \
    int result = enter(__func__, ALL);         \
    if (result != SUCCESS) return result

#define ENTER_NVML                             \
    ENTER;                                     \
    if (!n_inits) return UNINITIALIZED

static int open_handle(const char *function, const handle *h, gpu_state **gpu) {
    if (h < &handles[0][0][0] || h > &handles[MAX_GPUS - 1][MAX_SLICES][MAX_GENERATIONS - 1]) return INVALID;
    int result = enter(function, h->gpu);
    if (result != SUCCESS) return result;
    if (!n_inits) return UNINITIALIZED;
    *gpu = &gpus[h->gpu];
    if ((*gpu)->lost || (*gpu)->absent || h->generation != (int)(*gpu)->generation) {
        count("used a lost handle");
        return LOST;
    }
    return h->slice < (int)(*gpu)->slices ? SUCCESS : INVALID;
}

/* For functions that a MIG slice has, and for those that only a whole GPU has. */
#define ENTER_ANY                                       \
    gpu_state *gpu;                                     \
    int result = open_handle(__func__, device, &gpu);   \
    if (result != SUCCESS) return result

#define ENTER_WHOLE                                     \
    ENTER_ANY;                                          \
    if (device->slice >= 0) return NOT_SUPPORTED

#define WHOLE_NUMBER(function, key)                                                    \
    API int function(const handle *device, uint32_t *value) {                          \
        ENTER_WHOLE;                                                                   \
        *value = (uint32_t)gpu->key;                                                   \
        return SUCCESS;                                                                \
    }

static int give_handle(int gpu, int slice, const handle **device) {
    int generation = (int)gpus[gpu].generation;
    handle *h = &handles[gpu][slice + 1][generation];
    *h = (handle){gpu, slice, generation};
    *device = h;
    return SUCCESS;
}

/* ---- the library as a whole ------------------------------------------------------------------------------- */

API int nvmlInitWithFlags(uint32_t flags) { (void)flags; ENTER; n_inits++; return SUCCESS; }
API int nvmlShutdown(void) { ENTER_NVML; n_inits--; return SUCCESS; }
API const char *nvmlErrorString(int code) { (void)code; return "an error of the fake"; }

API int nvmlSystemGetDriverVersion(char *text, uint32_t size) {
    ENTER_NVML;
    snprintf(text, size, "%s", driver);
    return SUCCESS;
}

API int nvmlSystemGetNVMLVersion(char *text, uint32_t size) {
    ENTER;
    snprintf(text, size, "%s", nvml);
    return SUCCESS;
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version) { ENTER_NVML; *version = 13010; return SUCCESS; }

API int nvmlDeviceGetCount_v2(uint32_t *number) {
    ENTER_NVML;
    *number = 0;
    for (int i = 0; i < n_gpus; i++) *number += !gpus[i].absent;
    return SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(uint32_t index, const handle **device) {
    ENTER_NVML;
    for (int i = 0; i < n_gpus; i++)
        if (!gpus[i].absent && !index--) {
            int result_of_gpu = enter("handle", i);
            if (result_of_gpu != SUCCESS) return result_of_gpu;
            return gpus[i].lost ? LOST : give_handle(i, -1, device);
        }
    return INVALID;
}

/* ---- one GPU ---------------------------------------------------------------------------------------------- */

API int nvmlDeviceGetName(const handle *device, char *text, uint32_t size) {
    ENTER_ANY;
    snprintf(text, size, device->slice < 0 ? "%s" : "%s MIG 1g.10gb", gpu->name);
    return SUCCESS;
}

API int nvmlDeviceGetUUID(const handle *device, char *text, uint32_t size) {
    ENTER_ANY;
    if (device->slice < 0) snprintf(text, size, "%s", gpu->uuid);
    else snprintf(text, size, "MIG-%d-%s", device->slice, gpu->uuid);
    return SUCCESS;
}

API int nvmlDeviceGetPciInfo_v3(const handle *device, pci_info *info) {
    ENTER_WHOLE;
    *info = (pci_info){.bus = 0x17 + (uint32_t)device->gpu, .device_id = 0x233010de};
    snprintf(info->legacy, sizeof info->legacy, "0000:%02X:00.0", info->bus);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return SUCCESS;
}

API int nvmlDeviceGetMemoryInfo(const handle *device, memory_v1 *memory) {
    ENTER_ANY;
    if (gpu->unified) return NOT_SUPPORTED;
    memory->total = (uint64_t)(device->slice < 0 ? gpu->memory_total : gpu->slice_memory);
    memory->used = (uint64_t)(gpu->memory_used + gpu->memory_reserved);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

API int nvmlDeviceGetMemoryInfo_v2(const handle *device, memory_v2 *memory) {
    ENTER_ANY;
    if (memory->version != (sizeof *memory | 2u << 24)) return WRONG_VERSION;
    if (gpu->unified) return NOT_SUPPORTED;
    memory->total = (uint64_t)(device->slice < 0 ? gpu->memory_total : gpu->slice_memory);
    memory->used = (uint64_t)gpu->memory_used;
    memory->reserved = (uint64_t)gpu->memory_reserved;
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}

API int nvmlDeviceGetUtilizationRates(const handle *device, utilization *busy) {
    ENTER_WHOLE;
    if (gpu->slices) return NOT_SUPPORTED;
    *busy = (utilization){(uint32_t)gpu->busy, (uint32_t)gpu->memory_busy};
    return SUCCESS;
}

API int nvmlDeviceGetClockInfo(const handle *device, uint32_t clock, uint32_t *mhz) {
    ENTER_WHOLE;
    *mhz = (uint32_t)(clock == 2 ? gpu->memory_mhz : gpu->sm_mhz);
    return SUCCESS;
}

API int nvmlDeviceGetMaxClockInfo(const handle *device, uint32_t clock, uint32_t *mhz) {
    ENTER_WHOLE;
    *mhz = (uint32_t)(clock == 2 ? gpu->memory_mhz_max : gpu->sm_mhz_max);
    return SUCCESS;
}

WHOLE_NUMBER(nvmlDeviceGetMemoryBusWidth, bus_bits)
WHOLE_NUMBER(nvmlDeviceGetPerformanceState, p_state)
WHOLE_NUMBER(nvmlDeviceGetPowerUsage, power_mw)
WHOLE_NUMBER(nvmlDeviceGetEnforcedPowerLimit, power_limit_mw)
WHOLE_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation)
WHOLE_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
WHOLE_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, pcie_generation_max)
WHOLE_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, pcie_width_max)

API int nvmlDeviceGetCudaComputeCapability(const handle *device, int *major, int *minor) {
    ENTER_WHOLE;
    *major = (int)gpu->capability / 10;
    *minor = (int)gpu->capability % 10;
    return SUCCESS;
}

API int nvmlDeviceGetTemperatureV(const handle *device, temperature_v1 *temperature) {
    ENTER_WHOLE;
    if (temperature->version != (sizeof *temperature | 1u << 24)) return WRONG_VERSION;
    temperature->celsius = (int32_t)gpu->celsius;
    return SUCCESS;
}

API int nvmlDeviceGetTemperature(const handle *device, uint32_t sensor, uint32_t *celsius) {
    ENTER_WHOLE;
    (void)sensor;
    *celsius = (uint32_t)gpu->celsius;
    return SUCCESS;
}

API int nvmlDeviceGetCurrentClocksEventReasons(const handle *device, uint64_t *reasons) {
    ENTER_WHOLE;
    *reasons = (uint64_t)gpu->throttle;
    return SUCCESS;
}

API int nvmlDeviceGetCurrentClocksThrottleReasons(const handle *device, uint64_t *reasons) {
    ENTER_WHOLE;
    *reasons = (uint64_t)gpu->throttle;
    return SUCCESS;
}

API int nvmlDeviceGetPcieThroughput(const handle *device, uint32_t direction, uint32_t *kb_per_s) {
    ENTER_WHOLE;
    usleep((useconds_t)gpu->pcie_snapshot_us);
    *kb_per_s = (uint32_t)((direction == 0 ? gpu->pcie_tx : gpu->pcie_rx) / 1000);
    return SUCCESS;
}

/* ---- processes -------------------------------------------------------------------------------------------- */

static int give_list(const gpu_state *gpu, int list, uint32_t *number, process *into) {
    uint32_t have = (uint32_t)gpu->n_processes[list];
    /* The first `list_grows` lists have grown in between, so that no room that was made for them is enough. */
    if (into && list == COMPUTE && lists_grown[gpu - gpus] < gpu->list_grows) {
        lists_grown[gpu - gpus]++;
        *number += 1;
        return TOO_SMALL;
    }
    if (*number < have) { *number = have; return TOO_SMALL; }
    if (have) memcpy(into, gpu->processes[list], have * sizeof *into);
    *number = have;
    return SUCCESS;
}

#define PROCESS_LIST(function, list)                                                   \
    API int function(const handle *device, uint32_t *number, process *into) {          \
        ENTER_ANY;                                                                     \
        return give_list(gpu, list, number, into);                                     \
    }

PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS)

/* ---- fields: sensors and counters ------------------------------------------------------------------------- */

static void answer_field(const gpu_state *gpu, field *each, double t) {
    uint32_t id = each->id;
    double value = 0, links = each->scope == ALL_LINKS ? 1 : 1 / (gpu->nvlinks > 0 ? gpu->nvlinks : 1);
    each->time_us = (int64_t)(gpu->field_time_us ? gpu->field_time_us : t * 1e6); /* the moment of the counters */
    each->latency_us = 7;
    each->type = TYPE_UNSIGNED_LONG_LONG;
    each->result = SUCCESS;
    if (id < MAX_FIELDS && gpu->field_return[id]) { each->result = (uint32_t)gpu->field_return[id]; return; }
    switch (id) {
    case 82: value = gpu->memory_celsius; each->type = TYPE_UNSIGNED_INT; break;
    case 83: value = gpu->energy_mj < 0 ? t * gpu->power_mw : gpu->energy_mj; break;
    case 90: value = gpu->nvlink_mbps; each->type = TYPE_UNSIGNED_INT; break;
    case 91: value = gpu->nvlinks; each->type = TYPE_UNSIGNED_INT; break;
    case 138: value = t * gpu->nvlink_tx / 1024 * links; break; /* KiB */
    case 139: value = t * gpu->nvlink_rx / 1024 * links; break;
    case 185:
    case 186: value = gpu->power_mw; each->type = TYPE_UNSIGNED_INT; break;
    case 197: value = t * gpu->pcie_tx; break;
    case 198: value = t * gpu->pcie_rx; break;
    default: each->result = NOT_SUPPORTED;
    }
    if ((id == 138 || id == 139) && gpu->nvlinks <= 0) each->result = NOT_SUPPORTED;
    uint64_t whole = id < MAX_FIELDS && gpu->field_is_set[id] ? gpu->field_value[id] : (uint64_t)value;
    memset(&each->value, 0xee, sizeof each->value); /* what is beyond the type must not be read */
    if (each->type == TYPE_UNSIGNED_INT) each->value.ui = (uint32_t)whole;
    else each->value.ull = whole;
}

API int nvmlDeviceGetFieldValues(const handle *device, int number, field *fields) {
    ENTER_WHOLE;
    double t = now_s();
    for (int i = 0; i < number; i++) answer_field(gpu, &fields[i], t);
    return SUCCESS;
}

/* ---- performance counters (GPM) --------------------------------------------------------------------------- */

API int nvmlGpmQueryDeviceSupport(const handle *device, uint32_t *support) {
    ENTER_WHOLE;
    if (support[0] != 1) return WRONG_VERSION;
    support[1] = gpu->gpm_supported != 0;
    return SUCCESS;
}

API int nvmlGpmSampleAlloc(gpm_sample **sample) {
    ENTER_NVML;
    *sample = calloc(1, sizeof **sample);
    return SUCCESS;
}

API int nvmlGpmSampleFree(gpm_sample *sample) { ENTER_NVML; free(sample); return SUCCESS; }

static gpm_sample sample_of(const gpu_state *gpu, int index, int slice) {
    return (gpm_sample){gpu->gpm_time_s ? gpu->gpm_time_s : now_s(), index, slice};
}

API int nvmlGpmSampleGet(const handle *device, gpm_sample *sample) {
    ENTER_ANY;
    if (!gpu->gpm_supported) return NOT_SUPPORTED;
    if (device->slice >= 0 && gpu->gpm_needs_parent) return INVALID;
    *sample = sample_of(gpu, device->gpu, device->slice);
    return SUCCESS;
}

API int nvmlGpmMigSampleGet(const handle *device, uint32_t instance, gpm_sample *sample) {
    ENTER_WHOLE;
    if (instance < 1 || instance > gpu->slices) return INVALID;
    *sample = sample_of(gpu, device->gpu, (int)instance - 1);
    return SUCCESS;
}

API int nvmlGpmMetricsGet(gpm_query *query) {
    ENTER_NVML;
    const gpm_sample *first = query->first, *second = query->second;
    if (query->version != 1) return WRONG_VERSION;
    if (!first || !second || first->gpu != second->gpu || first->slice != second->slice) return INVALID;
    if (second->t - first->t < GPM_APART_S) return INVALID;
    const gpu_state *gpu = &gpus[first->gpu];
    for (uint32_t i = 0; i < query->count; i++) {
        gpm_metric *metric = &query->metrics[i];
        metric->result = metric->id < MAX_METRICS ? (uint32_t)gpu->gpm_return[metric->id] : INVALID;
        metric->value = metric->result == SUCCESS ? gpu->gpm_value[metric->id] : 0;
    }
    return SUCCESS;
}

/* ---- MIG slices ------------------------------------------------------------------------------------------- */

API int nvmlDeviceGetMigMode(const handle *device, uint32_t *current, uint32_t *pending) {
    ENTER_WHOLE;
    *current = *pending = gpu->slices > 0;
    return SUCCESS;
}

API int nvmlDeviceGetMaxMigDeviceCount(const handle *device, uint32_t *number) {
    ENTER_WHOLE;
    (void)gpu;
    *number = MAX_SLICES;
    return SUCCESS;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(const handle *device, uint32_t index, const handle **slice) {
    ENTER_WHOLE;
    return index < gpu->slices ? give_handle(device->gpu, (int)index, slice) : NOT_FOUND;
}

API int nvmlDeviceGetGpuInstanceId(const handle *device, uint32_t *instance) {
    ENTER_ANY;
    (void)gpu;
    if (device->slice < 0) return INVALID;
    *instance = (uint32_t)device->slice + 1;
    return SUCCESS;
}

/* ---- between two GPUs ------------------------------------------------------------------------------------- */

API int nvmlDeviceGetTopologyCommonAncestor(const handle *device, const handle *other, uint32_t *level) {
    ENTER_WHOLE;
    (void)gpu;
    *level = (uint32_t)ancestor[device->gpu][other->gpu];
    return SUCCESS;
}

API int nvmlDeviceGetP2PStatus(const handle *device, const handle *other, uint32_t what, uint32_t *status) {
    ENTER_WHOLE;
    (void)gpu;
    if (what >= 8) return INVALID;
    *status = (uint32_t)p2p[device->gpu][other->gpu][what];
    return SUCCESS;
}
