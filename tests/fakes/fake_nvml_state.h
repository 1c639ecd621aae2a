/* State of the fake NVML: the layouts of the ABI, the file that a test writes, faults, and the count of calls. */
#ifndef FAKE_NVML_STATE_H
#define FAKE_NVML_STATE_H
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define MAX_GPUS 8
#define MAX_SLICES 7
#define MAX_GENERATIONS 4
#define MAX_PROCESSES 32
#define MAX_FIELDS 256
#define MAX_METRICS 256
#define MAX_FAULTS 64
#define MAX_SLOTS 256
#define ALL (-1)
#define ALL_LINKS 0xffffffffu
#define GPM_APART_S 0.1

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15,
       WRONG_VERSION = 25 };
enum { COMPUTE, GRAPHICS, MPS, N_LISTS };
enum { TYPE_UNSIGNED_INT = 1, TYPE_UNSIGNED_LONG_LONG = 3 };

/* ---- layouts of the ABI ---------------------------------------------------------------------------------- */

typedef struct { uint64_t total, free, used; } memory_v1;
typedef struct { uint32_t version; uint64_t total, reserved, free, used; } memory_v2;
typedef struct { uint32_t gpu, memory; } utilization;
typedef struct { uint32_t pid; uint64_t used; uint32_t gpu_instance, compute_instance; } process;
typedef struct { char legacy[16]; uint32_t domain, bus, device, device_id, subsystem; char bus_id[32]; } pci_info;
typedef union { double d; uint32_t ui; uint64_t ull; } field_union;
typedef struct { uint32_t id, scope; int64_t time_us, latency_us; uint32_t type, result; field_union value; } field;
typedef struct { uint32_t version, sensor; int32_t celsius; } temperature_v1;
typedef struct { uint32_t id, result; double value; const char *short_name, *long_name, *unit; } gpm_metric;
typedef struct gpm_sample gpm_sample;
typedef struct { uint32_t version, count; gpm_sample *first, *second; gpm_metric metrics[]; } gpm_query;
struct gpm_sample { double t; int gpu, slice; };

_Static_assert(sizeof(memory_v1) == 24 && sizeof(memory_v2) == 40 && offsetof(memory_v2, used) == 32, "memory");
_Static_assert(sizeof(process) == 24 && sizeof(pci_info) == 68 && sizeof(temperature_v1) == 12, "structs");
_Static_assert(sizeof(field) == 40 && offsetof(field, result) == 28 && offsetof(field, value) == 32, "field");
_Static_assert(sizeof(gpm_metric) == 40 && offsetof(gpm_query, metrics) == 24, "gpm");

/* ---- state ------------------------------------------------------------------------------------------------ */

#define NUMBERS(X) \
    X(memory_total, 85899345920.0) X(memory_used, 61e9) X(memory_reserved, 600e6) X(unified, 0) \
    X(busy, 97) X(memory_busy, 71) X(memory_mhz, 2619) X(memory_mhz_max, 2619) X(sm_mhz, 1755) X(sm_mhz_max, 1980) \
    X(bus_bits, 5120) X(p_state, 0) X(power_mw, 512345) X(power_limit_mw, 700000) X(energy_mj, -1) \
    X(celsius, 61) X(memory_celsius, 73) X(throttle, 0) X(capability, 90) \
    X(pcie_generation, 5) X(pcie_width, 16) X(pcie_generation_max, 5) X(pcie_width_max, 16) \
    X(pcie_tx, 1.2e9) X(pcie_rx, 3.4e9) X(pcie_snapshot_us, 0) \
    X(nvlinks, 18) X(nvlink_mbps, 26562) X(nvlink_tx, 40e9) X(nvlink_rx, 41e9) X(field_time_us, 0) \
    X(gpm_supported, 1) X(gpm_needs_parent, 0) X(gpm_time_s, 0) X(slices, 0) X(slice_memory, 10e9) \
    X(lost, 0) X(absent, 0) X(generation, 0) X(list_grows, 0)

