"""A poller of NVML as a Python program would write it, without pynvml: gpu-overhead compares with it."""
import ctypes as c
import time

KIB = 1024


class Utilization(c.Structure):
    _fields_ = [("gpu", c.c_uint), ("memory", c.c_uint)]


class Memory(c.Structure):
    _fields_ = [("version", c.c_uint), ("total", c.c_ulonglong), ("reserved", c.c_ulonglong),
                ("free", c.c_ulonglong), ("used", c.c_ulonglong)]


class Field(c.Structure):
    _fields_ = [("id", c.c_uint), ("scope", c.c_uint), ("stamp", c.c_longlong), ("latency", c.c_longlong),
                ("type", c.c_int), ("ret", c.c_int), ("value", c.c_ulonglong)]


class Metric(c.Structure):
    _fields_ = [("id", c.c_uint), ("ret", c.c_int), ("value", c.c_double),
                ("short", c.c_char_p), ("long", c.c_char_p), ("unit", c.c_char_p)]


class MetricsGet(c.Structure):
    _fields_ = [("version", c.c_uint), ("count", c.c_uint), ("one", c.c_void_p), ("two", c.c_void_p),
                ("metrics", Metric * 333)]


class Sample(c.Structure):
    _fields_ = [("stamp", c.c_ulonglong), ("value", c.c_ulonglong)]


class Process(c.Structure):
    _fields_ = [("pid", c.c_uint), ("used", c.c_ulonglong), ("gi", c.c_uint), ("ci", c.c_uint)]


class ProcessUse(c.Structure):
    _fields_ = [("pid", c.c_uint), ("stamp", c.c_ulonglong), ("sm", c.c_uint), ("mem", c.c_uint),
                ("enc", c.c_uint), ("dec", c.c_uint)]


METRICS = [2, 3, 5, 10, 11, 12, 13, 20, 21, 60, 61]


class GPU:
    def __init__(self, lib, index):
        self.n, self.h = lib, c.c_void_p()
        lib.nvmlDeviceGetHandleByIndex_v2(index, c.byref(self.h))
        self.samples = [c.c_void_p(), c.c_void_p()]
        for s in self.samples:
            lib.nvmlGpmSampleAlloc(c.byref(s))
        self.util, self.memory, self.u, self.ull = Utilization(), Memory(), c.c_uint(), c.c_ulonglong()
        self.memory.version = c.sizeof(Memory) | 2 << 24
        self.get = MetricsGet(version=1)
        self.last = 0

    def cheap(self):
        n, h, u = self.n, self.h, c.byref(self.u)
        n.nvmlDeviceGetUtilizationRates(h, c.byref(self.util))
        n.nvmlDeviceGetMemoryInfo_v2(h, c.byref(self.memory))
        n.nvmlDeviceGetTemperature(h, 0, u)
        n.nvmlDeviceGetClockInfo(h, 1, u)
        n.nvmlDeviceGetClockInfo(h, 2, u)
        n.nvmlDeviceGetCurrentClocksEventReasons(h, c.byref(self.ull))
        n.nvmlDeviceGetPerformanceState(h, u)
        n.nvmlDeviceGetPowerUsage(h, u)
        self.fields(82, 186)

    def fields(self, *ids):
        f = (Field * len(ids))(*(Field(id=i, scope=0xFFFFFFFF if i in (138, 139) else 0) for i in ids))
        self.n.nvmlDeviceGetFieldValues(self.h, len(ids), f)

    def gpm(self):
        self.samples.reverse()
        self.n.nvmlGpmSampleGet(self.h, self.samples[1])
        self.get.count = len(METRICS)
        self.get.one, self.get.two = self.samples
        for i, m in enumerate(METRICS):
            self.get.metrics[i].id = m
        self.n.nvmlGpmMetricsGet(c.byref(self.get))

    def power(self):
        kind, count, buffer = c.c_int(), c.c_uint(120), (Sample * 120)()
        if self.n.nvmlDeviceGetSamples(self.h, 0, c.c_ulonglong(self.last), c.byref(kind), c.byref(count), buffer) == 0:
            self.last = max(s.stamp for s in buffer[: count.value])

    def counters(self):
        self.fields(83, 138, 139)

    def processes(self):
        count, buffer = c.c_uint(64), (Process * 64)()
        self.n.nvmlDeviceGetComputeRunningProcesses_v3(self.h, c.byref(count), buffer)

    def everything(self):
        self.cheap()
        self.gpm()
        self.power()
        self.counters()
        self.processes()
        count, buffer = c.c_uint(256), (ProcessUse * 256)()
        self.n.nvmlDeviceGetProcessUtilization(self.h, buffer, c.byref(count), c.c_ulonglong(0))
        for counter in (0, 1):
            self.n.nvmlDeviceGetPcieThroughput(self.h, counter, c.byref(self.u))


def poll(kind):
    lib = c.CDLL("libnvidia-ml.so.1")
    lib.nvmlInit_v2()
    count = c.c_uint()
    lib.nvmlDeviceGetCount_v2(c.byref(count))
    gpus = [GPU(lib, i) for i in range(count.value)]
    if kind == "everything":
        every(0.02, gpus, lambda tick, g: g.everything())
    else:
        every(0.025, gpus, same)


def same(tick, g):
    """What gswarm reads, at its rates: ticks of 25 ms divide all of them."""
    if tick % 4 == 0:
        g.cheap()
    if tick % 5 == 0:
        g.gpm()
    if tick % 40 == 0:
        g.power()
        g.fields(94, 269, 270, 271)
    if tick % 400 == 0:
        g.counters()
        g.processes()


def every(interval, gpus, read):
    tick = 0
    while True:
        for g in gpus:
            read(tick, g)
        now = time.monotonic()
        ahead = int(now / interval) + 1
        time.sleep(ahead * interval - now)
        tick += 1