typedef struct {
    char name[96], uuid[80];
#define DECLARE(key, value) double key;
    NUMBERS(DECLARE)
    uint8_t field_is_set[MAX_FIELDS];
    uint64_t field_value[MAX_FIELDS];
    int field_return[MAX_FIELDS], gpm_return[MAX_METRICS];
    double gpm_value[MAX_METRICS];
    int n_processes[N_LISTS];
    process processes[N_LISTS][MAX_PROCESSES];
} gpu_state;

typedef struct { int gpu; char function[64], kind[16]; double value; } fault;
typedef struct { int gpu, slice, generation; } handle; /* slice -1 is the whole GPU */

static gpu_state gpus[MAX_GPUS];
static handle handles[MAX_GPUS][MAX_SLICES + 1][MAX_GENERATIONS];
static int n_gpus, n_faults, ancestor[MAX_GPUS][MAX_GPUS], p2p[MAX_GPUS][MAX_GPUS][8], n_inits;
static double lists_grown[MAX_GPUS];
static fault faults[MAX_FAULTS];
static char driver[80], nvml[80], state_path[4096];
static struct stat state_stat;
static struct { char name[56]; uint64_t count; } *slots;

static const struct { const char *key; size_t offset; } numbers[] = {
#define ENTRY(key, value) {#key, offsetof(gpu_state, key)},
    NUMBERS(ENTRY)
};

static void set_defaults(void) {
    n_gpus = 2;
    n_faults = 0;
    memset(lists_grown, 0, sizeof lists_grown);
    strcpy(driver, "580.95.05");
    strcpy(nvml, "13.580.95.05");
    memset(gpus, 0, sizeof gpus);
    for (int i = 0; i < MAX_GPUS; i++) {
        gpu_state *gpu = &gpus[i];
        strcpy(gpu->name, "NVIDIA H100 80GB HBM3");
        snprintf(gpu->uuid, sizeof gpu->uuid, "GPU-00000000-0000-0000-0000-%012d", i);
#define DEFAULT(key, value) gpu->key = value;
        NUMBERS(DEFAULT)
        for (int m = 0; m < MAX_METRICS; m++) gpu->gpm_return[m] = NOT_SUPPORTED;
        static const struct { int id; double value; } known[] = {
            {2, 90}, {5, 31}, {10, 62}, {20, 1200}, {21, 3400}, {60, 39000}, {61, 38000}};
        for (size_t m = 0; m < sizeof known / sizeof *known; m++) {
            gpu->gpm_return[known[m].id] = SUCCESS;
            gpu->gpm_value[known[m].id] = known[m].value;
        }
        for (int j = 0; j < MAX_GPUS; j++) {
            ancestor[i][j] = 40;
            memset(p2p[i][j], 0, sizeof p2p[i][j]);
        }
    }
}

static void set_of_gpu(gpu_state *gpu, const char *key, const char *rest) {
    int id = 0, list = N_LISTS;
    char name[16];
    double value = 0, pid = 0;
    if (!strcmp(key, "name")) { snprintf(gpu->name, sizeof gpu->name, "%s", rest); return; }
    if (!strcmp(key, "uuid")) { snprintf(gpu->uuid, sizeof gpu->uuid, "%s", rest); return; }
    if (!strcmp(key, "process") && sscanf(rest, "%15s %lf %lf", name, &pid, &value) == 3) {
        list = !strcmp(name, "compute") ? COMPUTE : !strcmp(name, "graphics") ? GRAPHICS : MPS;
        if (gpu->n_processes[list] < MAX_PROCESSES)
            gpu->processes[list][gpu->n_processes[list]++] =
                (process){(uint32_t)pid, value < 0 ? UINT64_MAX : (uint64_t)value, UINT32_MAX, UINT32_MAX};
        return;
    }
    uint64_t count = 0;
    if (!strcmp(key, "field") && sscanf(rest, "%d %lu", &id, &count) == 2 && id < MAX_FIELDS) {
        gpu->field_is_set[id] = 1; /* read as a whole number: a counter has more digits than a double */
        gpu->field_value[id] = count;
        return;
    }
    if (sscanf(rest, "%d %lf", &id, &value) == 2 && id >= 0 && id < MAX_FIELDS) {
        if (!strcmp(key, "field_return")) { gpu->field_return[id] = (int)value; return; }
        if (!strcmp(key, "gpm_return")) { gpu->gpm_return[id] = (int)value; return; }
        if (!strcmp(key, "gpm")) { gpu->gpm_return[id] = SUCCESS; gpu->gpm_value[id] = value; return; }
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(key, numbers[i].key)) { *(double *)((char *)gpu + numbers[i].offset) = atof(rest); return; }
    fprintf(stderr, "fake NVML: no such thing as %s %s\n", key, rest);
    abort(); /* a test that misspells something must not pass */
}

static void set_line(char *line) {
    char key[32], where[32];
    int start = 0, other = 0, what = 0, value = 0;
    line[strcspn(line, "\n")] = 0;
    if (sscanf(line, "%31s %31s %n", key, where, &start) < 2) return;
    const char *rest = line + start;
    int one = strcmp(where, "*") ? atoi(where) : ALL;
    if (!strcmp(key, "text")) { snprintf(strcmp(where, "nvml") ? driver : nvml, sizeof nvml, "%s", rest); return; }
    if (!strcmp(key, "gpus")) { n_gpus = atoi(rest); return; }
    if (!strcmp(key, "fault") && n_faults < MAX_FAULTS) {
        fault *new = &faults[n_faults++];
        *new = (fault){.gpu = one};
        sscanf(rest, "%63s %15s %lf", new->function, new->kind, &new->value);
        return;
    }
    if (!strcmp(key, "ancestor") && sscanf(rest, "%d %d", &other, &value) == 2) {
        ancestor[one][other] = ancestor[other][one] = value;
        return;
    }
    if (!strcmp(key, "p2p") && sscanf(rest, "%d %d %d", &other, &what, &value) == 3) {
        p2p[one][other][what] = p2p[other][one][what] = value;
        return;
    }
    for (int i = 0; i < MAX_GPUS; i++)
        if (one == ALL || one == i) set_of_gpu(&gpus[i], key, rest);
}

static void map_slots(void) {
    char path[4200];
    snprintf(path, sizeof path, "%s.calls", state_path);
    size_t size = MAX_SLOTS * sizeof *slots;
    if (slots) munmap(slots, size);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0) abort();
    slots = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (slots == MAP_FAILED) abort();
    close(fd);
}

static void read_state(void) {
    const char *path = getenv("FAKE_NVML");
    struct stat now;
    if (!path) path = "";
    int moved = strcmp(path, state_path) != 0;
    memset(&now, 0, sizeof now);
    if (*path && stat(path, &now) != 0) abort();
    if (n_gpus && !moved && now.st_ino == state_stat.st_ino && now.st_size == state_stat.st_size &&
        now.st_mtim.tv_sec == state_stat.st_mtim.tv_sec && now.st_mtim.tv_nsec == state_stat.st_mtim.tv_nsec)
        return;
    state_stat = now;
    snprintf(state_path, sizeof state_path, "%s", path);
    set_defaults();
    if (!*path) return;
    if (moved) map_slots();
    FILE *file = fopen(path, "r");
    if (!file) abort();
    char line[256];
    while (fgets(line, sizeof line, file)) set_line(line);
    fclose(file);
}

static void count(const char *name) {
    for (int i = 0; slots && i < MAX_SLOTS; i++) {
        if (!slots[i].name[0]) snprintf(slots[i].name, sizeof slots[i].name, "%s", name);
        if (!strncmp(slots[i].name, name, sizeof slots[i].name - 1)) { slots[i].count++; return; }
    }
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Does what a test wants of any call of this function; returns what it should return. */
static int enter(const char *function, int gpu) {
    read_state();
    count(function);
    for (int i = 0; i < n_faults; i++) {
        const fault *each = &faults[i];
        if (strcmp(each->function, function) || (each->gpu != ALL && each->gpu != gpu)) continue;
        if (!strcmp(each->kind, "crash")) raise(SIGSEGV);
        while (!strcmp(each->kind, "hang")) pause();
        if (!strcmp(each->kind, "slow")) usleep((useconds_t)each->value);
        if (!strcmp(each->kind, "return")) return (int)each->value;
    }
    return SUCCESS;
}

#endif
